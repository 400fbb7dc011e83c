/* Tests the lanes of connections. */
#define _GNU_SOURCE

#include "expect.h"
#include "join.h"
#include <net/if.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include <zerolane.h>

enum { LENGTH = 1 << 20, LENT = 64 << 20 };

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
static uint64_t carried(uint64_t ours, uint64_t theirs, const unsigned char *content)
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
    join_serving(thread, connection);
    EXPECT(account.lane == client.lane);
    zl_connection_free(connection);
    zl_endpoint_free(endpoint);
    zl_options_free(options);
    zl_options_free(client.options);
    free(received);
    return client.lane;
}

/* It is `expected` that carries it. Where a listener does not run for a second, UDP may instead, but not each time. */
static void carries(uint64_t ours, uint64_t theirs, uint64_t expected, const unsigned char *content)
{
    uint64_t lane = carried(ours, theirs, content);

    for (int tries = 1; tries < 10 && expected == ZL_LANE_SHARED_MEMORY && lane == ZL_LANE_UDP; tries++)
        lane = carried(ours, theirs, content);
    EXPECT(lane == expected);
}

/* Asks for the region until the peer's memory is mapped, which takes a turn of both ends, and works on it. It stays
   mapped until the peer has revoked it. */
static void *work_directly(void *argument)
{
    struct client *client = argument;
    zl_connection *connection;
    zl_account account;
    zl_key key;
    unsigned char back[4096];
    uint64_t before;
    size_t length;

    EXPECT(zl_connect(client->address, client->options, &connection) == ZL_OK);
    EXPECT(zl_open_region(connection, "table", ZL_RIGHT_READ | ZL_RIGHT_WRITE | ZL_RIGHT_ATOMIC, &key) == ZL_OK);
    for (int turn = 0; turn < 10000; turn++) {
        EXPECT(zl_get(connection, &key, 0, back, sizeof back) == ZL_OK);
        EXPECT(zl_account_read(connection, &account) == ZL_OK);
        if (account.direct_operations > 0)
            break;
    }
    EXPECT(account.direct_operations == 1);
    EXPECT(zl_put(connection, &key, 4096, client->content, 100000) == ZL_OK);
    EXPECT(zl_fetch_op(connection, &key, 8, ZL_FETCH_ADD, 7, 0, &before) == ZL_OK && before == 5);
    EXPECT(zl_account_read(connection, &account) == ZL_OK);
    EXPECT(account.direct_operations == 3);
    EXPECT(zl_send(connection, "done", 4) == ZL_OK);
    EXPECT(zl_recv_into(connection, back, sizeof back, &length) == ZL_OK);
    EXPECT(length == 7 && memcmp(back, "revoked", 7) == 0);
    EXPECT(zl_get(connection, &key, 0, back, sizeof back) == ZL_ERROR_REVOKED);
    EXPECT(zl_close(connection) == ZL_OK);
    return NULL;
}

/* The most memory that this process has had, in KiB. */
static long peak_kib(void)
{
    FILE *status = fopen("/proc/self/status", "r");
    char line[512];
    long peak = 0;

    EXPECT(status != NULL);
    while (peak == 0 && fgets(line, sizeof line, status) != NULL)
        sscanf(line, "VmHWM: %ld", &peak);
    fclose(status);
    EXPECT(peak > 0);
    return peak;
}

/* How often this process has the lent memory mapped: both ends are here. */
static int mappings(void)
{
    FILE *maps = fopen("/proc/self/maps", "r");
    char line[512];
    unsigned long from, to;
    int found = 0;

    EXPECT(maps != NULL);
    while (fgets(line, sizeof line, maps) != NULL)
        found += strstr(line, "/memfd:zerolane") != NULL && sscanf(line, "%lx-%lx", &from, &to) == 2
                 && to - from == LENT;
    fclose(maps);
    return found;
}

/* The memory is freed, and not copied: the peer may still write to what it has mapped, but nobody wants the bytes. */
static void revoke_lent(zl_exported *exported)
{
    long before;

    EXPECT(mappings() == 2);
    before = peak_kib();
    EXPECT(zl_exported_revoke(exported) == ZL_OK);
    EXPECT(peak_kib() - before < LENT / 2 / 1024);
    EXPECT(zl_exported_data(exported) == NULL && mappings() < 2);
}

/* Memory that both ends map. */
static void mapped(const unsigned char *content)
{
    struct client client = {.options = on(ZL_LANE_SHARED_MEMORY), .content = content};
    zl_options *options = on(ZL_LANE_SHARED_MEMORY);
    zl_endpoint *endpoint;
    zl_connection *connection;
    zl_exported *exported;
    zl_completion completion;
    zl_key key;
    pthread_t thread;
    unsigned char *data;
    char said[8];
    size_t length;

    EXPECT(zl_exported_memfd(LENT, NULL) == ZL_ERROR_ARGUMENT);
    EXPECT(zl_exported_data(NULL) == NULL);
    EXPECT(zl_exported_memfd(LENT, &exported) == ZL_OK);
    data = zl_exported_data(exported);
    EXPECT(data != NULL);
    ((uint64_t *)data)[1] = 5;
    EXPECT(zl_endpoint_bind("127.0.0.1:0", options, &endpoint) == ZL_OK);
    EXPECT(zl_endpoint_local_addr(endpoint, client.address, sizeof client.address) == ZL_OK);
    EXPECT(pthread_create(&thread, NULL, work_directly, &client) == 0);
    EXPECT(zl_endpoint_accept(endpoint, 10000, &connection) == ZL_OK);
    EXPECT(zl_export_named(connection, "table", exported, ZL_RIGHT_READ | ZL_RIGHT_WRITE | ZL_RIGHT_ATOMIC, &key)
           == ZL_OK);
    EXPECT(zl_recv_into(connection, said, sizeof said, &length) == ZL_OK);
    EXPECT(length == 4 && memcmp(said, "done", 4) == 0);
    EXPECT(((uint64_t *)data)[1] == 12);
    EXPECT(memcmp(data + 4096, content, 100000) == 0);
    revoke_lent(exported);
    EXPECT(zl_send(connection, "revoked", 7) == ZL_OK);
    /* Until the peer has left. */
    while (zl_wait(connection, -1, &completion) >= 0)
        ;
    EXPECT(pthread_join(thread, NULL) == 0);
    EXPECT(mappings() == 0);
    zl_exported_free(exported);
    zl_connection_free(connection);
    zl_endpoint_free(endpoint);
    zl_options_free(options);
    zl_options_free(client.options);
}

struct sender {
    zl_connection *connection;
    const unsigned char *content;
};

static void *send_again(void *argument)
{
    struct sender *sender = argument;

    EXPECT(zl_send(sender->connection, sender->content, LENGTH) == ZL_OK);
    return NULL;
}

static void *connect_only(void *argument)
{
    struct client *client = argument;
    static zl_connection *connection;

    EXPECT(zl_connect(client->address, client->options, &connection) == ZL_OK);
    return connection;
}

/* Whether `count` usable paths of `ours` each brought a MiB to the peer. What was sent may be lost on a busy host. */
static int each_carried(zl_connection *ours, zl_connection *peers, size_t count)
{
    zl_path paths[8], theirs[8];
    size_t found, known, carried = 0;

    EXPECT(zl_paths_read(ours, paths, 8, &found) == ZL_OK);
    EXPECT(zl_paths_read(peers, theirs, 8, &known) == ZL_OK);
    for (size_t at = 0; at < found; at++)
        for (size_t of = 0; of < known; of++)
            carried += paths[at].life == ZL_PATH_USABLE && paths[at].index == theirs[of].index
                       && paths[at].bytes_sent > 1 << 20 && theirs[of].bytes_received > 1 << 20;
    return found == count && carried == count;
}

/* Moves content until `count` paths each carried a MiB. On a busy host a link takes seconds to come up. */
static void until_carried(zl_connection *ours, zl_connection *peers, const unsigned char *content, size_t count)
{
    unsigned char *received = calloc(1, LENGTH);
    struct sender sender = {.connection = ours, .content = content};
    time_t until = time(NULL) + 30;
    int done = 0;

    EXPECT(received != NULL);
    while (!done && time(NULL) < until) {
        pthread_t thread;
        size_t length;

        EXPECT(pthread_create(&thread, NULL, send_again, &sender) == 0);
        EXPECT(zl_recv_into(peers, received, LENGTH, &length) == ZL_OK && length == LENGTH);
        EXPECT(memcmp(received, content, LENGTH) == 0);
        join_serving(thread, peers);
        done = each_carried(ours, peers, count);
    }
    EXPECT(done);
    free(received);
}

/* A connection of `client` to the address that it has, and the other end of it, at `endpoint`. */
static zl_connection *call(struct client *client, zl_endpoint *endpoint, zl_connection **peers)
{
    pthread_t thread;
    void *connected;

    EXPECT(pthread_create(&thread, NULL, connect_only, client) == 0);
    EXPECT(zl_endpoint_accept(endpoint, 10000, peers) == ZL_OK);
    EXPECT(pthread_join(thread, &connected) == 0);
    return connected;
}

/* A connection of the client to an endpoint with these options. The endpoint and the other end are given back too. */
static zl_connection *meet(struct client *client, const zl_options *options, zl_endpoint **endpoint,
                           zl_connection **peers)
{
    EXPECT(zl_endpoint_bind("127.0.0.1:0", options, endpoint) == ZL_OK);
    EXPECT(zl_endpoint_local_addr(*endpoint, client->address, sizeof client->address) == ZL_OK);
    return call(client, *endpoint, peers);
}

/* Payload goes by two paths, with a thread each or without; one is removed, and added again. */
static void several(uint64_t threads, const unsigned char *content)
{
    struct client client = {.options = on(ZL_LANE_UDP)};
    zl_options *options = on(ZL_LANE_UDP);
    zl_endpoint *endpoint;
    zl_connection *ours, *peers;
    zl_path paths[8];
    size_t count;

    EXPECT(zl_options_set(options, ZL_OPTION_PATHS, 2) == ZL_OK);
    EXPECT(zl_options_set(options, ZL_OPTION_PATH_THREADS, threads) == ZL_OK);
    EXPECT(zl_options_set(client.options, ZL_OPTION_PATH_THREADS, threads) == ZL_OK);
    EXPECT(zl_options_add_path(client.options, "127.0.0.1=") == ZL_OK);
    ours = meet(&client, options, &endpoint, &peers);
    until_carried(ours, peers, content, 2);
    EXPECT(zl_paths_read(peers, paths, 8, &count) == ZL_OK && count == 2);
    EXPECT(paths[0].index == 0 && paths[1].index == 1);
    EXPECT(paths[0].rtt_us > 0);
    EXPECT(zl_paths_read(peers, paths, 1, &count) == ZL_OK && count == 1);
    EXPECT(zl_paths_read(peers, paths, 0, &count) == ZL_ERROR_ARGUMENT);
    EXPECT(zl_remove_path(ours, 0) == ZL_ERROR_ARGUMENT);
    EXPECT(zl_remove_path(ours, 1) == ZL_OK);
    until_carried(ours, peers, content, 1);
    EXPECT(zl_add_path(ours, "192.0.2.1") == ZL_ERROR_ARGUMENT);
    EXPECT(zl_add_path(ours, "=") == ZL_OK);
    until_carried(ours, peers, content, 2);
    zl_connection_free(ours);
    zl_connection_free(peers);
    zl_endpoint_free(endpoint);
    zl_options_free(options);
    zl_options_free(client.options);
}

/* Both ends have a name, and the address leads nowhere. */
static void by_name(void)
{
    struct client client = {.options = on(ZL_LANE_SHARED_MEMORY), .address = "192.0.2.1:9"};
    zl_options *options = on(ZL_LANE_SHARED_MEMORY);
    char name[32];
    zl_endpoint *endpoint;
    zl_connection *peers;
    pthread_t thread;
    void *ours;

    snprintf(name, sizeof name, "c.%ld", (long)getpid());
    EXPECT(zl_options_rendezvous(options, name) == ZL_OK);
    EXPECT(zl_options_rendezvous(client.options, name) == ZL_OK);
    EXPECT(zl_endpoint_bind("127.0.0.1:0", options, &endpoint) == ZL_OK);
    EXPECT(pthread_create(&thread, NULL, connect_only, &client) == 0);
    EXPECT(zl_endpoint_accept(endpoint, 10000, &peers) == ZL_OK);
    EXPECT(pthread_join(thread, &ours) == 0);
    zl_connection_free(ours);
    zl_connection_free(peers);
    zl_endpoint_free(endpoint);
    zl_options_free(options);
    zl_options_free(client.options);
}

/* A path over UDP beside that over raw Ethernet, by which the connection is set up, between the two ends of a veth. */
static void ethernet_first(const unsigned char *content)
{
    struct client client = {.options = on(ZL_LANE_ETHERNET)};
    zl_options *options = on(ZL_LANE_ETHERNET);
    zl_endpoint *endpoint;
    zl_connection *ours, *peers;
    zl_account account;
    char own[64];

    EXPECT(zl_options_set(options, ZL_OPTION_PATHS, 2) == ZL_OK);
    EXPECT(zl_options_set(options, ZL_OPTION_UDP_PATHS, 1) == ZL_OK);
    EXPECT(zl_options_add_path(client.options, "=127.0.0.1") == ZL_OK);
    EXPECT(zl_endpoint_bind("ether:zl1:0", options, &endpoint) == ZL_OK);
    EXPECT(zl_endpoint_local_addr(endpoint, own, sizeof own) == ZL_OK);
    snprintf(client.address, sizeof client.address, "ether:zl0/02:00:00:00:00:02%s", strrchr(own, ':'));
    ours = call(&client, endpoint, &peers);
    until_carried(ours, peers, content, 2);
    EXPECT(zl_account_read(ours, &account) == ZL_OK && account.lane == ZL_LANE_ETHERNET);
    zl_connection_free(ours);
    zl_connection_free(peers);
    zl_endpoint_free(endpoint);
    zl_options_free(options);
    zl_options_free(client.options);
}

/* A path over raw Ethernet beside that over UDP, where zl0 and zl1 are the two ends of a veth. */
static void mixed(const unsigned char *content)
{
    struct client client = {.options = on(ZL_LANE_UDP)};
    zl_options *options = on(ZL_LANE_UDP);
    zl_endpoint *endpoint;
    zl_connection *ours, *peers;

    if (if_nametoindex("zl0") == 0) {
        fputs("skipped: network namespaces need root\n", stderr);
    } else {
        EXPECT(zl_options_set(options, ZL_OPTION_PATHS, 2) == ZL_OK);
        EXPECT(zl_options_set(options, ZL_OPTION_ETHERNET_PATHS, 1) == ZL_OK);
        EXPECT(zl_options_add_path(client.options, "ether:zl0=ether:zl0/02:00:00:00:00:02") == ZL_OK);
        ours = meet(&client, options, &endpoint, &peers);
        until_carried(ours, peers, content, 2);
        EXPECT(zl_remove_path(ours, 1) == ZL_OK);
        until_carried(ours, peers, content, 1);
        EXPECT(zl_add_path(ours, "=ether:zl0/02:00:00:00:00:02") == ZL_OK);
        until_carried(ours, peers, content, 2);
        zl_connection_free(ours);
        zl_connection_free(peers);
        zl_endpoint_free(endpoint);
        ethernet_first(content);
    }
    zl_options_free(options);
    zl_options_free(client.options);
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
    mapped(content);
    several(0, content);
    several(1, content);
    by_name();

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
    EXPECT(strstr(zl_last_error(), "lo is not Ethernet") != NULL);

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
        EXPECT(strstr(zl_last_error(), "lo is not Ethernet") != NULL
               || strstr(zl_last_error(), "CAP_NET_RAW") != NULL);
        few.flags = 16;
        EXPECT(zl_device_open("lo", &few, &device) == ZL_ERROR_ARGUMENT);
        EXPECT(strstr(zl_last_error(), "unknown device flag 0x10") != NULL);
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
    mixed(content);
    free(content);
    return 0;
}
