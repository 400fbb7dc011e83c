/* Tests a worker in its own thread: it serves memory while its owner makes no call, and any thread posts to its
   handles. Run by tests/install.rs. */
#include "expect.h"
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <zerolane.h>

#define REFUSED(call) EXPECT((call) == ZL_ERROR_ARGUMENT)

enum { LENGTH = 100000, THREADS = 4, EACH = 50 };

static const uint32_t ALL = ZL_RIGHT_READ | ZL_RIGHT_WRITE | ZL_RIGHT_ATOMIC;

static zl_worker_thread *spawned(void)
{
    zl_worker *worker;
    zl_worker_thread *thread;

    EXPECT(zl_worker_new(&worker) == ZL_OK);
    EXPECT(zl_worker_spawn(worker, &thread) == ZL_OK);
    return thread;
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
    zl_worker_thread *thread;
    zl_endpoint_handle *endpoint;
    zl_handle *connection;
    zl_connection *released;
    zl_pending *pending;
    zl_completion completion;
    zl_account account;
    zl_key key = {{0}};
    uint32_t immediate;
    uint64_t number;
    size_t count;
    zl_set *set;
    zl_status reason;
    char text[ZL_ADDRESS_LENGTH];

    REFUSED(zl_worker_spawn(NULL, &thread));
    REFUSED(zl_worker_background(NULL));
    REFUSED(zl_worker_endpoint_handle(NULL, 1, &endpoint));
    REFUSED(zl_worker_connection_handle(NULL, 1, &connection));
    REFUSED(zl_worker_stop(NULL));
    REFUSED(zl_worker_thread_listen(NULL, "127.0.0.1:0", NULL, &endpoint));
    REFUSED(zl_worker_thread_connect(NULL, "127.0.0.1:1", NULL, &connection));
    REFUSED(zl_worker_thread_adopt(NULL, NULL, &connection));
    REFUSED(zl_endpoint_handle_local_addr(NULL, text, sizeof text));
    REFUSED(zl_endpoint_handle_accept(NULL, 0, &connection));
    REFUSED(zl_endpoint_handle_export(NULL, "name", NULL, ALL));
    REFUSED(zl_handle_send(NULL, NULL, 0, 0, NULL, &pending));
    REFUSED(zl_handle_send_vectored(NULL, NULL, 0, NULL, &pending));
    REFUSED(zl_handle_recv(NULL, NULL, 0, 0, &pending));
    REFUSED(zl_handle_send_message(NULL, text, 1, NULL, 0, 0, &pending));
    REFUSED(zl_handle_send_message_vectored(NULL, text, 1, NULL, 0, &pending));
    REFUSED(zl_handle_recv_message(NULL, NULL, 0, 0, &pending));
    REFUSED(zl_handle_put(NULL, &key, 0, NULL, 0, 0, NULL, &pending));
    REFUSED(zl_handle_get(NULL, &key, 0, NULL, 0, 0, NULL, &pending));
    REFUSED(zl_handle_put_vectored(NULL, &key, NULL, 0, NULL, &pending));
    REFUSED(zl_handle_get_vectored(NULL, &key, NULL, 0, NULL, &pending));
    REFUSED(zl_handle_arrived(NULL, NULL, &number));
    REFUSED(zl_handle_wait_arrived(NULL, NULL, 0, 0, &number));
    REFUSED(zl_handle_announced(NULL, 0, &number));
    REFUSED(zl_handle_fetch_op(NULL, &key, 0, ZL_FETCH_ADD, 1, 0, &pending));
    REFUSED(zl_handle_open_region(NULL, "name", ALL, &pending));
    REFUSED(zl_handle_export(NULL, NULL, ALL, &key));
    REFUSED(zl_handle_export_named(NULL, "name", NULL, ALL, &key));
    REFUSED(zl_handle_revoke(NULL, &key));
    REFUSED(zl_handle_revoke_region(NULL, NULL));
    REFUSED(zl_handle_release(NULL, &released));
    REFUSED(zl_handle_immediate(NULL, 0, &immediate));
    REFUSED(zl_handle_peer_addr(NULL, text, sizeof text));
    REFUSED(zl_handle_peer_key(NULL, text, sizeof text));
    REFUSED(zl_handle_account(NULL, &account));
    REFUSED(zl_handle_closed(NULL, 0, &reason));
    REFUSED(zl_handle_on_closed(NULL, ended, NULL));
    REFUSED(zl_handle_account_json(NULL, NULL, 0, NULL));
    REFUSED(zl_handle_close(NULL));
    REFUSED(zl_pending_wait(NULL, 0, &completion));
    REFUSED(zl_set_new(NULL));
    EXPECT(zl_set_new(&set) == ZL_OK);
    REFUSED(zl_set_add(set, NULL, 0));
    REFUSED(zl_set_add(NULL, NULL, 0));
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
    zl_worker_thread_free(NULL);
    zl_endpoint_handle_free(NULL);
    zl_handle_free(NULL);
    zl_pending_free(NULL);
}

/* This thread, the owner's, makes no call between the peer's: also by an endpoint made before the worker had a
   thread. */
static void passive(void)
{
    zl_worker *worker;
    zl_worker_thread *thread;
    zl_region *memory, *bytes, *back;
    zl_exported *exported;
    zl_connection *peer;
    zl_key key;
    uint64_t endpoint, before;
    char address[ZL_ADDRESS_LENGTH];

    EXPECT(zl_region_new(1 << 20, &memory) == ZL_OK);
    EXPECT(zl_region_new(LENGTH, &bytes) == ZL_OK && zl_region_new(LENGTH, &back) == ZL_OK);
    EXPECT(zl_exported_new(memory, 0, 1 << 20, &exported) == ZL_OK);
    EXPECT(zl_worker_new(&worker) == ZL_OK);
    EXPECT(zl_worker_listen(worker, "127.0.0.1:0", NULL, &endpoint) == ZL_OK);
    EXPECT(zl_worker_export(worker, endpoint, "memory", exported, ALL) == ZL_OK);
    EXPECT(zl_worker_local_addr(worker, endpoint, address, sizeof address) == ZL_OK);
    REFUSED(zl_worker_spawn(worker, NULL));
    EXPECT(zl_worker_spawn(worker, &thread) == ZL_OK);

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
    EXPECT(zl_worker_stop(thread) == ZL_OK);
    zl_exported_free(exported);
    zl_region_free(back);
    zl_region_free(bytes);
    zl_region_free(memory);
}

/* The end of a request that succeeds. */
static zl_completion done(zl_pending *pending)
{
    zl_completion completion;

    EXPECT(zl_pending_wait(pending, 20000, &completion) == ZL_OK);
    EXPECT(completion.status == ZL_OK);
    REFUSED(zl_pending_wait(pending, 0, &completion));
    zl_pending_free(pending);
    return completion;
}

struct poster {
    zl_handle *connection;
    zl_key key;
    uint64_t number;
};

static void *post_from_a_thread(void *argument)
{
    const struct poster *poster = argument;
    zl_pending *puts[EACH], *adds[EACH];
    zl_region *region;

    EXPECT(zl_region_new(EACH * 64, &region) == ZL_OK);
    memset(zl_region_data(region), (int)poster->number + 1, EACH * 64);
    for (uint64_t n = 0; n < EACH; n++) {
        const zl_work how = {.context = n}, unsignalled = {.flags = ZL_WORK_UNSIGNALLED};
        EXPECT(zl_handle_put(poster->connection, &poster->key, 4096 + (poster->number * EACH + n) * 64,
                             region, n * 64, 64, &how, &puts[n]) == ZL_OK);
        REFUSED(zl_handle_put(poster->connection, &poster->key, 0, region, 0, 64, &unsignalled, &adds[n]));
        EXPECT(zl_handle_fetch_op(poster->connection, &poster->key, 0, ZL_FETCH_ADD, 2, 0, &adds[n]) ==
               ZL_OK);
    }
    for (uint64_t n = 0; n < EACH; n++) {
        EXPECT(done(puts[n]).context == n);
        EXPECT(done(adds[n]).value % 2 == 0);
    }
    zl_region_free(region);
    return NULL;
}

/* Requests of several pieces; what was announced, and what of it has arrived. */
static void parts(zl_handle *client, zl_handle *server, const zl_key *key)
{
    enum { LONG = 32 << 20 };
    zl_pending *sent, *received, *many;
    zl_completion completion;
    zl_region *from, *to;
    uint64_t length, arrived = 0;

    EXPECT(zl_region_new(LONG, &from) == ZL_OK && zl_region_new(LONG, &to) == ZL_OK);
    fill(from, 3);
    const unsigned char *source = zl_region_data(from), *target = zl_region_data(to);
    const zl_piece put[] = {{500000, from, 10, 3000}, {600000, from, 5000, 1}};
    const zl_piece get[] = {{500000, to, 0, 3000}, {600000, to, 3000, 1}, {500001, to, 4000, 5}};
    EXPECT(zl_handle_put_vectored(client, key, put, 2, &(zl_work){.context = 5}, &sent) == ZL_OK);
    completion = done(sent);
    EXPECT(completion.context == 5 && completion.length == 3001);
    EXPECT(zl_handle_get_vectored(client, key, get, 3, NULL, &received) == ZL_OK);
    EXPECT(done(received).length == 3006);
    EXPECT(memcmp(target, source + 10, 3000) == 0 && target[3000] == source[5000]);
    EXPECT(memcmp(target + 4000, source + 11, 5) == 0);
    REFUSED(zl_handle_get_vectored(client, key, (zl_piece[]){{0, NULL, 0, 1}}, 1, NULL, &many));
    EXPECT(zl_handle_put_vectored(client, key, NULL, 0, NULL, &many) == ZL_OK);
    EXPECT(zl_pending_wait(many, 20000, &completion) < 0);
    zl_pending_free(many);

    /* One Transfer, and one message, of parts that overlap. */
    const zl_part gathered[] = {{from, 7, 100}, {from, 50, 40000}, {from, 0, 0}, {from, 9, 1}};
    const size_t together = 40101;
    for (int message = 0; message < 2; message++) {
        memset(zl_region_data(to), 0, together + 1);
        if (message) {
            EXPECT(zl_handle_recv_message(server, to, 0, together + 1, &received) == ZL_OK);
            EXPECT(zl_handle_send_message_vectored(client, "4", 1, gathered, 4, &sent) == ZL_OK);
        } else {
            EXPECT(zl_handle_recv(server, to, 0, together + 1, &received) == ZL_OK);
            EXPECT(zl_handle_send_vectored(client, gathered, 4, &(zl_work){.context = 6}, &sent) == ZL_OK);
        }
        completion = done(sent);
        EXPECT(completion.length == together && completion.context == (message ? 0 : 6));
        completion = done(received);
        EXPECT(completion.length == together && completion.control_length == (uint32_t)message);
        EXPECT(memcmp(target, source + 7, 100) == 0 && memcmp(target + 100, source + 50, 40000) == 0);
        EXPECT(target[40100] == source[9] && target[together] == 0);
    }
    REFUSED(zl_handle_send_vectored(client, (zl_part[]){{NULL, 0, 1}}, 1, NULL, &sent));
    REFUSED(zl_handle_send_vectored(client, NULL, 1, NULL, &sent));
    REFUSED(zl_handle_send_message_vectored(client, "4", 1, (zl_part[]){{from, LONG, 1}}, 1, &sent));

    EXPECT(zl_handle_announced(server, 1, &length) == ZL_TIMEOUT);
    /* All may be there before this thread asks, but not each time. */
    int seen = 0;
    for (int tries = 0; tries < 10 && !seen; tries++) {
        arrived = 0;
        memset(zl_region_data(to), 0, LONG);
        EXPECT(zl_handle_send(client, from, 0, LONG, NULL, &sent) == ZL_OK);
        EXPECT(zl_handle_announced(server, 20000, &length) == ZL_OK && length == LONG);
        EXPECT(zl_handle_recv(server, to, 0, LONG, &received) == ZL_OK);
        zl_status status = zl_handle_wait_arrived(server, received, 0, 20000, &arrived);
        seen = status == ZL_OK;
        EXPECT(seen ? arrived > 0 && arrived <= LONG : status == ZL_ERROR_ARGUMENT);
        EXPECT(memcmp(target, source, arrived) == 0);
        status = zl_handle_arrived(server, received, &length);
        EXPECT(status == ZL_ERROR_ARGUMENT || (status == ZL_OK && length >= arrived));
        REFUSED(zl_handle_arrived(client, received, &length));
        EXPECT(zl_pending_wait(received, 20000, &completion) == ZL_OK && completion.length == LONG);
        EXPECT(memcmp(target, source, LONG) == 0);
        REFUSED(zl_handle_arrived(server, received, &length));
        REFUSED(zl_handle_wait_arrived(server, received, 0, 20000, &length));
        zl_pending_free(received);
        done(sent);
    }
    EXPECT(seen);
    EXPECT(zl_handle_recv(server, to, 0, LONG, &received) == ZL_OK);
    EXPECT(zl_handle_arrived(server, received, &arrived) == ZL_OK && arrived == 0);
    EXPECT(zl_handle_wait_arrived(server, received, 0, 1, &arrived) == ZL_TIMEOUT);
    zl_pending_free(received);
    zl_region_free(from);
    zl_region_free(to);
}

/* Nothing is posted: a closed peer is told of, by a wait and by a call. */
static void end_of_an_idle_one(zl_worker_thread *thread, zl_endpoint_handle *endpoint, const char *address)
{
    struct end end = {0};
    zl_options *options;
    zl_handle *client, *server;
    zl_status reason;

    EXPECT(zl_options_new(&options) == ZL_OK);
    REFUSED(zl_options_set(options, ZL_OPTION_KEEP_ALIVE, 2));
    EXPECT(zl_options_set(options, ZL_OPTION_KEEP_ALIVE, 1) == ZL_OK);
    EXPECT(zl_worker_thread_connect(thread, address, options, &client) == ZL_OK);
    EXPECT(zl_endpoint_handle_accept(endpoint, -1, &server) == ZL_OK);
    zl_options_free(options);
    REFUSED(zl_handle_on_closed(client, NULL, &end));
    REFUSED(zl_handle_closed(client, 0, NULL));
    EXPECT(zl_handle_on_closed(client, ended, &end) == ZL_OK);
    EXPECT(zl_handle_closed(client, 1, &reason) == ZL_TIMEOUT && end.calls == 0);
    zl_handle_free(server);
    EXPECT(zl_handle_closed(client, 20000, &reason) == ZL_OK && reason == ZL_ERROR_CLOSED);
    /* It is over already: the call comes soon, and this second wait is behind it. */
    EXPECT(zl_handle_on_closed(client, ended, &end) == ZL_OK);
    EXPECT(zl_handle_closed(client, 20000, &reason) == ZL_OK);
    EXPECT(end.calls == 2 && end.reason == ZL_ERROR_CLOSED);
    zl_handle_free(client);
}

/* One thread waits for any of many requests, and sleeps on one descriptor. */
static void any_of_many(zl_handle *client, zl_handle *server)
{
    enum { MANY = 64 };
    zl_set *set;
    zl_pending *receives[MANY], *sent;
    zl_completion completion;
    zl_region *region;
    uint64_t token, tokens[MANY];
    size_t count, came = 0;
    int seen[MANY] = {0};

    EXPECT(zl_set_new(&set) == ZL_OK);
    EXPECT(zl_region_new(MANY, &region) == ZL_OK);
    for (uint64_t n = 0; n < MANY; n++) {
        EXPECT(zl_handle_recv(server, region, n, 1, &receives[n]) == ZL_OK);
        EXPECT(zl_set_add(set, receives[n], n) == ZL_OK);
    }
    struct pollfd watched = {.fd = zl_set_fd(set), .events = POLLIN};
    EXPECT(poll(&watched, 1, 0) == 0);
    EXPECT(zl_set_wait(set, 0, &token) == ZL_TIMEOUT && zl_set_wait(set, 1, &token) == ZL_TIMEOUT);
    EXPECT(zl_set_poll_batch(set, tokens, MANY, &count) == ZL_TIMEOUT && count == 0);
    for (int n = 0; n < MANY; n++) {
        EXPECT(zl_handle_send(client, region, 0, 1, NULL, &sent) == ZL_OK);
        done(sent);
    }
    while (came < MANY) {
        EXPECT(poll(&watched, 1, 20000) == 1);
        EXPECT(zl_set_poll_batch(set, tokens, MANY, &count) == ZL_OK && count > 0);
        for (size_t i = 0; i < count; i++) {
            EXPECT(tokens[i] < MANY && !seen[tokens[i]]);
            seen[tokens[i]] = 1;
            EXPECT(zl_pending_wait(receives[tokens[i]], 0, &completion) == ZL_OK);
            REFUSED(zl_set_add(set, receives[tokens[i]], 0));
            zl_pending_free(receives[tokens[i]]);
        }
        came += count;
    }
    EXPECT(poll(&watched, 1, 0) == 0);
    EXPECT(zl_set_signal(set, 4711) == ZL_OK);
    EXPECT(zl_set_wait(set, -1, &token) == ZL_OK && token == 4711);
    zl_region_free(region);
    zl_set_free(set);
}

static void handles(zl_worker_thread *thread)
{
    zl_endpoint_handle *endpoint;
    zl_handle *client, *server, *none;
    zl_pending *sent, *received, *given_up;
    zl_completion completion;
    zl_region *from, *to, *other, *memory;
    zl_exported *exported;
    zl_account account;
    zl_key key;
    uint32_t immediate;
    char text[ZL_ADDRESS_LENGTH];

    EXPECT(zl_worker_thread_listen(thread, "127.0.0.1:0", NULL, &endpoint) == ZL_OK);
    EXPECT(zl_endpoint_handle_accept(endpoint, 1, &none) == ZL_TIMEOUT);
    EXPECT(zl_endpoint_handle_local_addr(endpoint, text, sizeof text) == ZL_OK);
    end_of_an_idle_one(thread, endpoint, text);
    EXPECT(zl_worker_thread_connect(thread, text, NULL, &client) == ZL_OK);
    EXPECT(zl_endpoint_handle_accept(endpoint, -1, &server) == ZL_OK);
    EXPECT(zl_handle_peer_addr(client, text, sizeof text) == ZL_OK && strncmp(text, "127.", 4) == 0);
    EXPECT(zl_handle_peer_key(client, text, sizeof text) == ZL_OK && strncmp(text, "zl:", 3) == 0);
    EXPECT(zl_handle_account(client, &account) == ZL_OK && account.datagrams_sent > 0);
    char json[4096];
    size_t json_length = 0, needed = 0;
    EXPECT(zl_handle_account_json(client, json, sizeof json, &json_length) == ZL_OK);
    EXPECT(strlen(json) == json_length && json[0] == '{' && json[json_length - 1] == '}');
    EXPECT(strstr(json, "\"datagrams_sent\":") != NULL && strchr(json, '\n') == NULL);
    EXPECT(zl_handle_account_json(client, json, 10, &needed) == ZL_ERROR_ARGUMENT && needed > 1000);

    /* A Transfer; a receive that is given up loses none. */
    EXPECT(zl_region_new(LENGTH, &from) == ZL_OK && zl_region_new(LENGTH, &to) == ZL_OK);
    fill(from, 9);
    REFUSED(zl_handle_send(client, from, 1, LENGTH, NULL, &sent));
    REFUSED(zl_handle_send(client, from, 0, LENGTH, NULL, NULL));
    EXPECT(zl_handle_recv(server, to, 0, LENGTH, &given_up) == ZL_OK);
    EXPECT(zl_pending_wait(given_up, 0, &completion) == ZL_TIMEOUT);
    zl_pending_free(given_up);
    EXPECT(zl_handle_recv(server, to, 0, LENGTH, &received) == ZL_OK);
    EXPECT(zl_pending_wait(received, 0, &completion) == ZL_TIMEOUT);
    EXPECT(zl_handle_send(client, from, 0, LENGTH, &(zl_work){.context = 42}, &sent) == ZL_OK);
    EXPECT(done(sent).context == 42);
    EXPECT(done(received).length == LENGTH);
    EXPECT(memcmp(zl_region_data(to), zl_region_data(from), LENGTH) == 0);

    /* One given up when its Transfer had come: the next has the bytes, in its own memory, if there is room. */
    EXPECT(zl_region_new(LENGTH, &other) == ZL_OK);
    for (int lacks = 0; lacks < 2; lacks++) {
        EXPECT(zl_handle_recv(server, to, 0, LENGTH, &given_up) == ZL_OK);
        EXPECT(zl_handle_send(client, from, 0, LENGTH, NULL, &sent) == ZL_OK);
        done(sent);
        zl_pending_free(given_up);
        EXPECT(zl_handle_recv(server, other, 0, LENGTH - (size_t)lacks, &received) == ZL_OK);
        EXPECT(zl_pending_wait(received, 20000, &completion) == ZL_OK);
        EXPECT(completion.status == (lacks ? ZL_ERROR_TOO_LARGE : ZL_OK));
        EXPECT(completion.length == (lacks ? 0 : LENGTH));
        EXPECT(memcmp(zl_region_data(other), zl_region_data(from), LENGTH) == 0);
        zl_pending_free(received);
    }
    zl_region_free(other);

    /* A message. */
    REFUSED(zl_handle_send_message(client, NULL, 1, NULL, 0, 0, &sent));
    EXPECT(zl_handle_recv_message(server, to, 0, LENGTH, &received) == ZL_OK);
    EXPECT(zl_handle_send_message(client, "control", 7, from, 10, 20, &sent) == ZL_OK);
    done(sent);
    completion = done(received);
    EXPECT(completion.control_length == 7 && memcmp(completion.control, "control", 7) == 0);
    EXPECT(completion.length == 20);
    EXPECT(memcmp(zl_region_data(to), (char *)zl_region_data(from) + 10, 20) == 0);

    /* Memory, by key and by name, by many threads; the peer is told; then it is taken back. */
    EXPECT(zl_region_new(1 << 20, &memory) == ZL_OK);
    EXPECT(zl_exported_new(memory, 0, 1 << 20, &exported) == ZL_OK);
    EXPECT(zl_handle_export_named(server, "memory", exported, ALL, &key) == ZL_OK);
    EXPECT(zl_handle_open_region(client, "memory", ALL, &sent) == ZL_OK);
    completion = done(sent);
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
    EXPECT(zl_handle_immediate(server, 1, &immediate) == ZL_TIMEOUT);
    EXPECT(zl_handle_put(client, &key, 128, from, 0, 8, &tell, &sent) == ZL_OK);
    EXPECT(zl_handle_immediate(server, -1, &immediate) == ZL_OK && immediate == 4711);
    done(sent);
    EXPECT(zl_handle_get(client, &key, 128, to, 0, 8, NULL, &received) == ZL_OK);
    done(received);
    EXPECT(memcmp(zl_region_data(to), zl_region_data(from), 8) == 0);
    parts(client, server, &key);
    any_of_many(client, server);
    const zl_work later = {.flags = ZL_WORK_IMMEDIATE, .immediate = 4712};
    EXPECT(zl_handle_put(client, &key, 128, from, 0, 8, &later, &sent) == ZL_OK);
    done(sent);
    EXPECT(zl_handle_revoke(server, &key) == ZL_OK);
    REFUSED(zl_handle_revoke(server, &key));
    EXPECT(zl_handle_put(client, &key, 0, from, 0, 8, NULL, &sent) == ZL_OK);
    EXPECT(zl_pending_wait(sent, 20000, &completion) == ZL_OK);
    EXPECT(completion.status == ZL_ERROR_REVOKED || completion.status == ZL_ERROR_UNKNOWN);
    zl_pending_free(sent);
    EXPECT(zl_handle_export(server, exported, ZL_RIGHT_READ, &key) == ZL_OK);

    /* The end: what was posted is sent, and what waits is told. */
    EXPECT(zl_handle_recv(server, to, 0, LENGTH, &received) == ZL_OK);
    EXPECT(zl_handle_send(client, from, 0, 100, NULL, &sent) == ZL_OK);
    EXPECT(zl_handle_close(client) == ZL_OK);
    EXPECT(done(received).length == 100);
    done(sent);
    EXPECT(zl_handle_recv(server, to, 0, LENGTH, &received) == ZL_OK);
    zl_status status = zl_pending_wait(received, 20000, &completion);
    EXPECT(status == ZL_ERROR_CLOSED || completion.status == ZL_ERROR_CLOSED);
    zl_pending_free(received);
    EXPECT(zl_handle_immediate(server, -1, &immediate) == ZL_OK && immediate == 4712);
    EXPECT(zl_handle_immediate(server, -1, &immediate) == ZL_ERROR_CLOSED);
    zl_handle_free(server);
    zl_endpoint_handle_free(endpoint);
    zl_exported_free(exported);
    zl_region_free(memory);
    zl_region_free(from);
    zl_region_free(to);
}

/* Every peer of a worker makes the key of numbered memory, and so does the peer of one connection. */
static void numbered(zl_worker_thread *thread, zl_handle **clients, zl_handle **servers, zl_exported *exported)
{
    zl_pending *sent;
    zl_region *from;
    zl_completion completion;
    zl_key all, one;

    EXPECT(zl_region_new(8, &from) == ZL_OK);
    REFUSED(zl_worker_thread_export_numbered(thread, 1 << 24, exported, ALL));
    REFUSED(zl_worker_thread_export_numbered(NULL, 5, exported, ALL));
    EXPECT(zl_worker_thread_export_numbered(thread, 5, exported, ALL) == ZL_OK);
    REFUSED(zl_worker_thread_export_numbered(thread, 5, exported, ALL));
    EXPECT(zl_handle_export_numbered(servers[0], 6, exported, ALL, &one) == ZL_OK);
    EXPECT(zl_key_numbered(5, 16, &all) == ZL_OK);
    for (int n = 0; n < 2; n++) {
        EXPECT(zl_handle_put(clients[n], &all, 8 * n, from, 0, 8, NULL, &sent) == ZL_OK);
        done(sent);
        EXPECT(zl_handle_put(clients[n], &one, 16, from, 0, 8, NULL, &sent) == ZL_OK);
        EXPECT(zl_pending_wait(sent, 20000, &completion) == ZL_OK);
        EXPECT(completion.status == (n == 0 ? ZL_OK : ZL_ERROR_UNKNOWN));
        zl_pending_free(sent);
    }
    EXPECT(zl_worker_thread_revoke_number(thread, 5) == ZL_OK);
    REFUSED(zl_worker_thread_revoke_number(thread, 5));
    EXPECT(zl_handle_put(clients[1], &all, 0, from, 0, 8, NULL, &sent) == ZL_OK);
    EXPECT(zl_pending_wait(sent, 20000, &completion) == ZL_OK && completion.status == ZL_ERROR_UNKNOWN);
    zl_pending_free(sent);
    zl_region_free(from);
}

/* A connection goes from one thread to another, by way of this one; the endpoint's export ends for it alone. */
static void changes_hands(zl_worker_thread *thread)
{
    zl_worker_thread *other = spawned();
    zl_endpoint_handle *endpoint;
    zl_handle *clients[2], *servers[2], *adopted;
    zl_connection *released;
    zl_pending *sent, *received;
    zl_completion completion;
    zl_region *from, *to, *memory;
    zl_exported *exported;
    zl_key keys[2], key;
    char address[ZL_ADDRESS_LENGTH];

    EXPECT(zl_region_new(64, &from) == ZL_OK && zl_region_new(64, &to) == ZL_OK);
    EXPECT(zl_region_new(64, &memory) == ZL_OK);
    fill(from, 5);
    EXPECT(zl_exported_new(memory, 0, 64, &exported) == ZL_OK);
    EXPECT(zl_worker_thread_listen(thread, "127.0.0.1:0", NULL, &endpoint) == ZL_OK);
    EXPECT(zl_endpoint_handle_export(endpoint, "memory", exported, ALL) == ZL_OK);
    EXPECT(zl_endpoint_handle_local_addr(endpoint, address, sizeof address) == ZL_OK);
    for (int n = 0; n < 2; n++) {
        EXPECT(zl_worker_thread_connect(thread, address, NULL, &clients[n]) == ZL_OK);
        EXPECT(zl_endpoint_handle_accept(endpoint, 20000, &servers[n]) == ZL_OK);
        EXPECT(zl_handle_open_region(clients[n], "memory", ALL, &sent) == ZL_OK);
        keys[n] = done(sent).region;
    }
    numbered(thread, clients, servers, exported);
    EXPECT(zl_handle_revoke_region(servers[0], exported) == ZL_OK);
    REFUSED(zl_handle_revoke_region(servers[0], exported));
    for (int n = 0; n < 2; n++) {
        EXPECT(zl_handle_put(clients[n], &keys[n], 8 * n, from, 8 * n, 8, NULL, &sent) == ZL_OK);
        EXPECT(zl_pending_wait(sent, 20000, &completion) == ZL_OK);
        EXPECT((completion.status == ZL_OK) == (n == 1));
        zl_pending_free(sent);
    }
    EXPECT(((uint64_t *)zl_region_data(memory))[0] == 0);
    EXPECT(((uint64_t *)zl_region_data(memory))[1] == ((uint64_t *)zl_region_data(from))[1]);

    EXPECT(zl_handle_recv(servers[0], to, 0, 64, &received) == ZL_OK);
    REFUSED(zl_handle_release(servers[0], NULL));
    EXPECT(zl_handle_release(servers[0], &released) == ZL_ERROR_BUSY);
    EXPECT(zl_handle_send(clients[0], from, 0, 64, NULL, &sent) == ZL_OK);
    done(sent);
    done(received);
    EXPECT(zl_handle_release(servers[0], &released) == ZL_OK);
    EXPECT(zl_handle_release(servers[0], &released) == ZL_ERROR_CLOSED);
    zl_handle_free(servers[0]);

    EXPECT(zl_revoke_region(released, exported) == ZL_ERROR_ARGUMENT);
    EXPECT(zl_export(released, exported, ALL, &key) == ZL_OK);
    EXPECT(zl_export_named(released, "again", exported, ALL, &key) == ZL_OK);
    EXPECT(zl_revoke_region(released, exported) == ZL_OK);
    REFUSED(zl_revoke_region(released, exported));
    REFUSED(zl_revoke(released, &key));

    EXPECT(zl_worker_thread_adopt(other, released, &adopted) == ZL_OK);
    memset(zl_region_data(to), 0, 64);
    EXPECT(zl_handle_recv(adopted, to, 0, 64, &received) == ZL_OK);
    EXPECT(zl_handle_send(clients[0], from, 0, 64, NULL, &sent) == ZL_OK);
    done(sent);
    EXPECT(done(received).length == 64);
    EXPECT(memcmp(zl_region_data(to), zl_region_data(from), 64) == 0);
    EXPECT(zl_exported_revoke(exported) == ZL_OK);
    EXPECT(zl_handle_revoke_region(servers[1], exported) == ZL_ERROR_REVOKED);

    EXPECT(zl_worker_stop(other) == ZL_OK);
    zl_handle_free(adopted);
    zl_handle_free(servers[1]);
    zl_handle_free(clients[0]);
    zl_handle_free(clients[1]);
    zl_endpoint_handle_free(endpoint);
    zl_exported_free(exported);
    zl_region_free(memory);
    zl_region_free(from);
    zl_region_free(to);
}

/* Handles of what a worker had before its thread; and the process's worker, which nothing ends. */
static void late(void)
{
    enum { TURNS = 10000 };
    zl_worker *worker;
    zl_worker_thread *thread, *process, *again;
    zl_endpoint_handle *endpoint, *listening;
    zl_handle *client, *server, *late, *accepted, *none;
    zl_pending *sent, *received;
    zl_region *region;
    zl_event events[8];
    uint64_t number, connecting;
    size_t count;
    char address[ZL_ADDRESS_LENGTH], there[ZL_ADDRESS_LENGTH];
    int connected = 0;

    EXPECT(zl_worker_background(&process) == ZL_OK && zl_worker_background(&again) == ZL_OK);
    EXPECT(zl_worker_thread_listen(process, "127.0.0.1:0", NULL, &listening) == ZL_OK);
    EXPECT(zl_endpoint_handle_local_addr(listening, there, sizeof there) == ZL_OK);

    EXPECT(zl_worker_new(&worker) == ZL_OK);
    EXPECT(zl_worker_listen(worker, "127.0.0.1:0", NULL, &number) == ZL_OK);
    EXPECT(zl_worker_local_addr(worker, number, address, sizeof address) == ZL_OK);
    EXPECT(zl_worker_connect(worker, there, NULL, &connecting) == ZL_OK);
    EXPECT(zl_worker_connection_handle(worker, connecting, &none) == ZL_ERROR_CLOSED);
    for (int turns = 0; turns < TURNS && !connected; turns++) {
        EXPECT(zl_worker_wait(worker, 100) >= 0);
        if (zl_worker_events(worker, events, 8, &count) == ZL_OK)
            connected = events[0].kind == ZL_EVENT_CONNECTED;
    }
    EXPECT(connected);
    REFUSED(zl_worker_connection_handle(worker, connecting, NULL));
    EXPECT(zl_worker_connection_handle(worker, connecting, &client) == ZL_OK);
    EXPECT(zl_worker_connection_handle(worker, connecting, &none) == ZL_ERROR_CLOSED);
    REFUSED(zl_worker_endpoint_handle(worker, number, NULL));
    EXPECT(zl_worker_endpoint_handle(worker, number, &endpoint) == ZL_OK);
    EXPECT(zl_worker_endpoint_handle(worker, number, &listening) == ZL_ERROR_CLOSED);
    EXPECT(zl_worker_spawn(worker, &thread) == ZL_OK);

    EXPECT(zl_endpoint_handle_accept(listening, 20000, &server) == ZL_OK);
    EXPECT(zl_worker_thread_connect(again, address, NULL, &late) == ZL_OK);
    EXPECT(zl_endpoint_handle_accept(endpoint, 20000, &accepted) == ZL_OK);
    EXPECT(zl_region_new(8, &region) == ZL_OK);
    zl_handle *both[][2] = {{client, server}, {accepted, late}};
    for (int n = 0; n < 2; n++) {
        EXPECT(zl_handle_recv(both[n][1], region, 4, 4, &received) == ZL_OK);
        EXPECT(zl_handle_send(both[n][0], region, 0, 4, NULL, &sent) == ZL_OK);
        done(sent);
        EXPECT(done(received).length == 4);
        zl_handle_free(both[n][0]);
        zl_handle_free(both[n][1]);
    }
    zl_endpoint_handle_free(endpoint);
    zl_endpoint_handle_free(listening);
    EXPECT(zl_worker_stop(thread) == ZL_OK);
    REFUSED(zl_worker_stop(again));
    /* It goes on. */
    EXPECT(zl_worker_thread_listen(process, "127.0.0.1:0", NULL, &listening) == ZL_OK);
    zl_endpoint_handle_free(listening);
    zl_worker_thread_free(process);
    zl_region_free(region);
}

static void count(void *memory, void *context)
{
    (void)memory;
    ++*(int *)context;
}

/* A worker that is gone refuses, in words, and has given wrapped memory back. */
static void gone(void)
{
    zl_worker_thread *thread = spawned();
    zl_endpoint_handle *endpoint;
    zl_handle *client, *server;
    zl_pending *pending;
    zl_region *region, *wrapped;
    zl_completion completion;
    char address[ZL_ADDRESS_LENGTH];
    char memory[8];
    int released = 0;

    EXPECT(zl_region_new(8, &region) == ZL_OK);
    EXPECT(zl_region_wrap(memory, sizeof memory, count, &released, &wrapped) == ZL_OK);
    EXPECT(zl_worker_thread_listen(thread, "127.0.0.1:0", NULL, &endpoint) == ZL_OK);
    EXPECT(zl_endpoint_handle_local_addr(endpoint, address, sizeof address) == ZL_OK);
    EXPECT(zl_worker_thread_connect(thread, address, NULL, &client) == ZL_OK);
    EXPECT(zl_endpoint_handle_accept(endpoint, 20000, &server) == ZL_OK);
    EXPECT(zl_handle_recv(server, wrapped, 0, sizeof memory, &pending) == ZL_OK);
    zl_region_free(wrapped);
    EXPECT(released == 0);
    zl_pending_free(pending);
    zl_worker_thread_free(thread);
    EXPECT(released == 1);
    EXPECT(zl_handle_recv(client, region, 0, 8, &pending) == ZL_OK);
    EXPECT(zl_pending_wait(pending, -1, &completion) == ZL_ERROR_CLOSED);
    REFUSED(zl_pending_wait(pending, -1, &completion));
    zl_pending_free(pending);
    EXPECT(zl_endpoint_handle_accept(endpoint, -1, &server) == ZL_ERROR_CLOSED);
    EXPECT(zl_handle_close(client) == ZL_ERROR_CLOSED);
    zl_handle_free(server);
    zl_endpoint_handle_free(endpoint);
    zl_region_free(region);
}

int main(void)
{
    arguments();
    passive();
    late();
    zl_worker_thread *thread = spawned();
    handles(thread);
    changes_hands(thread);
    EXPECT(zl_worker_stop(thread) == ZL_OK);
    gone();
    return EXIT_SUCCESS;
}
