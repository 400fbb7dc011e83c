/* Tests raw Ethernet by AF_XDP between zl0 and zl1, the two ends of a veth in the network namespace that this runs in. */
#define _GNU_SOURCE

#include "expect.h"
#include "join.h"
#include <net/if.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <zerolane.h>

enum { LENGTH = (1 << 20) + 3 };

#define LISTEN "ether:zl1:7411"
#define CONNECT "ether:zl0/02:00:00:00:00:02:7411"

static unsigned char content[LENGTH];

static zl_options *at(zl_device *device)
{
    zl_options *options;

    EXPECT(zl_options_new(&options) == ZL_OK);
    EXPECT(zl_options_set(options, ZL_OPTION_LANE, ZL_LANE_ETHERNET) == ZL_OK);
    EXPECT(zl_options_set_device(options, device) == ZL_OK);
    return options;
}

/* Connects, and sends. */
static void *send_all(void *argument)
{
    zl_options *options = argument;
    zl_connection *connection;
    zl_account account;

    EXPECT(zl_connect(CONNECT, options, &connection) == ZL_OK);
    EXPECT(zl_account_read(connection, &account) == ZL_OK);
    EXPECT(account.lane == ZL_LANE_ETHERNET && account.bypass == 1);
    EXPECT(zl_send(connection, content, LENGTH) == ZL_OK);
    EXPECT(zl_close(connection) == ZL_OK);
    return NULL;
}

int main(void)
{
    zl_device_options options = {.max_connections = 2};
    unsigned char *received = calloc(1, LENGTH);
    zl_device *near, *far, *more;
    zl_options *ours, *theirs;
    zl_endpoint *endpoint;
    zl_connection *connection;
    zl_account account;
    pthread_t thread;
    size_t length;
    uint32_t mode;
    char why[512];

    if (if_nametoindex("zl0") == 0) {
        fputs("skipped: network namespaces need root\n", stderr);
        free(received);
        return 0;
    }
    EXPECT(received != NULL);
    for (size_t at = 0; at < LENGTH; at++)
        content[at] = (unsigned char)(at / 251 + at * 7);

    EXPECT(zl_device_open("zl0", NULL, &near) == ZL_OK);
    EXPECT(zl_device_open("zl1", &options, &far) == ZL_OK);
    EXPECT(zl_device_get_mode(far, &mode) == ZL_OK && mode == ZL_DEVICE_BYPASS_COPY);
    EXPECT(zl_device_refused(far, why, sizeof why) == ZL_OK && why[0] == '\0');

    /* An interface has one. */
    EXPECT(zl_device_open("zl1", &options, &more) < 0);
    EXPECT(strstr(zl_last_error(), "XDP program already") != NULL);
    options.flags = ZL_DEVICE_FALL_BACK;
    EXPECT(zl_device_open("zl1", &options, &more) == ZL_OK);
    EXPECT(zl_device_get_mode(more, &mode) == ZL_OK && mode == ZL_DEVICE_PACKET_SOCKETS);
    EXPECT(zl_device_refused(more, why, sizeof why) == ZL_OK);
    EXPECT(strstr(why, "XDP program already") != NULL);
    EXPECT(zl_device_refused(more, why, 3) == ZL_ERROR_ARGUMENT);
    zl_device_free(more);

    ours = at(far);
    theirs = at(near);
    /* Those that use it hold it. */
    zl_device_free(near);
    zl_device_free(far);
    EXPECT(zl_endpoint_bind(LISTEN, ours, &endpoint) == ZL_OK);
    EXPECT(pthread_create(&thread, NULL, send_all, theirs) == 0);
    EXPECT(zl_endpoint_accept(endpoint, 10000, &connection) == ZL_OK);
    EXPECT(zl_recv_into(connection, received, LENGTH, &length) == ZL_OK && length == LENGTH);
    EXPECT(memcmp(received, content, LENGTH) == 0);
    EXPECT(zl_account_read(connection, &account) == ZL_OK);
    EXPECT(account.lane == ZL_LANE_ETHERNET && account.bypass == 1);
    join_serving(thread, connection);
    zl_connection_free(connection);

    /* A device is one interface's. */
    EXPECT(zl_connect("ether:zl0/02:00:00:00:00:02:7411", ours, &connection) < 0);
    EXPECT(strstr(zl_last_error(), "another interface") != NULL);
    zl_endpoint_free(endpoint);
    zl_options_free(ours);
    zl_options_free(theirs);
    free(received);
    return 0;
}
