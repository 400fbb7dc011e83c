/* What carries a connection. */
#define _POSIX_C_SOURCE 200809L

#include "expect.h"
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <zerolane.h>

enum { LENGTH = 1 << 20 };

/* No lane is said. */
#define UNSAID UINT64_MAX

struct client {
    char address[ZL_ADDRESS_LENGTH];
    zl_options *options;
    const unsigned char *content;
    uint64_t lane;
};

/* Connects, and sends. */
static void *send_all(void *argument)
{
    struct client *client = argument;
    zl_connection *connection;
    zl_account account;

    EXPECT(zl_connect(client->address, client->options, &connection) == ZL_OK);
    EXPECT(zl_account_read(connection, &account) == ZL_OK);
    client->lane = account.lane;
    EXPECT(zl_send(connection, client->content, LENGTH) == ZL_OK);
    EXPECT(zl_close(connection) == ZL_OK);
    return NULL;
}

static zl_options *on(uint64_t lane)
{
    zl_options *options;

    EXPECT(zl_options_new(&options) == ZL_OK);
    if (lane != UNSAID)
        EXPECT(zl_options_set(options, ZL_OPTION_LANE, lane) == ZL_OK);
    return options;
}

/* What carries a connection of a client with `theirs` to an endpoint with `ours`. */
static void carries(uint64_t ours, uint64_t theirs, uint64_t expected, const unsigned char *content)
{
    struct client client = {.options = on(theirs), .content = content};
    zl_options *options = on(ours);
    unsigned char *received = calloc(1, LENGTH);
    zl_endpoint *endpoint;
    zl_connection *connection;
    zl_account account;
    pthread_t thread;
    size_t length;

    EXPECT(received != NULL);
    EXPECT(zl_endpoint_bind("127.0.0.1:0", options, &endpoint) == ZL_OK);
    EXPECT(zl_endpoint_local_addr(endpoint, client.address, sizeof client.address) == ZL_OK);
    EXPECT(pthread_create(&thread, NULL, send_all, &client) == 0);
    EXPECT(zl_endpoint_accept(endpoint, 10000, &connection) == ZL_OK);
    EXPECT(zl_recv_into(connection, received, LENGTH, &length) == ZL_OK && length == LENGTH);
    EXPECT(memcmp(received, content, LENGTH) == 0);
    EXPECT(zl_account_read(connection, &account) == ZL_OK);
    EXPECT(pthread_join(thread, NULL) == 0);
    EXPECT(account.lane == expected && client.lane == expected);
    zl_connection_free(connection);
    zl_endpoint_free(endpoint);
    zl_options_free(options);
    zl_options_free(client.options);
    free(received);
}

int main(void)
{
    unsigned char *content = malloc(LENGTH);
    zl_options *options = on(ZL_LANE_SHARED_MEMORY);
    zl_connection *connection;
    zl_endpoint *endpoint;

    EXPECT(content != NULL);
    for (size_t at = 0; at < LENGTH; at++)
        content[at] = (unsigned char)(at / 251 + at * 7);
    carries(ZL_LANE_UDP, ZL_LANE_UDP, ZL_LANE_UDP, content);
    carries(ZL_LANE_UDP, ZL_LANE_BEST, ZL_LANE_UDP, content);
    carries(ZL_LANE_BEST, ZL_LANE_UDP, ZL_LANE_UDP, content);
    carries(ZL_LANE_BEST, ZL_LANE_BEST, ZL_LANE_SHARED_MEMORY, content);
    carries(ZL_LANE_SHARED_MEMORY, ZL_LANE_SHARED_MEMORY, ZL_LANE_SHARED_MEMORY, content);
    carries(UNSAID, UNSAID, ZL_LANE_SHARED_MEMORY, content);
    carries(UNSAID, ZL_LANE_UDP, ZL_LANE_UDP, content);

    /* Nobody offers it there. */
    EXPECT(zl_connect("127.0.0.1:1", options, &connection) < 0);
    EXPECT(strstr(zl_last_error(), "no shared memory with the peer") != NULL);
    EXPECT(zl_options_set(options, ZL_OPTION_LANE, 5) == ZL_ERROR_ARGUMENT);

    /* Where this process may. */
    EXPECT(zl_options_set(options, ZL_OPTION_LANE, ZL_LANE_IP118) == ZL_OK);
    if (zl_endpoint_bind("127.0.0.1:0", options, &endpoint) == ZL_OK) {
        zl_endpoint_free(endpoint);
        carries(ZL_LANE_IP118, ZL_LANE_IP118, ZL_LANE_IP118, content);
    } else {
        EXPECT(strstr(zl_last_error(), "IP protocol 118 needs CAP_NET_RAW") != NULL);
    }

    /* That is no interface. */
    EXPECT(zl_options_set(options, ZL_OPTION_LANE, ZL_LANE_ETHERNET) == ZL_OK);
    EXPECT(zl_endpoint_bind("127.0.0.1:0", options, &endpoint) < 0);
    EXPECT(strstr(zl_last_error(), "raw Ethernet") != NULL);
    EXPECT(zl_endpoint_bind("ether:no-such-one:0", options, &endpoint) < 0);
    EXPECT(strstr(zl_last_error(), "no interface no-such-one") != NULL);
    EXPECT(zl_connect("ether:lo/02:00:00:00:00:01:9", options, &connection) < 0);
    EXPECT(strstr(zl_last_error(), "lo is no Ethernet") != NULL);

    /* Such an address has no other lane. */
    EXPECT(zl_connect("ether:lo/02:00:00:00:00:01:9", NULL, &connection) < 0);
    EXPECT(strstr(zl_last_error(), "another lane was chosen") != NULL);

    /* Devices. */
    {
        zl_device_options few = {.flags = ZL_DEVICE_FALL_BACK, .max_connections = 2};
        zl_device *device;
        char why[512];
        uint32_t mode;

        EXPECT(zl_device_open("no-such-one", &few, &device) < 0);
        EXPECT(strstr(zl_last_error(), "no interface no-such-one") != NULL);
        EXPECT(zl_device_open("lo", &few, &device) < 0);
        EXPECT(strstr(zl_last_error(), "lo is no Ethernet") != NULL
               || strstr(zl_last_error(), "CAP_NET_RAW") != NULL);
        few.flags = 16;
        EXPECT(zl_device_open("lo", &few, &device) == ZL_ERROR_ARGUMENT);
        EXPECT(strstr(zl_last_error(), "no device flag 0x10") != NULL);
        few.flags = 0;
        few.busy_poll = 65536;
        EXPECT(zl_device_open("lo", &few, &device) == ZL_ERROR_ARGUMENT);
        few.busy_poll = 0;
        few.max_connections = 1025;
        EXPECT(zl_device_open("lo", &few, &device) == ZL_ERROR_ARGUMENT);
        few.max_connections = 0;
        few.reserved[3] = 1;
        EXPECT(zl_device_open("lo", &few, &device) == ZL_ERROR_ARGUMENT);
        EXPECT(zl_device_open(NULL, NULL, &device) == ZL_ERROR_ARGUMENT);
        EXPECT(zl_device_get_mode(NULL, &mode) == ZL_ERROR_ARGUMENT);
        EXPECT(zl_device_refused(NULL, why, sizeof why) == ZL_ERROR_ARGUMENT);
        EXPECT(zl_options_set_device(options, NULL) == ZL_OK);
        zl_device_free(NULL);
    }
    zl_options_free(options);
    free(content);
    return 0;
}
