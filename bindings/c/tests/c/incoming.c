/* Tests private data, and that a program decides about requests for connections. Run by tests/install.rs. */
#include "expect.h"
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zerolane.h>

#define REFUSED(call) EXPECT((call) == ZL_ERROR_ARGUMENT && zl_last_error()[0] != '\0')

struct client {
    char address[ZL_ADDRESS_LENGTH];
    zl_options *options;
    zl_connection *connection;
    zl_status status;
    pthread_t thread;
};

static void *connect_client(void *argument)
{
    struct client *client = argument;

    client->status = zl_connect(client->address, client->options, &client->connection);
    return NULL;
}

static void start(struct client *client)
{
    EXPECT(pthread_create(&client->thread, NULL, connect_client, client) == 0);
}

static int has(zl_connection *connection, const char *expected)
{
    unsigned char data[ZL_PRIVATE_DATA_LENGTH];
    size_t length;

    EXPECT(zl_peer_data(connection, data, sizeof data, &length) == ZL_OK);
    return length == strlen(expected) && memcmp(data, expected, length) == 0;
}

static zl_options *with(const char *data, int asks)
{
    zl_options *options;

    EXPECT(zl_options_new(&options) == ZL_OK);
    EXPECT(zl_options_set(options, ZL_OPTION_ASKS, (uint64_t)asks) == ZL_OK);
    EXPECT(zl_options_set_private_data(options, (const uint8_t *)data, strlen(data)) == ZL_OK);
    return options;
}

/* The next request of an endpoint. */
static zl_incoming *next(zl_endpoint *endpoint)
{
    unsigned char data[ZL_PRIVATE_DATA_LENGTH];
    char text[ZL_ADDRESS_LENGTH];
    zl_incoming *incoming;
    size_t length;

    EXPECT(zl_endpoint_incoming(endpoint, 20000, &incoming) == ZL_OK);
    EXPECT(zl_incoming_data(incoming, data, sizeof data, &length) == ZL_OK);
    EXPECT(length == 8 && memcmp(data, "a client", 8) == 0);
    REFUSED(zl_incoming_data(incoming, data, 7, &length));
    EXPECT(zl_incoming_peer_addr(incoming, text, sizeof text) == ZL_OK && strncmp(text, "127.0.0.1:", 10) == 0);
    EXPECT(zl_incoming_peer_key(incoming, text, sizeof text) == ZL_OK && strncmp(text, "zl:", 3) == 0);
    return incoming;
}

static void of_endpoint(zl_options *asks, struct client *client)
{
    zl_endpoint *endpoint;
    zl_incoming *incoming;
    zl_connection *accepted;
    uint8_t long_data[ZL_PRIVATE_DATA_LENGTH + 1] = {0};

    EXPECT(zl_endpoint_bind("127.0.0.1:0", asks, &endpoint) == ZL_OK);
    EXPECT(zl_endpoint_local_addr(endpoint, client->address, sizeof client->address) == ZL_OK);
    EXPECT(zl_endpoint_incoming(endpoint, 1, &incoming) == ZL_TIMEOUT);
    for (int usual = 0; usual < 2; usual++) {
        start(client);
        incoming = next(endpoint);
        REFUSED(zl_incoming_accept(incoming, long_data, sizeof long_data, &accepted));
        REFUSED(zl_incoming_accept(incoming, NULL, 0, NULL));
        EXPECT(zl_incoming_accept(incoming, usual ? NULL : (const uint8_t *)"yes", usual ? 0 : 3, &accepted) == ZL_OK);
        EXPECT(pthread_join(client->thread, NULL) == 0 && client->status == ZL_OK);
        EXPECT(has(accepted, "a client") && has(client->connection, usual ? "as usual" : "yes"));
        zl_connection_free(client->connection);
        zl_connection_free(accepted);
    }
    start(client);
    zl_incoming_refuse(next(endpoint));
    EXPECT(pthread_join(client->thread, NULL) == 0 && client->status == ZL_ERROR_REJECTED);
    start(client);
    EXPECT(zl_endpoint_accept(endpoint, 20000, &accepted) == ZL_OK);
    EXPECT(pthread_join(client->thread, NULL) == 0 && client->status == ZL_OK);
    EXPECT(has(client->connection, "as usual"));
    zl_connection_free(client->connection);
    zl_connection_free(accepted);
    zl_endpoint_free(endpoint);
    zl_incoming_refuse(NULL);
    EXPECT(zl_endpoint_bind("127.0.0.1:0", NULL, &endpoint) == ZL_OK);
    /* It accepts by itself. */
    REFUSED(zl_endpoint_incoming(endpoint, 0, &incoming));
    zl_endpoint_free(endpoint);
}

/* The connection of the next event of this kind. */
static zl_connection *event(zl_worker *worker, uint32_t kind)
{
    zl_event event;
    size_t count;

    for (int tries = 0; tries < 1000; tries++) {
        zl_worker_wait(worker, 20);
        EXPECT(zl_worker_events(worker, &event, 1, &count) >= 0);
        if (count == 1 && event.kind == kind)
            return event.connection;
    }
    EXPECT(!"an event in time");
    return NULL;
}

static void *serve(void *worker)
{
    while (zl_worker_wait(worker, -1) != ZL_WOKEN)
        ;
    return NULL;
}

static void of_worker(zl_options *asks, struct client *client)
{
    zl_worker *worker;
    zl_endpoint *endpoint;
    zl_connection *connection;
    pthread_t serving;

    EXPECT(zl_worker_new(&worker) == ZL_OK);
    EXPECT(zl_worker_listen(worker, "127.0.0.1:0", asks, &endpoint) == ZL_OK);
    EXPECT(zl_endpoint_local_addr(endpoint, client->address, sizeof client->address) == ZL_OK);
    start(client);
    connection = event(worker, ZL_EVENT_REQUESTED);
    EXPECT(has(connection, "a client"));
    /* Not made yet. */
    EXPECT(zl_worker_spawn(worker) == ZL_ERROR_BUSY);
    EXPECT(zl_worker_accept_request(worker, connection, (const uint8_t *)"yes", 3) == ZL_OK);
    EXPECT(zl_worker_accept_request(worker, connection, NULL, 0) == ZL_ERROR_CLOSED);
    EXPECT(pthread_create(&serving, NULL, serve, worker) == 0);
    EXPECT(pthread_join(client->thread, NULL) == 0 && client->status == ZL_OK);
    EXPECT(zl_worker_wake(worker) == ZL_OK && pthread_join(serving, NULL) == 0);
    EXPECT(has(client->connection, "yes"));
    zl_connection_free(client->connection);
    EXPECT(event(worker, ZL_EVENT_CLOSED) == connection);
    zl_connection_free(connection);
    start(client);
    connection = event(worker, ZL_EVENT_REQUESTED);
    EXPECT(zl_worker_refuse_request(worker, connection) == ZL_OK);
    EXPECT(event(worker, ZL_EVENT_CLOSED) == connection);
    zl_connection_free(connection);
    EXPECT(pthread_join(client->thread, NULL) == 0 && client->status == ZL_ERROR_REJECTED);
    zl_endpoint_free(endpoint);
    zl_worker_free(worker);
}

static void nulls(void)
{
    zl_options *options;
    zl_incoming *incoming;
    zl_connection *connection;
    uint8_t data[ZL_PRIVATE_DATA_LENGTH + 1] = {0};
    size_t length;

    EXPECT(zl_options_new(&options) == ZL_OK);
    EXPECT(zl_options_set_private_data(options, NULL, 0) == ZL_OK);
    EXPECT(zl_options_set_private_data(options, data, ZL_PRIVATE_DATA_LENGTH) == ZL_OK);
    REFUSED(zl_options_set_private_data(options, data, sizeof data));
    REFUSED(zl_options_set_private_data(options, NULL, 1));
    REFUSED(zl_options_set_private_data(NULL, data, 1));
    REFUSED(zl_options_set(options, ZL_OPTION_ASKS, 2));
    zl_options_free(options);
    REFUSED(zl_peer_data(NULL, data, sizeof data, &length));
    REFUSED(zl_endpoint_incoming(NULL, 0, &incoming));
    REFUSED(zl_incoming_data(NULL, data, sizeof data, &length));
    REFUSED(zl_incoming_peer_addr(NULL, (char *)data, sizeof data));
    REFUSED(zl_incoming_peer_key(NULL, (char *)data, sizeof data));
    REFUSED(zl_incoming_accept(NULL, NULL, 0, &connection));
    REFUSED(zl_worker_accept_request(NULL, NULL, NULL, 0));
    REFUSED(zl_worker_refuse_request(NULL, NULL));
}

int main(void)
{
    zl_options *asks = with("as usual", 1);
    struct client client = {.options = with("a client", 0)};

    nulls();
    of_endpoint(asks, &client);
    of_worker(asks, &client);
    zl_options_free(client.options);
    zl_options_free(asks);
    return EXIT_SUCCESS;
}
