/* Tests null in place of each pointer, and "" in place of each text, of every function. tests/install.rs puts the calls,
   which it makes from the header, in place of CALLS, and their number in place of TRIED. */
#define _POSIX_C_SOURCE 200809L

#include "expect.h"
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zerolane.h>

/* The calls that were refused because of the argument that they try. */
static bool told[TRIED];

/* Refused, because of the argument of this name or of another: not all take each kind of connection. */
static void is_null(zl_status status, const char *call, const char *argument, size_t number)
{
    char expected[64];

    EXPECT(snprintf(expected, sizeof expected, "%s is null", argument) < (int)sizeof expected);
    if (status != ZL_ERROR_ARGUMENT) {
        fprintf(stderr, "%s, %s: %d, %s\n", call, argument, status, zl_last_error());
        exit(EXIT_FAILURE);
    }
    told[number] |= strcmp(zl_last_error(), expected) == 0;
}


/* Refused for any reason; or posted, to fail later. */
static void fails(zl_status status, const char *call)
{
    const bool posts = strncmp(call, "zl_post_", 8) == 0;

    if ((status >= 0 && !posts) || zl_last_error()[0] == '\0') {
        fprintf(stderr, "%s: %d, %s\n", call, status, zl_last_error());
        exit(EXIT_FAILURE);
    }
}

static void notice(void *context) { (void)context; }

static void release(void *memory, void *context)
{
    (void)memory;
    (void)context;
}

static void closed(zl_status reason, void *context)
{
    (void)reason;
    (void)context;
}

/* What the calls have for arguments that are not null. */
static zl_worker *worker;
static zl_endpoint *endpoint;
static zl_connection *connection;
static zl_options *options;
static zl_region *region;
static zl_exported *exported;
static zl_queue *queue;
static zl_pool *pool;
static zl_set *set;
static zl_incoming *incoming;
static zl_streams *streams;
static zl_stream *stream;

static void call_all(void)
{
    CALLS
}

/* A client whose request is refused. */
static void *ask(void *address)
{
    zl_connection *none;

    EXPECT(zl_connect(address, NULL, &none) == ZL_ERROR_REJECTED);
    return NULL;
}

int main(void)
{
    zl_endpoint *asking;
    zl_connection *driven, *placed, *carries;
    zl_worker *program;
    char address[ZL_ADDRESS_LENGTH], other[ZL_ADDRESS_LENGTH];
    pthread_t thread;

    EXPECT(zl_options_new(&options) == ZL_OK && zl_options_set(options, ZL_OPTION_ASKS, 1) == ZL_OK);
    EXPECT(zl_region_new(64, &region) == ZL_OK && zl_exported_new(region, 0, 64, &exported) == ZL_OK);
    EXPECT(zl_queue_new(1, &queue) == ZL_OK && zl_pool_new(&pool) == ZL_OK && zl_set_new(&set) == ZL_OK);
    EXPECT(zl_endpoint_bind("127.0.0.1:0", options, &asking) == ZL_OK);
    EXPECT(zl_endpoint_local_addr(asking, address, sizeof address) == ZL_OK);
    EXPECT(pthread_create(&thread, NULL, ask, address) == 0);
    EXPECT(zl_endpoint_incoming(asking, 20000, &incoming) == ZL_OK);
    EXPECT(zl_endpoint_bind("127.0.0.1:0", NULL, &endpoint) == ZL_OK);
    EXPECT(zl_endpoint_local_addr(endpoint, other, sizeof other) == ZL_OK);
    EXPECT(zl_connect(other, NULL, &driven) == ZL_OK);
    EXPECT(zl_connect(other, NULL, &carries) == ZL_OK);
    EXPECT(zl_streams_new(carries, ZL_ROLE_CONNECTOR, &streams) == ZL_OK);
    EXPECT(zl_streams_open(streams, NULL, 0, ZL_PRIORITY, &stream) == ZL_OK);

    /* A connection of the program, and then one of a worker, without a thread and with one. */
    EXPECT(zl_worker_new(&worker) == ZL_OK);
    connection = driven;
    call_all();
    EXPECT(zl_worker_connect(worker, other, NULL, &placed) == ZL_OK);
    connection = placed;
    call_all();
    program = worker;
    EXPECT(zl_worker_new(&worker) == ZL_OK && zl_worker_spawn(worker) == ZL_OK);
    EXPECT(zl_worker_connect(worker, other, NULL, &connection) == ZL_OK);
    call_all();
    for (size_t number = 0; number < TRIED; number++)
        if (!told[number]) {
            fprintf(stderr, "call %zu is refused for other reasons\n", number);
            return EXIT_FAILURE;
        }

    zl_incoming_refuse(incoming);
    EXPECT(pthread_join(thread, NULL) == 0);
    zl_stream_free(stream);
    zl_streams_free(streams);
    zl_connection_free(driven);
    zl_connection_free(placed);
    zl_connection_free(connection);
    zl_worker_free(worker);
    zl_worker_free(program);
    zl_endpoint_free(endpoint);
    zl_endpoint_free(asking);
    zl_exported_free(exported);
    zl_region_free(region);
    zl_queue_free(queue);
    zl_pool_free(pool);
    zl_set_free(set);
    zl_options_free(options);
    return EXIT_SUCCESS;
}
