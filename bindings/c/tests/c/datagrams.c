/* Tests datagrams: they arrive whole, and what cannot be sent or received is refused. One thread drives both ends. Run by
   tests/install.rs. */
#include "pair.h"
#include <stdio.h>
#include <string.h>
#include <zerolane.h>

enum { TRIES = 20000 };

int main(void)
{
    static unsigned char sent[60 << 10], received[60 << 10];
    zl_connection *ours, *peers;
    zl_status status = ZL_TIMEOUT;
    size_t longest, len = 0;

    connect_pair(&ours, &peers);
    EXPECT(zl_max_datagram(ours, &longest) == ZL_OK && longest == sizeof sent);
    for (size_t n = 0; n < sizeof sent; n++)
        sent[n] = (unsigned char)(n * 7 + n / 251);
    for (int tries = 0; tries < TRIES && status == ZL_TIMEOUT; tries++) {
        EXPECT(zl_send_datagram(ours, sent, sizeof sent) == ZL_OK);
        status = zl_recv_datagram(peers, 10, received, sizeof received, &len);
    }
    EXPECT(status == ZL_OK && len == sizeof sent && !memcmp(sent, received, len));
    while (zl_recv_datagram(peers, 10, received, sizeof received, &len) == ZL_OK)
        ;
    do {
        EXPECT(zl_send_datagram(ours, "five!", 5) == ZL_OK);
        status = zl_recv_datagram(peers, 10, received, 4, &len);
    } while (status == ZL_TIMEOUT);
    EXPECT(status == ZL_ERROR_TOO_LARGE && len == 5);
    EXPECT(zl_send_datagram(ours, sent, 0) == ZL_ERROR_ARGUMENT);
    EXPECT(zl_send_datagram(ours, NULL, 5) == ZL_ERROR_ARGUMENT);
    EXPECT(zl_recv_datagram(ours, 0, received, sizeof received, NULL) == ZL_ERROR_ARGUMENT);
    EXPECT(zl_max_datagram(NULL, &len) == ZL_ERROR_ARGUMENT);
    zl_connection_free(ours);
    zl_connection_free(peers);
    puts("datagrams: ok");
    return 0;
}
