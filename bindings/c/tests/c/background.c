/* Tests a worker in its own thread: it serves memory while its owner makes no call, and any thread posts to its
   connections. Run by tests/install.rs. */
#define _POSIX_C_SOURCE 200809L

#include "expect.h"
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <zerolane.h>

#define REFUSED(call) EXPECT((call) == ZL_ERROR_ARGUMENT)

enum { LENGTH = 100000, THREADS = 4, EACH = 50 };

static const uint32_t ALL = ZL_RIGHT_READ | ZL_RIGHT_WRITE | ZL_RIGHT_ATOMIC;

static zl_worker *spawned(void)
{
    zl_worker *worker;

    EXPECT(zl_worker_new(&worker) == ZL_OK);
    EXPECT(zl_worker_spawn(worker) == ZL_OK);
    return worker;
}

static void fill(zl_region *region, unsigned char seed)
{
    unsigned char *bytes = zl_region_data(region);

    for (size_t i = 0; i < zl_region_length(region); i++)
        bytes[i] = (unsigned char)(seed + i * 2654435761u / 16777216);
}

/* The reason of an end, which another thread writes. */
struct end {
    _Atomic int calls;
    zl_status reason;
};

static void ended(zl_status reason, void *context)
{
    struct end *end = context;

    end->reason = reason;
    end->calls++;
}

static void arguments(void)
{
    zl_worker *thread = spawned(), *called;
    zl_endpoint *endpoint;
    zl_connection *connection;
    zl_completion completion;
    zl_event event;
    uint64_t number;
    size_t count;
    int64_t time;
    zl_set *set;
    char text[ZL_ADDRESS_LENGTH];

    REFUSED(zl_worker_spawn(NULL));
    REFUSED(zl_worker_background(NULL));
    REFUSED(zl_worker_stop(NULL));
    REFUSED(zl_endpoint_export(NULL, "name", NULL, ALL));
    REFUSED(zl_release(NULL, &connection));
    REFUSED(zl_on_closed(NULL, ended, NULL));
    REFUSED(zl_wait_for(NULL, 1, 0, &completion));
    /* What only the program's calls do. */
    REFUSED(zl_worker_spawn(thread));
    REFUSED(zl_worker_set_spin(thread, 1));
    REFUSED(zl_worker_connections(thread, &count));
    REFUSED(zl_worker_progress(thread));
    REFUSED(zl_worker_wait(thread, -1));
    REFUSED(zl_worker_events(thread, &event, 1, &count));
    REFUSED(zl_worker_arm(thread));
    REFUSED(zl_worker_next_timeout(thread, &time));
    REFUSED(zl_worker_wake(thread));
    EXPECT(zl_worker_fd(thread) == -1);
    REFUSED(zl_worker_listen(thread, NULL, NULL, &endpoint));
    REFUSED(zl_worker_listen(thread, "127.0.0.1:0", NULL, NULL));
    REFUSED(zl_worker_connect(thread, "127.0.0.1:1", NULL, NULL));
    REFUSED(zl_worker_adopt(thread, NULL, &connection));
    EXPECT(zl_worker_listen(thread, "127.0.0.1:0", NULL, &endpoint) == ZL_OK);
    EXPECT(zl_endpoint_public_key(endpoint, text, sizeof text) == ZL_OK && strncmp(text, "zl:", 3) == 0);
    REFUSED(zl_endpoint_export(endpoint, NULL, NULL, ALL));
    EXPECT(zl_worker_stop(thread) == ZL_OK);
    EXPECT(zl_endpoint_accept(endpoint, -1, &connection) == ZL_ERROR_CLOSED);
    zl_endpoint_free(endpoint);
    /* One that the program calls has nothing to stop. */
    EXPECT(zl_worker_new(&called) == ZL_OK);
    REFUSED(zl_worker_stop(called));
    zl_worker_free(called);

    REFUSED(zl_set_new(NULL));
    EXPECT(zl_set_new(&set) == ZL_OK);
    REFUSED(zl_set_add(set, NULL, 1, 0));
    REFUSED(zl_set_add(NULL, NULL, 1, 0));
    REFUSED(zl_set_signal(NULL, 0));
    REFUSED(zl_set_wait(NULL, 0, &number));
    REFUSED(zl_set_wait(set, 0, NULL));
    REFUSED(zl_set_poll_batch(NULL, &number, 1, &count));
    REFUSED(zl_set_poll_batch(set, &number, 0, &count));
    REFUSED(zl_set_poll_batch(set, NULL, 1, &count));
    REFUSED(zl_set_poll_batch(set, &number, 1, NULL));
    EXPECT(zl_set_fd(NULL) == -1);
    zl_set_free(set);
    zl_set_free(NULL);
}

/* This thread, the owner's, makes no call between the peer's: also by an endpoint made before the worker had a
   thread. */
static void passive(void)
{
    zl_worker *worker;
    zl_endpoint *endpoint;
    zl_region *memory, *bytes, *back;
    zl_exported *exported;
    zl_connection *peer;
    zl_key key;
    uint64_t before;
    char address[ZL_ADDRESS_LENGTH];

    EXPECT(zl_region_new(1 << 20, &memory) == ZL_OK);
    EXPECT(zl_region_new(LENGTH, &bytes) == ZL_OK && zl_region_new(LENGTH, &back) == ZL_OK);
    EXPECT(zl_exported_new(memory, 0, 1 << 20, &exported) == ZL_OK);
    EXPECT(zl_worker_new(&worker) == ZL_OK);
    EXPECT(zl_worker_listen(worker, "127.0.0.1:0", NULL, &endpoint) == ZL_OK);
    EXPECT(zl_endpoint_export(endpoint, "memory", exported, ALL) == ZL_OK);
    EXPECT(zl_worker_spawn(worker) == ZL_OK);
    EXPECT(zl_endpoint_local_addr(endpoint, address, sizeof address) == ZL_OK);

    EXPECT(zl_connect(address, NULL, &peer) == ZL_OK);
    EXPECT(zl_set_timeout(peer, 20000) == ZL_OK);
    EXPECT(zl_open_region(peer, "memory", ALL, &key) == ZL_OK);
    for (unsigned char n = 1; n < 5; n++) {
        fill(bytes, n);
        EXPECT(zl_put(peer, &key, 64, zl_region_data(bytes), LENGTH) == ZL_OK);
        EXPECT(memcmp((char *)zl_region_data(memory) + 64, zl_region_data(bytes), LENGTH) == 0);
        EXPECT(zl_get(peer, &key, 64, zl_region_data(back), LENGTH) == ZL_OK);
        EXPECT(memcmp(zl_region_data(back), zl_region_data(bytes), LENGTH) == 0);
        EXPECT(zl_fetch_op(peer, &key, 0, ZL_FETCH_INCREMENT, 0, 0, &before) == ZL_OK);
        EXPECT(before == n - 1u);
    }
    EXPECT(zl_close(peer) == ZL_OK);
    EXPECT(zl_worker_stop(worker) == ZL_OK);
    zl_endpoint_free(endpoint);
    zl_exported_free(exported);
    zl_region_free(back);
    zl_region_free(bytes);
    zl_region_free(memory);
}

/* The end of a request that succeeds. */
static zl_completion done(zl_connection *connection, uint64_t id)
{
    zl_completion completion;

    EXPECT(zl_wait_for(connection, id, 20000, &completion) == ZL_OK);
    EXPECT(completion.status == ZL_OK && completion.id == id);
    REFUSED(zl_wait_for(connection, id, 0, &completion));
    return completion;
}

/* The number of the peer's next put. */
static zl_status next_immediate(zl_connection *connection, int64_t timeout, uint32_t *immediate)
{
    zl_completion completion;
    zl_status status = zl_wait(connection, timeout, &completion);

    if (status == ZL_OK) {
        EXPECT(completion.kind == ZL_KIND_IMMEDIATE && completion.id == 0);
        *immediate = (uint32_t)completion.value;
    }
    return status;
}

struct poster {
    zl_connection *connection;
    zl_key key;
    uint64_t number;
};

static void *post_from_a_thread(void *argument)
{
    const struct poster *poster = argument;
    uint64_t puts[EACH], adds[EACH];
    zl_region *region;

    EXPECT(zl_region_new(EACH * 64, &region) == ZL_OK);
    memset(zl_region_data(region), (int)poster->number + 1, EACH * 64);
    for (uint64_t n = 0; n < EACH; n++) {
        const zl_work how = {.context = n};
        EXPECT(zl_post_put(poster->connection, &poster->key, 4096 + (poster->number * EACH + n) * 64, region,
                           n * 64, 64, &how, &puts[n]) == ZL_OK);
        EXPECT(zl_post_fetch_op(poster->connection, &poster->key, 0, ZL_FETCH_ADD, 2, 0, NULL, &adds[n]) ==
               ZL_OK);
    }
    for (uint64_t n = 0; n < EACH; n++) {
        EXPECT(done(poster->connection, puts[n]).context == n);
        EXPECT(done(poster->connection, adds[n]).value % 2 == 0);
    }
    zl_region_free(region);
    return NULL;
}

/* Requests of several pieces; what was announced, and what of it has arrived. */
static void parts(zl_connection *client, zl_connection *server, const zl_key *key)
{
    enum { LONG = 32 << 20 };
    uint64_t sent, received, many;
    zl_completion completion;
    zl_region *from, *to;
    uint64_t length, arrived = 0;

    EXPECT(zl_region_new(LONG, &from) == ZL_OK && zl_region_new(LONG, &to) == ZL_OK);
    fill(from, 3);
    const unsigned char *source = zl_region_data(from), *target = zl_region_data(to);
    const zl_piece put[] = {{500000, from, 10, 3000}, {600000, from, 5000, 1}};
    const zl_piece get[] = {{500000, to, 0, 3000}, {600000, to, 3000, 1}, {500001, to, 4000, 5}};
    EXPECT(zl_post_put_vectored(client, key, put, 2, &(zl_work){.context = 5}, &sent) == ZL_OK);
    completion = done(client, sent);
    EXPECT(completion.context == 5 && completion.length == 3001);
    EXPECT(zl_post_get_vectored(client, key, get, 3, NULL, &received) == ZL_OK);
    EXPECT(done(client, received).length == 3006);
    EXPECT(memcmp(target, source + 10, 3000) == 0 && target[3000] == source[5000]);
    EXPECT(memcmp(target + 4000, source + 11, 5) == 0);
    REFUSED(zl_post_get_vectored(client, key, (zl_piece[]){{0, NULL, 0, 1}}, 1, NULL, &many));
    EXPECT(zl_post_put_vectored(client, key, NULL, 0, NULL, &many) == ZL_OK);
    /* What the connection refuses ends as a request. */
    EXPECT(zl_wait_for(client, many, 20000, &completion) == ZL_OK && completion.id == many);
    EXPECT(completion.status == ZL_ERROR_ARGUMENT && completion.kind == ZL_KIND_PUT);

    /* One Transfer, and one message, of parts that overlap. */
    const zl_part gathered[] = {{from, 7, 100}, {from, 50, 40000}, {from, 0, 0}, {from, 9, 1}};
    const size_t together = 40101;
    for (int message = 0; message < 2; message++) {
        memset(zl_region_data(to), 0, together + 1);
        if (message) {
            EXPECT(zl_post_message_recv(server, to, 0, together + 1, NULL, &received) == ZL_OK);
            EXPECT(zl_post_message_vectored(client, "4", 1, gathered, 4, NULL, &sent) == ZL_OK);
        } else {
            EXPECT(zl_post_recv(server, to, 0, together + 1, NULL, &received) == ZL_OK);
            EXPECT(zl_post_send_vectored(client, gathered, 4, &(zl_work){.context = 6}, &sent) == ZL_OK);
        }
        completion = done(client, sent);
        EXPECT(completion.length == together && completion.context == (message ? 0 : 6));
        completion = done(server, received);
        EXPECT(completion.length == together && completion.control_length == (uint32_t)message);
        EXPECT(memcmp(target, source + 7, 100) == 0 && memcmp(target + 100, source + 50, 40000) == 0);
        EXPECT(target[40100] == source[9] && target[together] == 0);
    }
    REFUSED(zl_post_send_vectored(client, (zl_part[]){{NULL, 0, 1}}, 1, NULL, &sent));
    REFUSED(zl_post_send_vectored(client, NULL, 1, NULL, &sent));
    REFUSED(zl_post_message_vectored(client, "4", 1, (zl_part[]){{from, LONG, 1}}, 1, NULL, &sent));

    EXPECT(zl_announced(server, 1, &length) == ZL_TIMEOUT);
    /* All may be there before this thread asks, but not each time. */
    int seen = 0;
    for (int tries = 0; tries < 10 && !seen; tries++) {
        arrived = 0;
        memset(zl_region_data(to), 0, LONG);
        EXPECT(zl_post_send(client, from, 0, LONG, NULL, &sent) == ZL_OK);
        EXPECT(zl_announced(server, 20000, &length) == ZL_OK && length == LONG);
        EXPECT(zl_post_recv(server, to, 0, LONG, NULL, &received) == ZL_OK);
        zl_status status = zl_wait_arrived(server, received, 0, 20000, &arrived);
        seen = status == ZL_OK;
        EXPECT(seen ? arrived > 0 && arrived <= LONG : status == ZL_ERROR_ARGUMENT);
        EXPECT(memcmp(target, source, arrived) == 0);
        status = zl_arrived(server, received, &length);
        EXPECT(status == ZL_ERROR_ARGUMENT || (status == ZL_OK && length >= arrived));
        REFUSED(zl_arrived(client, received, &length));
        EXPECT(zl_wait_for(server, received, 20000, &completion) == ZL_OK && completion.length == LONG);
        EXPECT(memcmp(target, source, LONG) == 0);
        REFUSED(zl_arrived(server, received, &length));
        REFUSED(zl_wait_arrived(server, received, 0, 20000, &length));
        done(client, sent);
    }
    EXPECT(seen);
    EXPECT(zl_post_recv(server, to, 0, LONG, NULL, &received) == ZL_OK);
    EXPECT(zl_arrived(server, received, &arrived) == ZL_OK && arrived == 0);
    EXPECT(zl_wait_arrived(server, received, 0, 1, &arrived) == ZL_TIMEOUT);
    EXPECT(zl_cancel(server, received) == ZL_OK);
    EXPECT(zl_wait_for(server, received, 20000, &completion) == ZL_OK && completion.status == ZL_ERROR_CANCELLED);
    zl_region_free(from);
    zl_region_free(to);
}

/* Nothing is posted: a closed peer is told of, by a wait and by a call. */
static void end_of_an_idle_one(zl_worker *thread, zl_endpoint *endpoint, const char *address)
{
    struct end end = {0};
    zl_options *options;
    zl_connection *client, *server;
    zl_completion completion;
    zl_account account;

    EXPECT(zl_options_new(&options) == ZL_OK);
    REFUSED(zl_options_set(options, ZL_OPTION_KEEP_ALIVE, 2));
    EXPECT(zl_options_set(options, ZL_OPTION_KEEP_ALIVE, 1) == ZL_OK);
    EXPECT(zl_worker_connect(thread, address, options, &client) == ZL_OK);
    EXPECT(zl_endpoint_accept(endpoint, -1, &server) == ZL_OK);
    zl_options_free(options);
    REFUSED(zl_on_closed(client, NULL, &end));
    EXPECT(zl_on_closed(client, ended, &end) == ZL_OK);
    EXPECT(zl_wait(client, 1, &completion) == ZL_TIMEOUT && end.calls == 0);
    zl_connection_free(server);
    EXPECT(zl_wait(client, 20000, &completion) == ZL_ERROR_CLOSED);
    EXPECT(zl_wait(client, -1, &completion) == ZL_ERROR_CLOSED);
    EXPECT(zl_poll(client, &completion) == ZL_ERROR_CLOSED);
    /* It is over already: the call comes soon, and this question is behind it. */
    EXPECT(zl_on_closed(client, ended, &end) == ZL_OK);
    EXPECT(zl_account_read(client, &account) == ZL_ERROR_CLOSED);
    EXPECT(end.calls == 2 && end.reason == ZL_ERROR_CLOSED);
    zl_connection_free(client);
}

/* One thread waits for any of many requests, and sleeps on one descriptor. */
static void any_of_many(zl_connection *client, zl_connection *server)
{
    enum { MANY = 64 };
    zl_set *set;
    uint64_t receives[MANY], sent;
    zl_completion completion;
    zl_region *region;
    uint64_t token, tokens[MANY];
    size_t count, came = 0;
    int seen[MANY] = {0};

    EXPECT(zl_set_new(&set) == ZL_OK);
    EXPECT(zl_region_new(MANY, &region) == ZL_OK);
    for (uint64_t n = 0; n < MANY; n++) {
        EXPECT(zl_post_recv(server, region, n, 1, NULL, &receives[n]) == ZL_OK);
        EXPECT(zl_set_add(set, server, receives[n], n) == ZL_OK);
    }
    struct pollfd watched = {.fd = zl_set_fd(set), .events = POLLIN};
    EXPECT(poll(&watched, 1, 0) == 0);
    EXPECT(zl_set_wait(set, 0, &token) == ZL_TIMEOUT && zl_set_wait(set, 1, &token) == ZL_TIMEOUT);
    EXPECT(zl_set_poll_batch(set, tokens, MANY, &count) == ZL_TIMEOUT && count == 0);
    for (int n = 0; n < MANY; n++) {
        EXPECT(zl_post_send(client, region, 0, 1, NULL, &sent) == ZL_OK);
        done(client, sent);
    }
    while (came < MANY) {
        EXPECT(poll(&watched, 1, 20000) == 1);
        EXPECT(zl_set_poll_batch(set, tokens, MANY, &count) == ZL_OK && count > 0);
        for (size_t i = 0; i < count; i++) {
            EXPECT(tokens[i] < MANY && !seen[tokens[i]]);
            seen[tokens[i]] = 1;
            EXPECT(zl_wait_for(server, receives[tokens[i]], 0, &completion) == ZL_OK);
            REFUSED(zl_set_add(set, server, receives[tokens[i]], 0));
        }
        came += count;
    }
    EXPECT(poll(&watched, 1, 0) == 0);
    EXPECT(zl_set_signal(set, 4711) == ZL_OK);
    EXPECT(zl_set_wait(set, -1, &token) == ZL_OK && token == 4711);
    zl_region_free(region);
    zl_set_free(set);
}

static void *wait_for_any(void *connection)
{
    static zl_completion completion;

    return zl_wait(connection, -1, &completion) == ZL_WOKEN ? connection : NULL;
}

struct wait {
    zl_connection *connection;
    uint64_t id;
};

/* Begins anew while the owner looks at the same request. */
static void *wait_for_one(void *argument)
{
    const struct wait *wait = argument;
    zl_completion completion;
    zl_status status;

    do
        status = zl_wait_for(wait->connection, wait->id, 20000, &completion);
    while (status == ZL_ERROR_BUSY);
    EXPECT(status == ZL_OK && completion.status == ZL_OK && completion.length == 3);
    return NULL;
}

/* Each comes once. */
static void is_one_of(uint64_t *requests, size_t count, const zl_completion *completion)
{
    size_t n = 0;

    while (n < count && requests[n] != completion->id)
        n++;
    EXPECT(n < count && completion->id != 0 && completion->status == ZL_OK);
    requests[n] = 0;
}

/* Waits take all completions, except those that another wait is for; success that is silent has none. */
static void any_completion(zl_connection *client, zl_connection *server, const zl_key *key)
{
    enum { MANY = 20 };
    const struct timespec millisecond = {.tv_nsec = 1000000};
    const zl_work unsignalled = {.flags = ZL_WORK_UNSIGNALLED, .context = 8};
    zl_completion completion, completions[MANY];
    uint64_t sends[MANY], receives[MANY], silent, failing, token;
    zl_region *region;
    zl_set *set;
    size_t count, came = 0;
    pthread_t thread;
    void *woken;

    EXPECT(zl_region_new(64, &region) == ZL_OK);
    EXPECT(zl_poll(server, &completion) == ZL_TIMEOUT && zl_wait(server, 1, &completion) == ZL_TIMEOUT);
    EXPECT(zl_poll_batch(server, completions, MANY, &count) == ZL_TIMEOUT && count == 0);
    for (int n = 0; n < MANY; n++)
        EXPECT(zl_post_recv(server, region, 0, 3, NULL, &receives[n]) == ZL_OK);
    for (int n = 0; n < MANY; n++)
        EXPECT(zl_post_send(client, region, 0, 3, NULL, &sends[n]) == ZL_OK);
    /* This one is for a wait of its own. */
    EXPECT(done(client, sends[MANY / 2]).length == 3);
    sends[MANY / 2] = 0;
    for (int n = 1; n < MANY; n++) {
        EXPECT(zl_wait(client, 20000, &completion) == ZL_OK);
        is_one_of(sends, MANY, &completion);
    }
    while (came < MANY) {
        EXPECT(zl_wait(server, 20000, &completion) == ZL_OK);
        is_one_of(receives, MANY, &completion);
        came++;
        if (zl_poll_batch(server, completions, MANY, &count) == ZL_OK)
            for (size_t n = 0; n < count; n++, came++)
                is_one_of(receives, MANY, &completions[n]);
    }
    EXPECT(came == MANY);
    EXPECT(zl_poll(server, &completion) == ZL_TIMEOUT);

    /* Silent: but failures are told. */
    EXPECT(zl_post_put(client, key, 0, region, 0, 8, &unsignalled, &silent) == ZL_OK);
    EXPECT(zl_post_put(client, key, 1 << 20, region, 0, 8, &unsignalled, &failing) == ZL_OK);
    EXPECT(zl_post_put_inline(client, key, 0, "inlined!", 8, NULL, &sends[0]) == ZL_OK);
    EXPECT(done(client, sends[0]).kind == ZL_KIND_PUT);
    EXPECT(zl_wait(client, 20000, &completion) == ZL_OK && completion.id == failing);
    EXPECT(completion.status == ZL_ERROR_OUT_OF_BOUNDS && completion.context == 8);
    EXPECT(zl_wait(client, 10, &completion) == ZL_TIMEOUT);
    EXPECT(zl_set_new(&set) == ZL_OK);
    EXPECT(zl_post_recv(server, region, 0, 3, &unsignalled, &silent) == ZL_OK);
    REFUSED(zl_set_add(set, server, silent, 1));
    EXPECT(zl_cancel(server, silent) == ZL_OK);
    EXPECT(zl_wait(server, 20000, &completion) == ZL_OK && completion.status == ZL_ERROR_CANCELLED);

    /* A set has what is over already, and a wait does not. */
    EXPECT(zl_post_recv(server, region, 0, 3, NULL, &receives[0]) == ZL_OK);
    EXPECT(zl_cancel(server, receives[0]) == ZL_OK);
    while (zl_arrived(server, receives[0], &token) == ZL_OK)
        nanosleep(&millisecond, NULL);
    EXPECT(zl_set_add(set, server, receives[0], 77) == ZL_OK);
    EXPECT(zl_set_wait(set, 20000, &token) == ZL_OK && token == 77);
    EXPECT(zl_wait(server, 10, &completion) == ZL_TIMEOUT);
    EXPECT(zl_wait_for(server, receives[0], 0, &completion) == ZL_OK);

    /* A wake ends one wait, and those before it count once. */
    EXPECT(zl_wake(server) == ZL_OK && zl_wake(server) == ZL_OK && zl_poll(server, &completion) == ZL_TIMEOUT);
    EXPECT(zl_wait(server, -1, &completion) == ZL_WOKEN && zl_wait(server, 1, &completion) == ZL_TIMEOUT);
    EXPECT(pthread_create(&thread, NULL, wait_for_any, server) == 0);
    nanosleep(&millisecond, NULL);
    EXPECT(zl_wake(server) == ZL_OK && pthread_join(thread, &woken) == 0 && woken == server);

    /* One thread waits for one request. */
    EXPECT(zl_post_recv(server, region, 0, 3, NULL, &receives[0]) == ZL_OK);
    struct wait wait = {server, receives[0]};
    EXPECT(pthread_create(&thread, NULL, wait_for_one, &wait) == 0);
    zl_status status = ZL_TIMEOUT;
    for (int tries = 0; tries < 10000 && status == ZL_TIMEOUT; tries++) {
        nanosleep(&millisecond, NULL);
        status = zl_wait_for(server, receives[0], 0, &completion);
    }
    EXPECT(status == ZL_ERROR_BUSY);
    EXPECT(zl_set_add(set, server, receives[0], 1) == ZL_ERROR_BUSY);
    EXPECT(zl_post_send(client, region, 0, 3, NULL, &sends[0]) == ZL_OK);
    EXPECT(pthread_join(thread, NULL) == 0);
    done(client, sends[0]);
    zl_set_free(set);
    zl_region_free(region);
}

/* What is for connections that the program drives. */
static void refusals(zl_connection *connection)
{
    char bytes[8];
    zl_key key = {{0}};
    size_t length;
    uint64_t before;
    zl_queue *queue;
    int fd;
    short events;
    int64_t time;
    zl_worker *worker;
    zl_connection *adopted;

    REFUSED(zl_send(connection, "hello", 5));
    EXPECT(strstr(zl_last_error(), "thread") != NULL);
    REFUSED(zl_recv_into(connection, bytes, sizeof bytes, &length));
    REFUSED(zl_send_message(connection, "hello", 5, NULL, 0));
    REFUSED(zl_recv_message(connection, bytes, &length, NULL, 0, &length));
    REFUSED(zl_put(connection, &key, 0, bytes, 8));
    REFUSED(zl_get(connection, &key, 0, bytes, 8));
    REFUSED(zl_fetch_op(connection, &key, 0, ZL_FETCH_ADD, 1, 0, &before));
    REFUSED(zl_open_region(connection, "name", 0, &key));
    REFUSED(zl_set_timeout(connection, 1));
    REFUSED(zl_honour_delivery(connection, 1));
    REFUSED(zl_watch(connection, &fd, &events, &time));
    EXPECT(zl_queue_new(1, &queue) == ZL_OK);
    REFUSED(zl_set_completion_queue(connection, queue, 1));
    zl_queue_free(queue);
    EXPECT(zl_worker_new(&worker) == ZL_OK);
    REFUSED(zl_worker_adopt(worker, connection, &adopted));
    REFUSED(zl_worker_close(worker, connection));
    zl_worker_free(worker);
}

static void handles(zl_worker *thread)
{
    zl_endpoint *endpoint;
    zl_connection *client, *server, *none;
    uint64_t sent, received, given_up;
    zl_completion completion;
    zl_region *from, *to, *other, *memory;
    zl_exported *exported;
    zl_account account;
    zl_key key;
    uint32_t immediate;
    char text[ZL_ADDRESS_LENGTH];

    EXPECT(zl_worker_listen(thread, "127.0.0.1:0", NULL, &endpoint) == ZL_OK);
    EXPECT(zl_endpoint_accept(endpoint, 1, &none) == ZL_TIMEOUT);
    EXPECT(zl_endpoint_local_addr(endpoint, text, sizeof text) == ZL_OK);
    end_of_an_idle_one(thread, endpoint, text);
    EXPECT(zl_worker_connect(thread, text, NULL, &client) == ZL_OK);
    EXPECT(zl_endpoint_accept(endpoint, -1, &server) == ZL_OK);
    EXPECT(zl_peer_addr(client, text, sizeof text) == ZL_OK && strncmp(text, "127.", 4) == 0);
    EXPECT(zl_peer_key(client, text, sizeof text) == ZL_OK && strncmp(text, "zl:", 3) == 0);
    EXPECT(zl_account_read(client, &account) == ZL_OK && account.datagrams_sent > 0);
    char json[4096];
    size_t json_length = 0, needed = 0;
    EXPECT(zl_account_json(client, json, sizeof json, &json_length) == ZL_OK);
    EXPECT(strlen(json) == json_length && json[0] == '{' && json[json_length - 1] == '}');
    EXPECT(strstr(json, "\"datagrams_sent\":") != NULL && strchr(json, '\n') == NULL);
    EXPECT(zl_account_json(client, json, 10, &needed) == ZL_ERROR_ARGUMENT && needed > 1000);

    /* A Transfer; a receive that is cancelled loses none, and one whose Transfer had come reports it in its memory. */
    EXPECT(zl_region_new(LENGTH, &from) == ZL_OK && zl_region_new(LENGTH, &to) == ZL_OK);
    fill(from, 9);
    REFUSED(zl_post_send(client, from, 1, LENGTH, NULL, &sent));
    EXPECT(zl_post_recv(server, to, 0, LENGTH, NULL, &given_up) == ZL_OK);
    EXPECT(zl_wait_for(server, given_up, 0, &completion) == ZL_TIMEOUT);
    EXPECT(zl_notify(server, given_up) == ZL_OK);
    EXPECT(zl_cancel(server, given_up) == ZL_OK);
    EXPECT(zl_wait_for(server, given_up, 20000, &completion) == ZL_OK && completion.status == ZL_ERROR_CANCELLED);
    REFUSED(zl_cancel(server, given_up));
    REFUSED(zl_notify(server, given_up));
    EXPECT(zl_post_recv(server, to, 0, LENGTH, NULL, &received) == ZL_OK);
    EXPECT(zl_wait_for(server, received, 0, &completion) == ZL_TIMEOUT);
    EXPECT(zl_post_send(client, from, 0, LENGTH, &(zl_work){.context = 42}, &sent) == ZL_OK);
    EXPECT(done(client, sent).context == 42);
    EXPECT(done(server, received).length == LENGTH);
    EXPECT(memcmp(zl_region_data(to), zl_region_data(from), LENGTH) == 0);
    EXPECT(zl_region_new(LENGTH, &other) == ZL_OK);
    memset(zl_region_data(to), 0, LENGTH);
    EXPECT(zl_post_recv(server, to, 0, LENGTH, NULL, &given_up) == ZL_OK);
    EXPECT(zl_post_recv(server, other, 0, LENGTH, NULL, &received) == ZL_OK);
    EXPECT(zl_post_send(client, from, 0, LENGTH, NULL, &sent) == ZL_OK);
    done(client, sent);
    (void)zl_cancel(server, given_up); /* too late, or just in time for its completion */
    EXPECT(done(server, given_up).length == LENGTH);
    EXPECT(memcmp(zl_region_data(to), zl_region_data(from), LENGTH) == 0);
    EXPECT(zl_post_send(client, from, 0, 5, NULL, &sent) == ZL_OK);
    EXPECT(done(server, received).length == 5);
    EXPECT(memcmp(zl_region_data(other), zl_region_data(from), 5) == 0);
    done(client, sent);
    zl_region_free(other);

    /* A message. */
    REFUSED(zl_post_message(client, NULL, 1, NULL, 0, 0, NULL, &sent));
    EXPECT(zl_post_message_recv(server, to, 0, LENGTH, NULL, &received) == ZL_OK);
    EXPECT(zl_post_message(client, "control", 7, from, 10, 20, NULL, &sent) == ZL_OK);
    done(client, sent);
    completion = done(server, received);
    EXPECT(completion.control_length == 7 && memcmp(completion.control, "control", 7) == 0);
    EXPECT(completion.length == 20);
    EXPECT(memcmp(zl_region_data(to), (char *)zl_region_data(from) + 10, 20) == 0);

    /* Memory, by key and by name, by many threads; the peer is told; then it is taken back. */
    EXPECT(zl_region_new(1 << 20, &memory) == ZL_OK);
    EXPECT(zl_exported_new(memory, 0, 1 << 20, &exported) == ZL_OK);
    EXPECT(zl_export_named(server, "memory", exported, ALL, &key) == ZL_OK);
    EXPECT(zl_post_open_region(client, "memory", ALL, NULL, &sent) == ZL_OK);
    completion = done(client, sent);
    EXPECT(completion.kind == ZL_KIND_OPEN && memcmp(&completion.region, &key, sizeof key) == 0);
    struct poster posters[THREADS];
    pthread_t threads[THREADS];
    for (uint64_t n = 0; n < THREADS; n++) {
        posters[n] = (struct poster){client, key, n};
        EXPECT(pthread_create(&threads[n], NULL, post_from_a_thread, &posters[n]) == 0);
    }
    for (int n = 0; n < THREADS; n++)
        EXPECT(pthread_join(threads[n], NULL) == 0);
    EXPECT(((uint64_t *)zl_region_data(memory))[0] == 2 * THREADS * EACH);
    for (size_t n = 0; n < THREADS * EACH * 64; n++)
        EXPECT(((char *)zl_region_data(memory))[4096 + n] == (char)(n / 64 / EACH + 1));
    const zl_work tell = {.flags = ZL_WORK_IMMEDIATE, .immediate = 4711};
    EXPECT(next_immediate(server, 1, &immediate) == ZL_TIMEOUT);
    EXPECT(zl_post_put(client, &key, 128, from, 0, 8, &tell, &sent) == ZL_OK);
    EXPECT(next_immediate(server, -1, &immediate) == ZL_OK && immediate == 4711);
    done(client, sent);
    EXPECT(zl_post_get(client, &key, 128, to, 0, 8, NULL, &received) == ZL_OK);
    done(client, received);
    EXPECT(memcmp(zl_region_data(to), zl_region_data(from), 8) == 0);
    parts(client, server, &key);
    any_of_many(client, server);
    any_completion(client, server, &key);
    refusals(client);
    const zl_work later = {.flags = ZL_WORK_IMMEDIATE, .immediate = 4712};
    EXPECT(zl_post_put(client, &key, 128, from, 0, 8, &later, &sent) == ZL_OK);
    done(client, sent);
    EXPECT(zl_revoke(server, &key) == ZL_OK);
    REFUSED(zl_revoke(server, &key));
    EXPECT(zl_post_put(client, &key, 0, from, 0, 8, NULL, &sent) == ZL_OK);
    EXPECT(zl_wait_for(client, sent, 20000, &completion) == ZL_OK);
    EXPECT(completion.status == ZL_ERROR_REVOKED || completion.status == ZL_ERROR_UNKNOWN);
    EXPECT(zl_export(server, exported, ZL_RIGHT_READ, &key) == ZL_OK);

    /* The end: what was posted is sent, and what waits is told. */
    EXPECT(zl_post_recv(server, to, 0, LENGTH, NULL, &received) == ZL_OK);
    EXPECT(zl_post_send(client, from, 0, 100, NULL, &sent) == ZL_OK);
    EXPECT(zl_close(client) == ZL_OK);
    EXPECT(done(server, received).length == 100);
    EXPECT(zl_post_recv(server, to, 0, LENGTH, NULL, &received) == ZL_OK);
    EXPECT(zl_wait_for(server, received, 20000, &completion) == ZL_OK);
    EXPECT(completion.status == ZL_ERROR_CLOSED && completion.id == received);
    EXPECT(zl_post_recv(server, to, 0, LENGTH, &(zl_work){.context = 9}, &received) == ZL_OK);
    EXPECT(next_immediate(server, -1, &immediate) == ZL_OK && immediate == 4712);
    EXPECT(zl_wait_for(server, received, 20000, &completion) == ZL_OK);
    EXPECT(completion.status == ZL_ERROR_CLOSED && completion.context == 9);
    EXPECT(next_immediate(server, -1, &immediate) == ZL_ERROR_CLOSED);
    zl_connection_free(server);
    zl_endpoint_free(endpoint);
    zl_exported_free(exported);
    zl_region_free(memory);
    zl_region_free(from);
    zl_region_free(to);
}

/* Every peer of a worker makes the key of numbered memory, and so does the peer of one connection. */
static void numbered(zl_worker *thread, zl_connection **clients, zl_connection **servers, zl_exported *exported)
{
    uint64_t sent;
    zl_region *from;
    zl_completion completion;
    zl_key all, one;

    EXPECT(zl_region_new(8, &from) == ZL_OK);
    REFUSED(zl_worker_export_numbered(thread, 1 << 24, exported, ALL));
    REFUSED(zl_worker_export_numbered(NULL, 5, exported, ALL));
    EXPECT(zl_worker_export_numbered(thread, 5, exported, ALL) == ZL_OK);
    REFUSED(zl_worker_export_numbered(thread, 5, exported, ALL));
    EXPECT(zl_export_numbered(servers[0], 6, exported, ALL, &one) == ZL_OK);
    EXPECT(zl_key_numbered(5, 16, &all) == ZL_OK);
    for (int n = 0; n < 2; n++) {
        EXPECT(zl_post_put(clients[n], &all, 8 * n, from, 0, 8, NULL, &sent) == ZL_OK);
        done(clients[n], sent);
        EXPECT(zl_post_put(clients[n], &one, 16, from, 0, 8, NULL, &sent) == ZL_OK);
        EXPECT(zl_wait_for(clients[n], sent, 20000, &completion) == ZL_OK);
        EXPECT(completion.status == (n == 0 ? ZL_OK : ZL_ERROR_UNKNOWN));
    }
    EXPECT(zl_worker_revoke_number(thread, 5) == ZL_OK);
    REFUSED(zl_worker_revoke_number(thread, 5));
    EXPECT(zl_post_put(clients[1], &all, 0, from, 0, 8, NULL, &sent) == ZL_OK);
    EXPECT(zl_wait_for(clients[1], sent, 20000, &completion) == ZL_OK && completion.status == ZL_ERROR_UNKNOWN);
    zl_region_free(from);
}

/* A connection goes from one thread to another, by way of this one; the endpoint's export ends for it alone. */
static void changes_hands(zl_worker *thread)
{
    zl_worker *other = spawned();
    zl_endpoint *endpoint;
    zl_connection *clients[2], *servers[2], *adopted;
    zl_connection *released;
    uint64_t sent, received;
    zl_completion completion;
    zl_region *from, *to, *memory;
    zl_exported *exported;
    zl_key keys[2], key;
    char address[ZL_ADDRESS_LENGTH];

    EXPECT(zl_region_new(64, &from) == ZL_OK && zl_region_new(64, &to) == ZL_OK);
    EXPECT(zl_region_new(64, &memory) == ZL_OK);
    fill(from, 5);
    EXPECT(zl_exported_new(memory, 0, 64, &exported) == ZL_OK);
    EXPECT(zl_worker_listen(thread, "127.0.0.1:0", NULL, &endpoint) == ZL_OK);
    EXPECT(zl_endpoint_export(endpoint, "memory", exported, ALL) == ZL_OK);
    EXPECT(zl_endpoint_local_addr(endpoint, address, sizeof address) == ZL_OK);
    for (int n = 0; n < 2; n++) {
        EXPECT(zl_worker_connect(thread, address, NULL, &clients[n]) == ZL_OK);
        EXPECT(zl_endpoint_accept(endpoint, 20000, &servers[n]) == ZL_OK);
        EXPECT(zl_post_open_region(clients[n], "memory", ALL, NULL, &sent) == ZL_OK);
        keys[n] = done(clients[n], sent).region;
    }
    numbered(thread, clients, servers, exported);
    EXPECT(zl_revoke_region(servers[0], exported) == ZL_OK);
    REFUSED(zl_revoke_region(servers[0], exported));
    for (int n = 0; n < 2; n++) {
        EXPECT(zl_post_put(clients[n], &keys[n], 8 * n, from, 8 * n, 8, NULL, &sent) == ZL_OK);
        EXPECT(zl_wait_for(clients[n], sent, 20000, &completion) == ZL_OK);
        EXPECT((completion.status == ZL_OK) == (n == 1));
    }
    EXPECT(((uint64_t *)zl_region_data(memory))[0] == 0);
    EXPECT(((uint64_t *)zl_region_data(memory))[1] == ((uint64_t *)zl_region_data(from))[1]);

    EXPECT(zl_post_recv(servers[0], to, 0, 64, NULL, &received) == ZL_OK);
    REFUSED(zl_release(servers[0], NULL));
    EXPECT(zl_release(servers[0], &released) == ZL_ERROR_BUSY);
    EXPECT(zl_post_send(clients[0], from, 0, 64, NULL, &sent) == ZL_OK);
    done(clients[0], sent);
    done(servers[0], received);
    EXPECT(zl_release(servers[0], &released) == ZL_OK);
    EXPECT(zl_release(servers[0], &released) == ZL_ERROR_CLOSED);
    zl_connection_free(servers[0]);

    EXPECT(zl_revoke_region(released, exported) == ZL_ERROR_ARGUMENT);
    EXPECT(zl_export(released, exported, ALL, &key) == ZL_OK);
    EXPECT(zl_export_named(released, "again", exported, ALL, &key) == ZL_OK);
    EXPECT(zl_revoke_region(released, exported) == ZL_OK);
    REFUSED(zl_revoke_region(released, exported));
    REFUSED(zl_revoke(released, &key));

    EXPECT(zl_worker_adopt(other, released, &adopted) == ZL_OK);
    memset(zl_region_data(to), 0, 64);
    EXPECT(zl_post_recv(adopted, to, 0, 64, NULL, &received) == ZL_OK);
    EXPECT(zl_post_send(clients[0], from, 0, 64, NULL, &sent) == ZL_OK);
    done(clients[0], sent);
    EXPECT(done(adopted, received).length == 64);
    EXPECT(memcmp(zl_region_data(to), zl_region_data(from), 64) == 0);
    EXPECT(zl_exported_revoke(exported) == ZL_OK);
    EXPECT(zl_revoke_region(servers[1], exported) == ZL_ERROR_REVOKED);

    EXPECT(zl_worker_stop(other) == ZL_OK);
    zl_connection_free(adopted);
    zl_connection_free(servers[1]);
    zl_connection_free(clients[0]);
    zl_connection_free(clients[1]);
    zl_endpoint_free(endpoint);
    zl_exported_free(exported);
    zl_region_free(memory);
    zl_region_free(from);
    zl_region_free(to);
}

/* What a worker had before its thread goes on by the same handles; and the process's worker, which nothing ends. */
static void late(void)
{
    enum { TURNS = 10000 };
    zl_worker *worker, *process, *again;
    zl_endpoint *endpoint, *listening;
    zl_connection *client, *server, *late, *accepted, *lost;
    uint64_t sent, received;
    zl_region *region;
    zl_event event;
    zl_completion completion;
    size_t count;
    char address[ZL_ADDRESS_LENGTH], there[ZL_ADDRESS_LENGTH];
    int connected = 0;

    EXPECT(zl_worker_background(&process) == ZL_OK && zl_worker_background(&again) == ZL_OK);
    EXPECT(zl_worker_listen(process, "127.0.0.1:0", NULL, &listening) == ZL_OK);
    EXPECT(zl_endpoint_local_addr(listening, there, sizeof there) == ZL_OK);

    EXPECT(zl_region_new(8, &region) == ZL_OK);
    EXPECT(zl_worker_new(&worker) == ZL_OK);
    EXPECT(zl_worker_listen(worker, "127.0.0.1:0", NULL, &endpoint) == ZL_OK);
    EXPECT(zl_endpoint_local_addr(endpoint, address, sizeof address) == ZL_OK);
    REFUSED(zl_endpoint_accept(endpoint, 0, &lost));
    EXPECT(zl_worker_connect(worker, there, NULL, &client) == ZL_OK);
    /* Not made yet; then an event; then a request. */
    EXPECT(zl_worker_spawn(worker) == ZL_ERROR_BUSY);
    for (int turns = 0; turns < TURNS && !connected; turns++) {
        EXPECT(zl_worker_wait(worker, 100) >= 0);
        EXPECT(zl_worker_spawn(worker) == ZL_ERROR_BUSY);
        if (zl_worker_events(worker, &event, 1, &count) == ZL_OK)
            connected = event.kind == ZL_EVENT_CONNECTED && event.connection == client;
    }
    EXPECT(connected);
    EXPECT(zl_endpoint_accept(listening, 20000, &server) == ZL_OK);
    EXPECT(zl_post_recv(client, region, 0, 4, NULL, &received) == ZL_OK);
    EXPECT(zl_worker_spawn(worker) == ZL_ERROR_BUSY);
    EXPECT(zl_cancel(client, received) == ZL_OK);
    EXPECT(zl_worker_spawn(worker) == ZL_ERROR_BUSY);
    EXPECT(zl_worker_wait(worker, 20000) == ZL_OK);
    EXPECT(zl_worker_spawn(worker) == ZL_ERROR_BUSY);
    EXPECT(zl_worker_events(worker, &event, 1, &count) == ZL_OK);
    EXPECT(event.kind == ZL_EVENT_COMPLETED && event.completion.id == received);
    REFUSED(zl_wait(client, 0, &completion));
    EXPECT(zl_worker_spawn(worker) == ZL_OK);

    EXPECT(zl_worker_connect(again, address, NULL, &late) == ZL_OK);
    EXPECT(zl_endpoint_accept(endpoint, 20000, &accepted) == ZL_OK);
    zl_connection *both[][2] = {{client, server}, {server, client}, {accepted, late}};
    for (int n = 0; n < 3; n++) {
        EXPECT(zl_post_recv(both[n][1], region, 4, 4, NULL, &received) == ZL_OK);
        EXPECT(zl_post_send(both[n][0], region, 0, 4, NULL, &sent) == ZL_OK);
        done(both[n][0], sent);
        EXPECT(done(both[n][1], received).length == 4);
    }
    zl_connection_free(client);
    zl_connection_free(server);
    zl_connection_free(accepted);
    zl_connection_free(late);
    zl_endpoint_free(endpoint);
    zl_endpoint_free(listening);
    EXPECT(zl_worker_stop(worker) == ZL_OK);
    REFUSED(zl_worker_stop(again));
    zl_worker_free(again);
    /* It goes on. */
    EXPECT(zl_worker_listen(process, "127.0.0.1:0", NULL, &listening) == ZL_OK);
    zl_endpoint_free(listening);
    zl_worker_free(process);
    zl_region_free(region);
}

/* A connection that is freed sends what was posted. */
static void freed(zl_worker *thread)
{
    enum { LONG = 8 << 20 };
    zl_endpoint *endpoint;
    zl_connection *client, *server;
    uint64_t sent, received;
    zl_region *from, *to;
    char address[ZL_ADDRESS_LENGTH];

    EXPECT(zl_region_new(LONG, &from) == ZL_OK && zl_region_new(LONG, &to) == ZL_OK);
    fill(from, 7);
    EXPECT(zl_worker_listen(thread, "127.0.0.1:0", NULL, &endpoint) == ZL_OK);
    EXPECT(zl_endpoint_local_addr(endpoint, address, sizeof address) == ZL_OK);
    EXPECT(zl_worker_connect(thread, address, NULL, &client) == ZL_OK);
    EXPECT(zl_endpoint_accept(endpoint, 20000, &server) == ZL_OK);
    EXPECT(zl_post_send(client, from, 0, LONG, NULL, &sent) == ZL_OK);
    zl_connection_free(client);
    zl_region_free(from);
    EXPECT(zl_post_recv(server, to, 0, LONG, NULL, &received) == ZL_OK);
    EXPECT(done(server, received).length == LONG);
    zl_connection_free(server);
    zl_endpoint_free(endpoint);
    zl_region_free(to);
}

/* Messages that take memory of a pool come to those who wait for any completion; the last before the end. */
static void pooled(zl_worker *thread)
{
    zl_pool *pool, *other;
    zl_endpoint *endpoint;
    zl_connection *clients[2], *servers[2];
    zl_region *memory, *message;
    zl_completion completion;
    uint64_t sent;
    char address[ZL_ADDRESS_LENGTH];

    EXPECT(zl_pool_new(&pool) == ZL_OK && zl_pool_new(&other) == ZL_OK);
    EXPECT(zl_region_new(8 * 1024, &memory) == ZL_OK && zl_region_new(1024, &message) == ZL_OK);
    for (uint64_t n = 0; n < 8; n++)
        EXPECT(zl_pool_add(pool, memory, n * 1024, 1024, 100 + n) == ZL_OK);
    EXPECT(zl_worker_listen(thread, "127.0.0.1:0", NULL, &endpoint) == ZL_OK);
    EXPECT(zl_endpoint_local_addr(endpoint, address, sizeof address) == ZL_OK);
    for (int n = 0; n < 2; n++) {
        EXPECT(zl_worker_connect(thread, address, NULL, &clients[n]) == ZL_OK);
        EXPECT(zl_endpoint_accept(endpoint, 20000, &servers[n]) == ZL_OK);
    }
    EXPECT(zl_set_receive_pool(servers[0], pool) == ZL_OK);
    REFUSED(zl_set_receive_pool(servers[0], other));
    EXPECT(zl_worker_share_receives(thread, pool) == ZL_OK); /* the second takes of it now */
    REFUSED(zl_worker_share_receives(thread, other));
    EXPECT(zl_wait(servers[0], 0, &completion) == ZL_TIMEOUT);
    for (int n = 0; n < 6; n++) {
        fill(message, (unsigned char)n);
        EXPECT(zl_post_message(clients[n % 2], "of a pool", 9, message, 0, 1024, NULL, &sent) == ZL_OK);
        done(clients[n % 2], sent);
        EXPECT(zl_wait(servers[n % 2], 20000, &completion) == ZL_OK && completion.status == ZL_OK);
        EXPECT(completion.kind == ZL_KIND_MESSAGE_RECEIVED && completion.length == 1024);
        EXPECT(completion.control_length == 9 && memcmp(completion.control, "of a pool", 9) == 0);
        EXPECT(completion.context >= 100 && completion.context < 108);
        const char *place = (char *)zl_region_data(memory) + (completion.context - 100) * 1024;
        EXPECT(memcmp(place, zl_region_data(message), 1024) == 0);
    }
    /* Two that nobody took, and the end behind them. */
    for (int n = 0; n < 2; n++) {
        EXPECT(zl_post_message(clients[0], NULL, 0, message, 0, 7, NULL, &sent) == ZL_OK);
        done(clients[0], sent);
    }
    EXPECT(zl_close(clients[0]) == ZL_OK);
    for (int n = 0; n < 2; n++)
        EXPECT(zl_wait(servers[0], 20000, &completion) == ZL_OK && completion.length == 7);
    EXPECT(zl_wait(servers[0], 20000, &completion) == ZL_ERROR_CLOSED);
    zl_connection_free(clients[1]);
    zl_connection_free(servers[0]);
    zl_connection_free(servers[1]);
    zl_endpoint_free(endpoint);
    zl_pool_free(pool);
    zl_pool_free(other);
    zl_region_free(memory);
    zl_region_free(message);
}

static void count(void *memory, void *context)
{
    (void)memory;
    ++*(int *)context;
}

/* A worker that is gone refuses, in words, and has given wrapped memory back. */
static void gone(void)
{
    zl_worker *thread = spawned();
    zl_endpoint *endpoint;
    zl_connection *client, *server;
    uint64_t pending;
    zl_region *region, *wrapped;
    zl_completion completion;
    char address[ZL_ADDRESS_LENGTH];
    char memory[8];
    int released = 0;

    EXPECT(zl_region_new(8, &region) == ZL_OK);
    EXPECT(zl_region_wrap(memory, sizeof memory, count, &released, &wrapped) == ZL_OK);
    EXPECT(zl_worker_listen(thread, "127.0.0.1:0", NULL, &endpoint) == ZL_OK);
    EXPECT(zl_endpoint_local_addr(endpoint, address, sizeof address) == ZL_OK);
    EXPECT(zl_worker_connect(thread, address, NULL, &client) == ZL_OK);
    EXPECT(zl_endpoint_accept(endpoint, 20000, &server) == ZL_OK);
    EXPECT(zl_post_recv(server, wrapped, 0, sizeof memory, NULL, &pending) == ZL_OK);
    zl_region_free(wrapped);
    EXPECT(released == 0);
    zl_worker_free(thread);
    EXPECT(released == 1);
    EXPECT(zl_post_recv(client, region, 0, 8, NULL, &pending) == ZL_OK);
    EXPECT(zl_wait_for(client, pending, -1, &completion) == ZL_OK && completion.status == ZL_ERROR_CLOSED);
    REFUSED(zl_wait_for(client, pending, -1, &completion));
    EXPECT(zl_endpoint_accept(endpoint, -1, &server) == ZL_ERROR_CLOSED);
    EXPECT(zl_close(client) == ZL_ERROR_CLOSED);
    zl_connection_free(server);
    zl_endpoint_free(endpoint);
    zl_region_free(region);
}

int main(void)
{
    arguments();
    passive();
    late();
    zl_worker *thread = spawned();
    handles(thread);
    changes_hands(thread);
    freed(thread);
    pooled(thread);
    EXPECT(zl_worker_stop(thread) == ZL_OK);
    gone();
    return EXIT_SUCCESS;
}
