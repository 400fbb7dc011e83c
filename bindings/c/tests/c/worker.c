/* Tests a worker that its program calls: endpoints and connections in one loop, events in batches, handles to post to,
   and the program's own event loop. One thread has both ends. Run by tests/install.rs. */
#define _POSIX_C_SOURCE 200809L

#include "expect.h"
#include <poll.h>
#include <pthread.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <zerolane.h>

_Static_assert(sizeof(zl_event) == 40 + sizeof(zl_completion), "zl_event");
_Static_assert(offsetof(zl_event, status) == 4 && offsetof(zl_event, endpoint) == 8, "zl_event");
_Static_assert(offsetof(zl_event, connection) == 16 && offsetof(zl_event, length) == 24, "zl_event");
_Static_assert(offsetof(zl_event, completion) == 40, "zl_event.completion");

enum { LENGTH = 5000, TURNS = 2000 };

/* The next event of `kind`, about `connection` if that is not null; those before it are nothing to this test. */
static zl_event expect_event(zl_worker *worker, uint32_t kind, const zl_connection *connection)
{
    zl_event event;
    size_t count;

    for (int turns = 0; turns < TURNS; turns++) {
        while (zl_worker_events(worker, &event, 1, &count) == ZL_OK) {
            EXPECT(count == 1 && event.reserved == 0);
            if (event.kind == kind && (connection == NULL || event.connection == connection))
                return event;
        }
        EXPECT(count == 0);
        EXPECT(zl_worker_wait(worker, 1000) >= 0); /* it may be woken */
    }
    EXPECT(!"in time");
    exit(EXIT_FAILURE);
}

/* A client and a server of the same worker. */
static void join(zl_worker *worker, zl_endpoint **endpoint, zl_connection **client, zl_connection **server)
{
    char address[ZL_ADDRESS_LENGTH];
    zl_event event;

    if (*endpoint == NULL)
        EXPECT(zl_worker_listen(worker, "127.0.0.1:0", NULL, endpoint) == ZL_OK);
    EXPECT(zl_endpoint_local_addr(*endpoint, address, sizeof address) == ZL_OK);
    EXPECT(zl_worker_connect(worker, address, NULL, client) == ZL_OK);
    event = expect_event(worker, ZL_EVENT_ACCEPTED, NULL);
    EXPECT(event.endpoint == *endpoint && event.status == ZL_OK && event.connection != *client);
    *server = event.connection;
}

static void arguments(void)
{
    zl_worker *worker;
    zl_endpoint *endpoint;
    zl_connection *connection;
    zl_event event;
    int64_t time;
    size_t count;

#define REFUSED(call) EXPECT((call) == ZL_ERROR_ARGUMENT)
    REFUSED(zl_worker_new(NULL));
    REFUSED(zl_worker_set_spin(NULL, 1));
    REFUSED(zl_worker_listen(NULL, "127.0.0.1:0", NULL, &endpoint));
    REFUSED(zl_worker_connect(NULL, "127.0.0.1:1", NULL, &connection));
    REFUSED(zl_worker_adopt(NULL, NULL, &connection));
    REFUSED(zl_worker_close(NULL, NULL));
    REFUSED(zl_worker_connections(NULL, &count));
    REFUSED(zl_worker_progress(NULL));
    REFUSED(zl_worker_wait(NULL, 0));
    REFUSED(zl_worker_events(NULL, &event, 1, &count));
    REFUSED(zl_worker_arm(NULL));
    REFUSED(zl_worker_next_timeout(NULL, &time));
    REFUSED(zl_worker_wake(NULL));
    EXPECT(zl_worker_fd(NULL) == -1);
    zl_worker_free(NULL);

    EXPECT(zl_worker_new(&worker) == ZL_OK && zl_worker_fd(worker) >= 0);
    EXPECT(zl_worker_set_spin(worker, 10) == ZL_OK);
    REFUSED(zl_worker_listen(worker, NULL, NULL, &endpoint));
    REFUSED(zl_worker_listen(worker, "127.0.0.1:0", NULL, NULL));
    REFUSED(zl_worker_connect(worker, "127.0.0.1:1", NULL, NULL));
    EXPECT(zl_worker_listen(worker, "no port here", NULL, &endpoint) == ZL_ERROR_ARGUMENT);
    REFUSED(zl_worker_events(worker, &event, 0, &count));
    REFUSED(zl_worker_events(worker, NULL, 1, &count));
    REFUSED(zl_worker_events(worker, &event, 1, NULL));
    REFUSED(zl_worker_adopt(worker, NULL, &connection));
    REFUSED(zl_worker_close(worker, NULL));
    EXPECT(zl_worker_events(worker, &event, 1, &count) == ZL_TIMEOUT && count == 0);
    EXPECT(zl_worker_wait(worker, 1) == ZL_TIMEOUT);
    EXPECT(zl_worker_progress(worker) == ZL_OK);
    EXPECT(zl_worker_next_timeout(worker, &time) == ZL_OK && time == -1);
    zl_worker_free(worker);
}

static void never(zl_status reason, void *context)
{
    (void)reason, (void)context;
}

/* What a worker's connections are for, and what not. */
static void handles(zl_worker *worker, zl_connection *ours, zl_connection *theirs)
{
    zl_connection *adopted;
    zl_worker *other;
    char text[ZL_PUBLIC_KEY_LENGTH + ZL_ADDRESS_LENGTH], buffer[8];
    zl_completion completion;
    zl_account account;
    zl_region *from, *to;
    zl_event event;
    zl_work how = {.context = 0xfeedfacecafe};
    size_t length;
    uint64_t sent, received;

    /* It drives itself. */
    REFUSED(zl_send(ours, "hello", 5));
    REFUSED(zl_recv_into(ours, buffer, sizeof buffer, &length));
    REFUSED(zl_poll(ours, &completion));
    REFUSED(zl_poll_batch(ours, &completion, 1, &length));
    REFUSED(zl_wait(ours, 0, &completion));
    REFUSED(zl_watch(ours, NULL, NULL, NULL));
    REFUSED(zl_wait_for(ours, 1, 0, &completion));
    REFUSED(zl_close(ours));
    REFUSED(zl_on_closed(ours, never, NULL));
    REFUSED(zl_worker_adopt(worker, ours, &adopted));
    EXPECT(strstr(zl_last_error(), "worker") != NULL);
    EXPECT(zl_worker_new(&other) == ZL_OK);
    REFUSED(zl_worker_close(other, ours));
    zl_worker_free(other);
    EXPECT(zl_peer_addr(ours, text, sizeof text) == ZL_OK && strncmp(text, "127.0.0.1:", 10) == 0);
    EXPECT(zl_peer_key(ours, text, sizeof text) == ZL_OK && strncmp(text, "zl:", 3) == 0);

    /* A Transfer without a receive, which then comes. */
    EXPECT(zl_region_new(LENGTH, &from) == ZL_OK && zl_region_new(LENGTH, &to) == ZL_OK);
    memset(zl_region_data(from), 0x5a, LENGTH);
    EXPECT(zl_post_send(ours, from, 0, LENGTH, &how, &sent) == ZL_OK);
    event = expect_event(worker, ZL_EVENT_ANNOUNCED, theirs);
    EXPECT(event.length == LENGTH);
    how.context = 3;
    EXPECT(zl_post_recv(theirs, to, 0, LENGTH, &how, &received) == ZL_OK);
    event = expect_event(worker, ZL_EVENT_COMPLETED, theirs);
    EXPECT(event.completion.kind == ZL_KIND_RECEIVE && event.completion.id == received);
    EXPECT(event.completion.context == 3 && event.completion.tag == 0);
    EXPECT(event.completion.status == ZL_OK && event.completion.length == LENGTH);
    EXPECT(memcmp(zl_region_data(to), zl_region_data(from), LENGTH) == 0);
    event = expect_event(worker, ZL_EVENT_COMPLETED, ours);
    EXPECT(event.completion.id == sent && event.completion.context == 0xfeedfacecafe);

    EXPECT(zl_account_read(theirs, &account) == ZL_OK && account.datagrams_received > 0);
    EXPECT(zl_post_recv(theirs, to, 0, LENGTH, NULL, &received) == ZL_OK);
    EXPECT(zl_cancel(theirs, received) == ZL_OK);
    event = expect_event(worker, ZL_EVENT_COMPLETED, theirs);
    EXPECT(event.completion.id == received && event.completion.status == ZL_ERROR_CANCELLED);
    zl_region_free(from);
    zl_region_free(to);
}

/* What an endpoint exports is for every client. */
static void exports(zl_worker *worker, zl_endpoint *endpoint)
{
    zl_region *memory;
    zl_exported *exported;
    zl_event event;
    zl_endpoint *bound;
    zl_connection *clients[3], *servers[3];
    uint64_t *words, id;

    EXPECT(zl_region_new(4096, &memory) == ZL_OK);
    words = zl_region_data(memory);
    EXPECT(zl_exported_new(memory, 0, 4096, &exported) == ZL_OK);
    REFUSED(zl_endpoint_export(endpoint, NULL, exported, ZL_RIGHT_WRITE));
    REFUSED(zl_endpoint_export(endpoint, "words", NULL, ZL_RIGHT_WRITE));
    REFUSED(zl_endpoint_export(endpoint, "words", exported, 1u << 9));
    EXPECT(zl_endpoint_bind("127.0.0.1:0", NULL, &bound) == ZL_OK);
    REFUSED(zl_endpoint_export(bound, "words", exported, ZL_RIGHT_WRITE));
    zl_endpoint_free(bound);
    EXPECT(zl_endpoint_export(endpoint, "words", exported, ZL_RIGHT_WRITE) == ZL_OK);
    for (uint64_t n = 0; n < 3; n++) {
        uint64_t word = 0x1111111111111111 * (n + 1);
        join(worker, &endpoint, &clients[n], &servers[n]);
        /* Asked before it is known to be connected. */
        EXPECT(zl_post_open_region(clients[n], "words", ZL_RIGHT_WRITE, NULL, &id) == ZL_OK);
        event = expect_event(worker, ZL_EVENT_COMPLETED, clients[n]);
        EXPECT(event.completion.kind == ZL_KIND_OPEN && event.completion.status == ZL_OK);
        EXPECT(zl_post_put_inline(clients[n], &event.completion.region, 8 * n, &word, 8, NULL, &id) == ZL_OK);
        event = expect_event(worker, ZL_EVENT_COMPLETED, clients[n]);
        EXPECT(event.completion.id == id && event.completion.status == ZL_OK && words[n] == word);
    }
    REFUSED(zl_worker_export_numbered(worker, 1 << 24, exported, ZL_RIGHT_WRITE));
    REFUSED(zl_worker_revoke_number(worker, 9));
    EXPECT(zl_worker_export_numbered(worker, 9, exported, ZL_RIGHT_WRITE) == ZL_OK);
    REFUSED(zl_worker_export_numbered(worker, 9, exported, ZL_RIGHT_WRITE));
    for (uint64_t n = 0; n < 3; n++) {
        uint64_t word = 0x0101010101010101 * (n + 1);
        zl_key key;
        EXPECT(zl_key_from_u64(((uint64_t)9 << 40) + 64, &key) == ZL_OK);
        EXPECT(zl_post_put_inline(clients[n], &key, 8 * n, &word, 8, NULL, &id) == ZL_OK);
        event = expect_event(worker, ZL_EVENT_COMPLETED, clients[n]);
        EXPECT(event.completion.id == id && event.completion.status == ZL_OK && words[8 + n] == word);
    }
    EXPECT(zl_worker_revoke_number(worker, 9) == ZL_OK);
    EXPECT(zl_exported_revoke(exported) == ZL_OK);
    EXPECT(zl_endpoint_export(endpoint, "words", exported, ZL_RIGHT_WRITE) == ZL_ERROR_REVOKED);
    for (int n = 0; n < 3; n++) {
        EXPECT(zl_worker_close(worker, clients[n]) == ZL_OK);
        EXPECT(expect_event(worker, ZL_EVENT_CLOSED, NULL).status == ZL_ERROR_CLOSED);
        EXPECT(expect_event(worker, ZL_EVENT_CLOSED, NULL).status == ZL_ERROR_CLOSED);
        EXPECT(zl_worker_close(worker, clients[n]) == ZL_ERROR_CLOSED);
        zl_connection_free(clients[n]);
        zl_connection_free(servers[n]);
    }
    zl_exported_free(exported);
    zl_region_free(memory);
}

static void count_notice(void *context)
{
    ++*(int *)context;
}

/* Connections share memory for messages, and an empty pool makes peers wait. */
static void pools(void)
{
    zl_worker *worker;
    zl_pool *pool, *other;
    zl_region *memory, *message;
    zl_event event;
    zl_endpoint *endpoint = NULL;
    zl_connection *clients[3], *servers[3];
    uint64_t id, context;
    size_t count;
    int notices = 0;

    EXPECT(zl_worker_new(&worker) == ZL_OK);
    EXPECT(zl_pool_new(&pool) == ZL_OK && zl_pool_new(&other) == ZL_OK);
    EXPECT(zl_region_new(4096, &memory) == ZL_OK && zl_region_new(1024, &message) == ZL_OK);
    REFUSED(zl_pool_new(NULL));
    REFUSED(zl_pool_add(NULL, memory, 0, 64, 0));
    REFUSED(zl_pool_add(pool, NULL, 0, 64, 0));
    REFUSED(zl_pool_len(NULL, &count));
    REFUSED(zl_pool_len(pool, NULL));
    REFUSED(zl_pool_remove(pool, NULL));
    REFUSED(zl_pool_remove(NULL, &context));
    REFUSED(zl_pool_close(NULL));
    REFUSED(zl_pool_notify_below(pool, 1, NULL, NULL));
    REFUSED(zl_worker_share_receives(worker, NULL));
    REFUSED(zl_set_receive_pool(NULL, pool));
    EXPECT(zl_pool_remove(pool, &context) == ZL_TIMEOUT);
    EXPECT(zl_worker_share_receives(worker, pool) == ZL_OK);
    EXPECT(zl_worker_share_receives(worker, pool) == ZL_OK);
    REFUSED(zl_worker_share_receives(worker, other));
    memset(zl_region_data(message), 7, 1024);
    for (int n = 0; n < 3; n++) {
        join(worker, &endpoint, &clients[n], &servers[n]);
        REFUSED(zl_set_receive_pool(servers[n], other));
        EXPECT(zl_post_message(clients[n], "hello", 5, message, 0, 1024, NULL, &id) == ZL_OK);
    }
    for (int turns = 0; turns < 20; turns++)
        EXPECT(zl_worker_wait(worker, 1) >= 0); /* the peers wait */
    for (uint64_t n = 0; n < 4; n++)
        EXPECT(zl_pool_add(pool, memory, n * 1024, n < 3 ? 1024 : 8, n) == ZL_OK);
    EXPECT(zl_pool_notify_below(pool, 4, count_notice, &notices) == ZL_OK && notices == 0);
    for (int n = 0; n < 6; n++) {
        event = expect_event(worker, ZL_EVENT_COMPLETED, NULL);
        EXPECT(event.completion.status == ZL_OK);
        if (event.completion.kind != ZL_KIND_MESSAGE_RECEIVED)
            continue;
        EXPECT(event.completion.context < 3 && event.completion.length == 1024);
        EXPECT(event.completion.control_length == 5 && memcmp(event.completion.control, "hello", 5) == 0);
    }
    EXPECT(memcmp(zl_region_data(memory), zl_region_data(message), 1024) == 0);
    EXPECT(notices == 1 && zl_pool_len(pool, &count) == ZL_OK && count == 1);
    /* Too long for the piece that is left. */
    EXPECT(zl_post_message(clients[0], NULL, 0, message, 0, 9, NULL, &id) == ZL_OK);
    for (int n = 0; n < 2; n++)
        EXPECT(expect_event(worker, ZL_EVENT_COMPLETED, NULL).completion.status == ZL_ERROR_TOO_LARGE);
    EXPECT(zl_pool_add(pool, memory, 0, 0, 77) == ZL_OK);
    EXPECT(zl_pool_close(pool) == ZL_OK);
    EXPECT(zl_pool_add(pool, memory, 0, 0, 78) == ZL_ERROR_CLOSED);
    EXPECT(zl_pool_remove(pool, &context) == ZL_OK && context == 77);
    EXPECT(zl_pool_remove(pool, &context) == ZL_TIMEOUT);
    for (int n = 0; n < 3; n++) {
        zl_connection_free(clients[n]);
        zl_connection_free(servers[n]);
    }
    zl_endpoint_free(endpoint);
    zl_worker_free(worker);
    zl_pool_free(pool);
    zl_pool_free(other);
    zl_pool_free(NULL);
    zl_region_free(memory);
    zl_region_free(message);
}

/* Out of a worker's hands, and into another's. */
static void release_and_adopt(zl_worker *worker, zl_endpoint *endpoint)
{
    zl_worker *other;
    zl_connection *client, *server, *released, *adopted;
    zl_completion completion;
    uint64_t id;
    size_t before, count;

    EXPECT(zl_worker_new(&other) == ZL_OK);
    EXPECT(zl_worker_connections(worker, &before) == ZL_OK);
    join(worker, &endpoint, &client, &server);
    expect_event(worker, ZL_EVENT_CONNECTED, client);
    REFUSED(zl_release(client, NULL));
    EXPECT(zl_release(client, &released) == ZL_OK);
    EXPECT(zl_release(client, &adopted) == ZL_ERROR_CLOSED);
    zl_connection_free(client);
    REFUSED(zl_release(released, &adopted));
    EXPECT(zl_worker_connections(worker, &count) == ZL_OK && count == before + 1);
    EXPECT(zl_post_message(server, "both", 4, NULL, 0, 0, NULL, &id) == ZL_OK);
    EXPECT(zl_post_message_recv(released, NULL, 0, 0, NULL, &id) == ZL_OK);
    zl_status status = ZL_TIMEOUT;
    for (int turns = 0; turns < TURNS && status == ZL_TIMEOUT; turns++) {
        EXPECT(zl_worker_wait(worker, 1) >= 0);
        status = zl_wait_for(released, id, 1, &completion);
    }
    EXPECT(status == ZL_OK && completion.id == id && completion.control_length == 4);
    REFUSED(zl_wait_for(released, id, 1, &completion));
    EXPECT(zl_worker_adopt(other, released, &adopted) == ZL_OK);
    EXPECT(zl_worker_close(other, adopted) == ZL_OK);
    for (int turns = 0; turns < TURNS && count > before; turns++) {
        EXPECT(zl_worker_wait(other, 1) >= 0 && zl_worker_wait(worker, 1) >= 0);
        EXPECT(zl_worker_connections(worker, &count) == ZL_OK);
    }
    EXPECT(count == before);
    expect_event(worker, ZL_EVENT_CLOSED, server);
    zl_connection_free(server);
    zl_worker_free(other);
    /* Its worker is gone. */
    EXPECT(zl_post_message_recv(adopted, NULL, 0, 0, NULL, &id) == ZL_ERROR_CLOSED);
    zl_connection_free(adopted);
}

/* A freed connection closes, and has no more events. */
static void freed(zl_worker *worker, zl_endpoint *endpoint)
{
    zl_connection *client, *server;
    zl_region *region;
    zl_event event;
    uint64_t id;
    size_t before, count;

    EXPECT(zl_region_new(64, &region) == ZL_OK);
    EXPECT(zl_worker_connections(worker, &before) == ZL_OK);
    join(worker, &endpoint, &client, &server);
    expect_event(worker, ZL_EVENT_CONNECTED, client);
    EXPECT(zl_post_recv(server, region, 0, 64, NULL, &id) == ZL_OK);
    EXPECT(zl_post_send(client, region, 0, 64, NULL, &id) == ZL_OK);
    zl_connection_free(client);
    event = expect_event(worker, ZL_EVENT_COMPLETED, NULL);
    EXPECT(event.connection == server && event.completion.status == ZL_OK && event.completion.length == 64);
    event = expect_event(worker, ZL_EVENT_CLOSED, NULL);
    EXPECT(event.connection == server);
    zl_connection_free(server);
    for (int turns = 0; turns < TURNS && zl_worker_connections(worker, &count) == ZL_OK && count > before; turns++)
        EXPECT(zl_worker_wait(worker, 1) >= 0);
    EXPECT(count == before);
    zl_region_free(region);
}

static void *wait_without_timeout(void *worker)
{
    static zl_status status;

    do
        status = zl_worker_wait(worker, -1);
    while (status == ZL_ERROR_BUSY);
    return &status;
}

/* One thread at a time: a second one is told so, by the worker and by its connections, and may wake the first. */
static void threads(zl_worker *worker, zl_connection *connection)
{
    const struct timespec millisecond = {.tv_nsec = 1000000};
    zl_status second = ZL_OK;
    pthread_t thread;
    void *waited;
    uint64_t id;

    EXPECT(pthread_create(&thread, NULL, wait_without_timeout, worker) == 0);
    for (int tries = 0; tries < 10000 && second != ZL_ERROR_BUSY; tries++) {
        nanosleep(&millisecond, NULL);
        second = zl_worker_arm(worker);
    }
    EXPECT(second == ZL_ERROR_BUSY);
    EXPECT(zl_post_message_recv(connection, NULL, 0, 0, NULL, &id) == ZL_ERROR_BUSY);
    EXPECT(zl_worker_wake(worker) == ZL_OK);
    EXPECT(pthread_join(thread, &waited) == 0 && *(zl_status *)waited == ZL_WOKEN);
}

/* The program's own event loop, until a message has come. */
static void event_loop(zl_worker *worker, zl_connection *client, zl_connection *server)
{
    struct pollfd descriptor = {.fd = zl_worker_fd(worker), .events = POLLIN};
    zl_event events[8];
    uint64_t id;
    size_t count;
    int64_t time;
    int there = 0;

    EXPECT(zl_post_message_recv(server, NULL, 0, 0, NULL, &id) == ZL_OK);
    EXPECT(zl_post_message(client, "loop", 4, NULL, 0, 0, NULL, &id) == ZL_OK);
    for (int turns = 0; turns < TURNS && there < 2; turns++) {
        zl_status more = zl_worker_progress(worker);
        EXPECT(more == ZL_OK || more == ZL_READY);
        EXPECT(zl_worker_next_timeout(worker, &time) == ZL_OK && time >= -1);
        while (zl_worker_events(worker, events, 8, &count) == ZL_OK)
            for (size_t n = 0; n < count; n++)
                there += events[n].kind == ZL_EVENT_COMPLETED && events[n].completion.status == ZL_OK;
        if (there < 2 && more == ZL_OK && zl_worker_arm(worker) == ZL_OK)
            EXPECT(poll(&descriptor, 1, 10000) == 1);
    }
    EXPECT(there == 2);
    /* Another thread, or this one, makes it readable. */
    while (zl_worker_arm(worker) == ZL_READY)
        EXPECT(zl_worker_progress(worker) >= 0);
    EXPECT(zl_worker_wake(worker) == ZL_OK);
    EXPECT(poll(&descriptor, 1, 10000) == 1);
}

static void ends(zl_worker *worker, zl_connection *client, zl_connection *server)
{
    zl_region *region;
    zl_event event;
    zl_account account;
    uint64_t id;

    /* Freed with a receive in flight, which completes before the end. */
    EXPECT(zl_region_new(16, &region) == ZL_OK);
    EXPECT(zl_post_recv(server, region, 0, 16, NULL, &id) == ZL_OK);
    EXPECT(zl_worker_close(worker, client) == ZL_OK);
    event = expect_event(worker, ZL_EVENT_COMPLETED, server);
    EXPECT(event.completion.id == id && event.completion.status == ZL_ERROR_CLOSED);
    event = expect_event(worker, ZL_EVENT_CLOSED, server);
    EXPECT(event.status == ZL_ERROR_CLOSED);
    /* Until it is freed it says so. */
    EXPECT(zl_post_recv(server, region, 0, 16, NULL, &id) == ZL_ERROR_CLOSED);
    EXPECT(zl_account_read(server, &account) == ZL_ERROR_CLOSED);
    zl_connection_free(server);
    zl_connection_free(client);
    zl_region_free(region);
}

/* Not connected: told by an event. */
static void refused_connects(zl_worker *worker)
{
    zl_options *options;
    zl_connection *connection;
    zl_event event;

    EXPECT(zl_options_new(&options) == ZL_OK);
    EXPECT(zl_options_set(options, ZL_OPTION_CONNECT_TIMEOUT_MS, 100) == ZL_OK);
    EXPECT(zl_worker_connect(worker, "127.0.0.1:1", options, &connection) == ZL_OK);
    event = expect_event(worker, ZL_EVENT_CLOSED, connection);
    EXPECT(event.status == ZL_ERROR_CONNECT_TIMEOUT || event.status == ZL_ERROR_PEER_DEAD);
    zl_connection_free(connection);
    zl_options_free(options);
}

int main(void)
{
    zl_worker *worker;
    zl_endpoint *endpoint = NULL;
    zl_connection *client, *server;
    char address[ZL_ADDRESS_LENGTH];

    arguments();
    EXPECT(zl_worker_new(&worker) == ZL_OK);
    join(worker, &endpoint, &client, &server);
    handles(worker, client, server);
    exports(worker, endpoint);
    pools();
    release_and_adopt(worker, endpoint);
    freed(worker, endpoint);
    threads(worker, client);
    event_loop(worker, client, server);
    refused_connects(worker);
    ends(worker, client, server);
    zl_worker_free(worker);
    EXPECT(zl_endpoint_local_addr(endpoint, address, sizeof address) == ZL_ERROR_CLOSED);
    zl_endpoint_free(endpoint);
    return EXIT_SUCCESS;
}
