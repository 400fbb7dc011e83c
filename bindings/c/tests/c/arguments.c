/* Tests that functions refuse bad arguments with a code and a text, that a wake ends no request, and that the memory of a
   refused request stays the caller's. Run by tests/install.rs. Null is for nulls.c. */
#define _POSIX_C_SOURCE 200809L

#include "pair.h"
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <zerolane.h>

#define REFUSED(call) EXPECT((call) == ZL_ERROR_ARGUMENT && zl_last_error()[0] != '\0')

static void versions(void)
{
    EXPECT(zl_abi_version() == ZL_ABI_VERSION);
    EXPECT(strchr(zl_version(), '.') != NULL);
    EXPECT(strcmp(zl_last_error(), "") == 0);
    EXPECT(strcmp(zl_status_text(ZL_OK), "done") == 0);
    EXPECT(zl_status_text(123456) != NULL);
}

static void options(void)
{
    zl_options *options;

    EXPECT(zl_options_new(&options) == ZL_OK);
    EXPECT(zl_options_set(options, ZL_OPTION_STRICT, 1) == ZL_OK);
    REFUSED(zl_options_set(options, ZL_OPTION_STRICT, 2));
    REFUSED(zl_options_set(options, 9999, 0));
    REFUSED(zl_options_set(options, ZL_OPTION_SLOTS, 1u << 20));
    REFUSED(zl_options_set(options, ZL_OPTION_SLOTS, 0));
    EXPECT(strstr(zl_last_error(), "slots is 0: use 1 to 1024") != NULL);
    REFUSED(zl_options_set(options, ZL_OPTION_RECEIVE_BUFFER, 0));
    REFUSED(zl_options_set(options, ZL_OPTION_RECEIVE_BUFFER, UINT64_MAX));
    REFUSED(zl_options_set(options, ZL_OPTION_MAX_IN_FLIGHT, 0));
    REFUSED(zl_options_set(options, ZL_OPTION_MAX_IN_FLIGHT, UINT32_MAX));
    REFUSED(zl_options_set(options, ZL_OPTION_IDLE_TIMEOUT_MS, 0));
    EXPECT(strstr(zl_last_error(), "idle timeout is 0") != NULL);
    EXPECT(zl_options_set(options, ZL_OPTION_PATHS, 8) == ZL_OK);
    REFUSED(zl_options_set(options, ZL_OPTION_PATHS, 0));
    REFUSED(zl_options_set(options, ZL_OPTION_PATHS, 9));
    EXPECT(strstr(zl_last_error(), "1 to 8") != NULL);
    EXPECT(zl_options_set(options, ZL_OPTION_BACKLOG, 0) == ZL_OK);
    EXPECT(zl_options_set(options, ZL_OPTION_BACKLOG, 65535) == ZL_OK);
    REFUSED(zl_options_set(options, ZL_OPTION_BACKLOG, 65536));
    EXPECT(zl_options_set(options, ZL_OPTION_PATH_THREADS, 1) == ZL_OK);
    REFUSED(zl_options_set(options, ZL_OPTION_PATH_THREADS, 2));
    EXPECT(zl_options_rendezvous(options, "a.b-c_1") == ZL_OK);
    REFUSED(zl_options_rendezvous(options, NULL));
    REFUSED(zl_options_rendezvous(options, "../a"));
    EXPECT(strstr(zl_last_error(), "1 to 63 letters") != NULL);
    REFUSED(zl_options_add_path(options, NULL));
    REFUSED(zl_options_add_path(options, "192.0.2.1"));
    EXPECT(strstr(zl_last_error(), "LOCAL=PEER") != NULL);
    REFUSED(zl_options_add_path(options, "eth0=192.0.2.2"));
    EXPECT(strstr(zl_last_error(), "ip address") != NULL);
    REFUSED(zl_options_add_path(options, "ether:no-such-one=ether:no-such-one/02:00:00:00:00:01"));
    EXPECT(strstr(zl_last_error(), "no interface no-such-one") != NULL);
    REFUSED(zl_options_add_path(options, "=ether:lo"));
    EXPECT(strstr(zl_last_error(), "ether:IFACE/MAC") != NULL);
    REFUSED(zl_options_set(options, ZL_OPTION_ETHERNET_PATHS, 2));
    EXPECT(zl_options_set(options, ZL_OPTION_ETHERNET_PATHS, 1) == ZL_OK);
    REFUSED(zl_options_set(options, ZL_OPTION_UDP_PATHS, 2));
    EXPECT(zl_options_set(options, ZL_OPTION_UDP_PATHS, 1) == ZL_OK);
    for (int path = 1; path < 8; path++)
        EXPECT(zl_options_add_path(options, "192.0.2.1=192.0.2.2:9181") == ZL_OK);
    REFUSED(zl_options_add_path(options, "="));
    EXPECT(strstr(zl_last_error(), "at most 8 paths") != NULL);
    zl_options_free(options);
}

static void addresses(void)
{
    zl_options *options;
    zl_endpoint *endpoint;
    zl_connection *connection;
    char text[ZL_ADDRESS_LENGTH];

    REFUSED(zl_endpoint_bind("no port here", NULL, &endpoint));
    EXPECT(strstr(zl_last_error(), "\"no port here\" has no port") != NULL);
    REFUSED(zl_endpoint_bind("127.0.0.1:65536", NULL, &endpoint));
    EXPECT(strstr(zl_last_error(), "\"65536\"") != NULL);
    EXPECT(zl_endpoint_bind("no-such-host.invalid:1", NULL, &endpoint) == ZL_ERROR_NO_ADDRESS);
    EXPECT(strstr(zl_last_error(), "host \"no-such-host.invalid\"") != NULL);
    REFUSED(zl_connect("\xff\xfe:1", NULL, &connection));
    EXPECT(zl_endpoint_bind("127.0.0.1:0", NULL, &endpoint) == ZL_OK);
    REFUSED(zl_endpoint_local_addr(endpoint, text, 3));
    REFUSED(zl_endpoint_local_addr(endpoint, NULL, sizeof text));
    EXPECT(zl_endpoint_local_addr(endpoint, text, sizeof text) == ZL_OK);
    EXPECT(zl_endpoint_accept(endpoint, 1, &connection) == ZL_TIMEOUT);
    zl_endpoint_free(endpoint);
    /* Nothing listens there any more. */
    EXPECT(zl_options_new(&options) == ZL_OK);
    EXPECT(zl_options_set(options, ZL_OPTION_CONNECT_TIMEOUT_MS, 200) == ZL_OK);
    zl_status status = zl_connect(text, options, &connection);
    EXPECT(status == ZL_ERROR_CONNECT_TIMEOUT || status == ZL_ERROR_PEER_DEAD);
    zl_options_free(options);
}

static void lengths(void)
{
    zl_queue *queue;
    zl_exported *exported;

    EXPECT(zl_queue_new((size_t)1 << 40, &queue) == ZL_ERROR_SYSTEM);
    EXPECT(strstr(zl_last_error(), "no memory for a queue of") != NULL);
    EXPECT(zl_queue_new(SIZE_MAX, &queue) == ZL_ERROR_SYSTEM);
    REFUSED(zl_exported_memfd(0, &exported));
    /* More than a file may have: the kernel, if it were asked, would take nothing for that. */
    EXPECT(zl_exported_memfd(SIZE_MAX / 2, &exported) == ZL_ERROR_SYSTEM);
    EXPECT(strstr(zl_last_error(), "the system has") != NULL);
}

/* Counts its calls, in its context. */
static void count(void *memory, void *context)
{
    (void)memory;
    ++*(int *)context;
}

static void regions(void)
{
    zl_region *region;
    char memory[16];
    int released = 0;

    REFUSED(zl_region_new(SIZE_MAX, &region));
    REFUSED(zl_region_wrap(memory, SIZE_MAX, count, &released, &region));
    REFUSED(zl_region_wrap(NULL, 1, count, &released, &region));
    REFUSED(zl_region_wrap(memory, 1, count, &released, NULL));
    REFUSED(zl_region_map_file(-1, 0, 1, ZL_ACCESS_READ, &region));
    REFUSED(zl_region_map_file(0, 0, 1, 77, &region));
    EXPECT(zl_region_map_file(9999, 0, 1, ZL_ACCESS_READ, &region) == ZL_ERROR_SYSTEM);
    /* Refused memory stays the caller's. */
    EXPECT(released == 0);
    EXPECT(zl_region_wrap(NULL, 0, count, &released, &region) == ZL_OK);
    zl_region_free(region);
    EXPECT(released == 1);
    EXPECT(zl_region_wrap(memory, sizeof memory, NULL, NULL, &region) == ZL_OK);
    EXPECT(zl_region_data(region) == memory && zl_region_length(region) == sizeof memory);
    zl_region_free(region);
}

static void *wait_without_timeout(void *connection)
{
    zl_completion completion;
    static zl_status status;

    /* Until the main thread, which tries the same, is not just in it. */
    do
        status = zl_wait(connection, -1, &completion);
    while (status == ZL_ERROR_BUSY);
    return &status;
}

/* Drives a connection until it ends, for a peer that works on its memory. */
static void *serve(void *connection)
{
    zl_completion completion;

    while (zl_wait(connection, -1, &completion) >= 0)
        ;
    return NULL;
}

/* Connecting needs an accepting end at the same time. */
static void connections(void)
{
    zl_endpoint *endpoint;
    zl_connection *ours, *peers;
    zl_region *region;
    zl_completion completion;
    char address[ZL_ADDRESS_LENGTH];
    char small[4];
    uint64_t id;
    pthread_t thread;
    void *waited, *connected;

    EXPECT(zl_endpoint_bind("127.0.0.1:0", NULL, &endpoint) == ZL_OK);
    EXPECT(zl_endpoint_local_addr(endpoint, address, sizeof address) == ZL_OK);
    EXPECT(pthread_create(&thread, NULL, connect_to, address) == 0);
    EXPECT(zl_endpoint_accept(endpoint, 10000, &peers) == ZL_OK);
    EXPECT(pthread_join(thread, &connected) == 0);
    ours = connected;
    EXPECT(zl_region_new(64, &region) == ZL_OK);

    REFUSED(zl_send(ours, NULL, 1));
    REFUSED(zl_post_send(ours, region, 0, 65, NULL, &id));
    REFUSED(zl_post_send(ours, region, 1, SIZE_MAX, NULL, &id));
    REFUSED(zl_post_send(ours, NULL, 0, 1, NULL, &id));
    REFUSED(zl_recv_into(ours, small, sizeof small, NULL));
    REFUSED(zl_cancel(ours, 4711));
    EXPECT(zl_poll(ours, &completion) == ZL_TIMEOUT);

    /* A receive that is too small, then cancelled ones. */
    memset(zl_region_data(region), 7, 64);
    EXPECT(zl_post_recv(peers, region, 0, 4, NULL, &id) == ZL_OK);
    EXPECT(zl_cancel(peers, id) == ZL_OK);
    EXPECT(zl_wait(peers, 10000, &completion) == ZL_OK);
    EXPECT(completion.id == id && completion.status == ZL_ERROR_CANCELLED);

    /* One thread at a time: the second is told so, and may wake the first. */
    EXPECT(pthread_create(&thread, NULL, wait_without_timeout, peers) == 0);
    zl_status second = ZL_TIMEOUT;
    for (int tries = 0; tries < 10000 && second == ZL_TIMEOUT; tries++) {
        const struct timespec millisecond = {.tv_nsec = 1000000};
        nanosleep(&millisecond, NULL);
        second = zl_poll(peers, &completion);
    }
    EXPECT(second == ZL_ERROR_BUSY);
    EXPECT(zl_wake(peers) == ZL_OK);
    EXPECT(pthread_join(thread, &waited) == 0);
    EXPECT(*(zl_status *)waited == ZL_WOKEN);

    /* Freeing with a request in flight gives its memory back; the peer is told. */
    EXPECT(zl_post_recv(peers, region, 0, 64, NULL, &id) == ZL_OK);
    zl_connection_free(peers);
    zl_region_free(region);
    EXPECT(zl_wait(ours, 10000, &completion) == ZL_ERROR_CLOSED);
    zl_connection_free(ours);
    zl_endpoint_free(endpoint);
}

static void remote_memory(void)
{
    static const char hello[] = "hello, memory";
    zl_connection *ours, *peers;
    zl_region *theirs, *local;
    zl_exported *exported, *odd;
    zl_queue *queue;
    zl_completion completion;
    zl_key key, opened;
    struct zl_work how = {.flags = 1u << 20};
    char back[sizeof hello];
    uint64_t before;
    uint64_t id, other;
    pthread_t thread;
    int fd;
    int64_t milliseconds;

    connect_pair(&ours, &peers);
    EXPECT(zl_region_new(4096, &theirs) == ZL_OK);
    EXPECT(zl_region_new(4096, &local) == ZL_OK);
    REFUSED(zl_exported_new(theirs, 4, 8, &odd));
    REFUSED(zl_exported_new(theirs, 4096, 1, &odd));
    EXPECT(zl_exported_new(theirs, 0, 4096, &exported) == ZL_OK);
    REFUSED(zl_export(peers, exported, 1u << 9, &key));
    REFUSED(zl_export(peers, NULL, ZL_RIGHT_READ, &key));
    REFUSED(zl_export_named(peers, "a name of more than thirty-two bytes", exported, ZL_RIGHT_READ, &key));
    EXPECT(zl_export_named(peers, "all", exported, ZL_RIGHT_READ | ZL_RIGHT_WRITE | ZL_RIGHT_ATOMIC, &key) ==
           ZL_OK);
    EXPECT(zl_key_length(&key) == 4096);
    uint64_t value;
    REFUSED(zl_key_to_u64(&key, &value)); /* a key of the connection's own */
    REFUSED(zl_key_numbered(1 << 24, 0, &key));
    REFUSED(zl_export_numbered(peers, 1 << 24, exported, ZL_RIGHT_READ, NULL));
    EXPECT(zl_export_numbered(peers, 7, exported, ZL_RIGHT_READ, NULL) == ZL_OK);
    REFUSED(zl_export_numbered(peers, 7, exported, ZL_RIGHT_READ, NULL));
    EXPECT(zl_key_numbered(7, 16, &key) == ZL_OK && zl_key_to_u64(&key, &value) == ZL_OK);
    EXPECT(value == ((uint64_t)7 << 40) + 16 && zl_key_length(&key) == UINT64_MAX - 16);
    EXPECT(zl_revoke(peers, &key) == ZL_OK);
    REFUSED(zl_revoke(peers, &key));
    EXPECT(zl_key_numbered(7, UINT64_MAX, &key) == ZL_OK);
    REFUSED(zl_key_to_u64(&key, &value));
    EXPECT(zl_export_named(peers, "key", exported, ZL_RIGHT_READ | ZL_RIGHT_WRITE | ZL_RIGHT_ATOMIC, &key) == ZL_OK);
    EXPECT(pthread_create(&thread, NULL, serve, peers) == 0);

    EXPECT(zl_open_region(ours, "none", ZL_RIGHT_READ, &opened) == ZL_ERROR_UNKNOWN);
    EXPECT(zl_open_region(ours, "all", ZL_RIGHT_READ | ZL_RIGHT_WRITE | ZL_RIGHT_ATOMIC, &opened) == ZL_OK);
    EXPECT(zl_put(ours, &opened, 100, hello, sizeof hello) == ZL_OK);
    EXPECT(memcmp((char *)zl_region_data(theirs) + 100, hello, sizeof hello) == 0);
    EXPECT(zl_get(ours, &opened, 100, back, sizeof back) == ZL_OK);
    EXPECT(memcmp(back, hello, sizeof hello) == 0);
    EXPECT(zl_put(ours, &opened, 4090, hello, sizeof hello) == ZL_ERROR_OUT_OF_BOUNDS);
    EXPECT(zl_put(ours, &opened, UINT64_MAX, hello, sizeof hello) == ZL_ERROR_OUT_OF_BOUNDS);
    EXPECT(zl_fetch_op(ours, &opened, 8, ZL_FETCH_ADD, 5, 0, &before) == ZL_OK && before == 0);
    EXPECT(zl_fetch_op(ours, &opened, 8, ZL_FETCH_COMPARE_AND_SWAP, 9, 5, &before) == ZL_OK);
    EXPECT(before == 5 && ((uint64_t *)zl_region_data(theirs))[1] == 9);
    EXPECT(zl_fetch_op(ours, &opened, 8, ZL_FETCH_CLEAR, 0, 0, NULL) == ZL_OK);
    REFUSED(zl_fetch_op(ours, &opened, 4, ZL_FETCH_ADD, 1, 0, NULL));
    REFUSED(zl_fetch_op(ours, &opened, 8, ZL_FETCH_MAX + 1, 1, 0, NULL));
    REFUSED(zl_fetch_op(ours, &opened, 12, ZL_FETCH_ADD | ZL_FETCH_U32, (uint64_t)1 << 32, 0, NULL));
    REFUSED(zl_fetch_op(ours, &opened, 10, ZL_FETCH_ADD | ZL_FETCH_U32, 1, 0, NULL));
    EXPECT(zl_fetch_op(ours, &opened, 12, ZL_FETCH_MAX | ZL_FETCH_U32, UINT32_MAX, 0, &before) == ZL_OK && before == 0);
    EXPECT(zl_fetch_op(ours, &opened, 12, ZL_FETCH_INCREMENT | ZL_FETCH_U32, 0, 0, &before) == ZL_OK);
    EXPECT(before == UINT32_MAX);
    EXPECT(zl_exported_fetch_op(exported, 12, ZL_FETCH_OR | ZL_FETCH_U32, 6, 0, &before) == ZL_OK && before == 0);
    EXPECT(zl_fetch_op(ours, &opened, 12, ZL_FETCH_AND | ZL_FETCH_U32, 3, 0, &before) == ZL_OK && before == 6);
    EXPECT(zl_fetch_op(ours, &opened, 12, ZL_FETCH_XOR | ZL_FETCH_U32, 3, 0, &before) == ZL_OK && before == 2);
    EXPECT(zl_fetch_op(ours, &opened, 12, ZL_FETCH_MIN | ZL_FETCH_U32, 0, 0, &before) == ZL_OK && before == 1);
    EXPECT(zl_fetch_op(ours, &opened, 8, ZL_FETCH_ADD, 0, 0, &before) == ZL_OK && before == 0);
    REFUSED(zl_exported_fetch_op(NULL, 0, ZL_FETCH_ADD, 1, 0, NULL));
    REFUSED(zl_exported_fetch_op(exported, 4, ZL_FETCH_ADD, 1, 0, NULL));
    EXPECT(zl_exported_fetch_op(exported, 4096, ZL_FETCH_ADD, 1, 0, NULL) == ZL_ERROR_OUT_OF_BOUNDS);
    REFUSED(zl_fetch_op(ours, &opened, 8, 77, 1, 0, NULL));
    REFUSED(zl_post_put(ours, &opened, 0, local, 0, 8, &how, &id));
    REFUSED(zl_post_put_inline(ours, &opened, 0, zl_region_data(local), ZL_INLINE_LENGTH + 1, NULL, &id));

    /* To a queue: a put of two pieces, and a fetch-op that waits for it. */
    EXPECT(zl_queue_new(16, &queue) == ZL_OK);
    EXPECT(zl_queue_poll(queue, &completion) == ZL_TIMEOUT && zl_queue_fd(queue) >= 0);
    EXPECT(zl_set_completion_queue(ours, queue, 42) == ZL_OK);
    memset(zl_region_data(local), 3, 4096);
    const zl_piece pieces[] = {
        {.remote_offset = 16, .region = local, .offset = 0, .length = 8},
        {.remote_offset = 1024, .region = local, .offset = 8, .length = 3000},
    };
    REFUSED(zl_post_put_vectored(ours, &opened, NULL, 2, NULL, &id));
    REFUSED(zl_post_put_vectored(ours, &opened, pieces, 0, NULL, &id));
    EXPECT(zl_post_put_vectored(ours, &opened, pieces, 2, NULL, &id) == ZL_OK);
    how.flags = ZL_WORK_FENCE;
    EXPECT(zl_post_fetch_op(ours, &opened, 16, ZL_FETCH_INCREMENT, 0, 0, &how, &other) == ZL_OK);
    for (int done = 0; done < 2;) {
        short events;
        EXPECT(zl_watch(ours, &fd, &events, &milliseconds) == ZL_OK && fd >= 0);
        EXPECT((events & ~POLLOUT) == POLLIN);
        zl_status status = zl_wait(ours, 10, &completion);
        EXPECT(status == ZL_WOKEN || status == ZL_TIMEOUT);
        while (zl_queue_wait(queue, 0, &completion) == ZL_OK) {
            EXPECT(completion.tag == 42 && completion.status == ZL_OK);
            EXPECT(completion.id == (done == 0 ? id : other));
            done++;
        }
    }
    EXPECT(completion.kind == ZL_KIND_FETCH && completion.value == 0x0303030303030303u);
    EXPECT(((unsigned char *)zl_region_data(theirs))[1024 + 2999] == 3);

    /* Revoked, for all and at once. */
    EXPECT(zl_exported_revoke(exported) == ZL_OK);
    EXPECT(zl_put(ours, &opened, 100, "late", 4) == ZL_ERROR_REVOKED);
    EXPECT(memcmp((char *)zl_region_data(theirs) + 100, hello, sizeof hello) == 0);
    EXPECT(zl_export(ours, exported, ZL_RIGHT_READ, &key) == ZL_ERROR_REVOKED);
    zl_exported_free(exported);
    EXPECT(zl_close(ours) == ZL_OK);
    EXPECT(pthread_join(thread, NULL) == 0);
    zl_connection_free(peers);
    zl_queue_free(queue);
    zl_region_free(theirs);
    zl_region_free(local);
}

static void *send_one_message(void *connection)
{
    static zl_status status;

    status = zl_send_message(connection, "control", 7, "payload", 7);
    return &status;
}

static void messages(void)
{
    zl_connection *ours, *peers;
    char control[ZL_CONTROL_LENGTH], payload[64];
    size_t control_length, length;
    pthread_t thread, serving;
    void *sent;

    connect_pair(&ours, &peers);
    REFUSED(zl_send_message(ours, payload, ZL_CONTROL_LENGTH + 1, NULL, 0));
    REFUSED(zl_recv_message(peers, NULL, &control_length, NULL, 0, &length));
    EXPECT(pthread_create(&thread, NULL, send_one_message, ours) == 0);
    EXPECT(zl_recv_message(peers, control, &control_length, payload, sizeof payload, &length) ==
           ZL_OK);
    EXPECT(control_length == 7 && memcmp(control, "control", 7) == 0);
    EXPECT(length == 7 && memcmp(payload, "payload", 7) == 0);
    EXPECT(pthread_create(&serving, NULL, serve, peers) == 0);
    EXPECT(pthread_join(thread, &sent) == 0);
    EXPECT(*(zl_status *)sent == ZL_OK);
    EXPECT(zl_close(ours) == ZL_OK);
    EXPECT(pthread_join(serving, NULL) == 0);
    zl_connection_free(peers);
}

static void *receive_one(void *connection)
{
    char buffer[8];
    size_t length;

    EXPECT(zl_recv_into(connection, buffer, sizeof buffer, &length) == ZL_OK);
    EXPECT(length == 5 && memcmp(buffer, "hello", 5) == 0);
    return serve(connection);
}

static void wakes(void)
{
    zl_connection *ours, *peers;
    zl_completion completion;
    pthread_t thread;

    connect_pair(&ours, &peers);
    EXPECT(pthread_create(&thread, NULL, receive_one, peers) == 0);
    EXPECT(zl_wake(ours) == ZL_OK);
    EXPECT(zl_send(ours, "hello", 5) == ZL_OK);
    /* Kept for the next wait, which would have no end without. */
    EXPECT(zl_wait(ours, -1, &completion) == ZL_WOKEN);
    EXPECT(zl_close(ours) == ZL_OK);
    EXPECT(pthread_join(thread, NULL) == 0);
    zl_connection_free(peers);
}

static void refused_posts(void)
{
    zl_connection *ours, *peers;
    zl_region *region;
    zl_completion completion;
    zl_status status;
    uint64_t id, first = 0, refused = 0;
    unsigned posted;

    connect_pair(&ours, &peers);
    EXPECT(zl_region_new(16, &region) == ZL_OK);
    memset(zl_region_data(region), 7, 16);
    for (posted = 0; (status = zl_post_recv(ours, region, 0, 16, NULL, &id)) == ZL_OK; posted++)
        first = posted == 0 ? id : first;
    EXPECT(status == ZL_ERROR_TOO_MANY && posted >= 4096);
    for (size_t at = 0; at < 16; at++)
        EXPECT(((unsigned char *)zl_region_data(region))[at] == 7);
    /* With room again, the same can be posted. */
    EXPECT(zl_cancel(ours, first) == ZL_OK);
    EXPECT(zl_wait(ours, 10000, &completion) == ZL_OK);
    EXPECT(completion.id == first && completion.status == ZL_ERROR_CANCELLED);
    EXPECT(zl_post_recv(ours, region, 0, 16, NULL, &refused) == ZL_OK && refused != first);
    zl_region_free(region);
    zl_connection_free(ours);
    zl_connection_free(peers);
}

int main(void)
{
    versions();
    options();
    addresses();
    lengths();
    regions();
    connections();
    remote_memory();
    messages();
    wakes();
    refused_posts();
    return EXIT_SUCCESS;
}
