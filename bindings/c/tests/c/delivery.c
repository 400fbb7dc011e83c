/* Tests delivery modes: which completions wake zl_wait, which zl_poll finds, and which are held back. One thread drives
   both ends. Run by tests/install.rs. */
#include "pair.h"
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zerolane.h>

enum { LENGTH = 5000, TRIES = 20000 };

/* Sends one Transfer, until the sender knows that it has arrived; whether the receiver's zl_wait returned for it. */
static int wakes(zl_connection *ours, zl_connection *peers, zl_region *from, uint32_t delivery,
                 zl_completion *received)
{
    const zl_work how = {.delivery = delivery};
    zl_completion sent;
    uint64_t id;
    int woken = 0;

    EXPECT(zl_post_send(ours, from, 0, LENGTH, &how, &id) == ZL_OK);
    for (int tries = 0; tries < TRIES; tries++) {
        zl_status status = zl_wait(peers, 1, received);
        EXPECT(status == ZL_OK || status == ZL_TIMEOUT);
        woken |= status == ZL_OK;
        status = zl_poll(ours, &sent);
        EXPECT(status == ZL_OK || status == ZL_TIMEOUT);
        if (status == ZL_OK) {
            EXPECT(sent.id == id && sent.status == ZL_OK);
            return woken;
        }
    }
    EXPECT(!"sent in time");
    return 0;
}

int main(void)
{
    zl_connection *ours, *peers;
    zl_region *from, *to;
    zl_completion completion;
    uint64_t id[3];

    connect_pair(&ours, &peers);
    EXPECT(zl_honour_delivery(peers, 2) == ZL_ERROR_ARGUMENT);
    EXPECT(zl_honour_delivery(peers, 1) == ZL_OK);
    EXPECT(zl_region_new(LENGTH, &from) == ZL_OK && zl_region_new(3 * LENGTH, &to) == ZL_OK);
    memset(zl_region_data(from), 7, LENGTH);
    for (int n = 0; n < 3; n++)
        EXPECT(zl_post_recv(peers, to, (size_t)n * LENGTH, LENGTH, NULL, &id[n]) == ZL_OK);
    const zl_work none = {.delivery = 3};
    EXPECT(zl_post_send(ours, from, 0, LENGTH, &none, &id[0]) == ZL_ERROR_ARGUMENT);

    EXPECT(!wakes(ours, peers, from, ZL_DELIVERY_POLLED, &completion));
    EXPECT(zl_poll(peers, &completion) == ZL_OK);
    EXPECT(completion.id == id[0] && completion.delivery == ZL_DELIVERY_POLLED);

    EXPECT(!wakes(ours, peers, from, ZL_DELIVERY_SILENT, &completion));
    EXPECT(zl_poll(peers, &completion) == ZL_TIMEOUT);
    EXPECT(zl_notify(peers, id[1]) == ZL_OK);
    EXPECT(zl_wait(peers, 10000, &completion) == ZL_OK);
    EXPECT(completion.id == id[1] && completion.delivery == ZL_DELIVERY_SILENT);
    EXPECT(zl_notify(peers, id[1]) == ZL_ERROR_ARGUMENT);

    EXPECT(wakes(ours, peers, from, ZL_DELIVERY_INTERRUPT, &completion));
    EXPECT(completion.id == id[2] && completion.delivery == ZL_DELIVERY_INTERRUPT);
    for (int n = 0; n < 3; n++)
        EXPECT(memcmp((char *)zl_region_data(to) + (size_t)n * LENGTH, zl_region_data(from), LENGTH) == 0);

    zl_connection_free(peers);
    zl_connection_free(ours);
    zl_region_free(from);
    zl_region_free(to);
    return EXIT_SUCCESS;
}
