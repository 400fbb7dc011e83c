/* Tests numbers at the ends of their ranges, at every function that takes one: 0, huge and negative. Prints the names
   of these functions, for tests/install.rs, which knows all of them. The argument is a directory. */
#define _DEFAULT_SOURCE

#include "expect.h"
#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>
#include <zerolane.h>

/* `function`, whose turn it is. */
#define ON(function) (puts(#function), function)
#define REFUSED(call) EXPECT((call) == ZL_ERROR_ARGUMENT && zl_last_error()[0] != '\0')
/* Room for a text that is not there, or is more than memory. */
#define REFUSES_ROOM(function, ...)                                                                \
    do {                                                                                           \
        REFUSED(ON(function)(__VA_ARGS__, text, 0));                                               \
        REFUSED(ON(function)(__VA_ARGS__, text, SIZE_MAX));                                        \
    } while (0)

enum { LENGTH = 4096, SMALL = 64, PIECES = 100000 };

static const uint32_t ALL = ZL_RIGHT_READ | ZL_RIGHT_WRITE | ZL_RIGHT_ATOMIC;

/* Times that no test waits for. */
static const int64_t FOREVER[] = {INT64_MAX, INT64_MAX - 1, -1, INT64_MIN};
/* Offsets and lengths that are not in a region of LENGTH bytes. */
static const size_t OUTSIDE[][2] = {
    {0, LENGTH + 1}, {LENGTH + 1, 0}, {0, SIZE_MAX},        {SIZE_MAX, 0},
    {SIZE_MAX, 1},   {1, SIZE_MAX},   {SIZE_MAX, SIZE_MAX}, {INT64_MAX, INT64_MAX},
};
/* Places that are not in a peer's memory of LENGTH bytes. */
static const uint64_t BEYOND[] = {LENGTH, INT64_MAX - 7, (uint64_t)INT64_MIN, UINT64_MAX - 7};
/* Numbers that name nothing. */
static const uint64_t NOTHING[] = {0, INT64_MAX, (uint64_t)INT64_MIN, UINT64_MAX};

#define COUNT(of) (sizeof(of) / sizeof *(of))

/* What a thread does while a call waits for it. */
struct later {
    void (*act)(void *);
    void *of;
    atomic_bool acts;
    pthread_t thread;
};

static void *act_later(void *argument)
{
    struct later *later = argument;
    const struct timespec wait = {.tv_nsec = 5000000};

    nanosleep(&wait, NULL);
    atomic_store(&later->acts, true);
    later->act(later->of);
    return NULL;
}

static void start(struct later *later, void (*act)(void *), void *of)
{
    later->act = act;
    later->of = of;
    atomic_store(&later->acts, false);
    EXPECT(pthread_create(&later->thread, NULL, act_later, later) == 0);
}

/* Whether the call waited for it. */
static bool waited(struct later *later)
{
    const bool acts = atomic_load(&later->acts);

    EXPECT(pthread_join(later->thread, NULL) == 0);
    return acts;
}

/* A connection that this program drives, whose other end a worker's thread drives; and the end's memory. */
struct ends {
    zl_worker *thread;
    zl_endpoint *endpoint;
    char address[ZL_ADDRESS_LENGTH];
    zl_connection *ours;
    zl_connection *theirs;
    zl_region *local, *memory;
    zl_exported *exported;
    /* Of the peer's memory. */
    zl_key key;
    /* What a thread posted. */
    uint64_t pending;
};

static void connect_ends(struct ends *it)
{
    EXPECT(zl_worker_new(&it->thread) == ZL_OK && zl_worker_spawn(it->thread) == ZL_OK);
    EXPECT(zl_worker_listen(it->thread, "127.0.0.1:0", NULL, &it->endpoint) == ZL_OK);
    EXPECT(zl_endpoint_local_addr(it->endpoint, it->address, sizeof it->address) == ZL_OK);
    EXPECT(zl_connect(it->address, NULL, &it->ours) == ZL_OK);
    EXPECT(zl_endpoint_accept(it->endpoint, 20000, &it->theirs) == ZL_OK);
    EXPECT(zl_region_new(LENGTH, &it->local) == ZL_OK && zl_region_new(LENGTH, &it->memory) == ZL_OK);
    EXPECT(zl_exported_new(it->memory, 0, LENGTH, &it->exported) == ZL_OK);
    EXPECT(zl_export(it->theirs, it->exported, ALL, &it->key) == ZL_OK);
}

static void end(struct ends *it)
{
    zl_connection_free(it->ours);
    zl_connection_free(it->theirs);
    zl_endpoint_free(it->endpoint);
    EXPECT(zl_worker_stop(it->thread) == ZL_OK);
    zl_exported_free(it->exported);
    zl_region_free(it->local);
    zl_region_free(it->memory);
}

/* The end of a request of the worker's thread. This program makes progress meanwhile: a lost acknowledgment is sent
   again by its calls alone. */
static zl_completion over(zl_connection *theirs, uint64_t pending, zl_connection *ours)
{
    zl_completion completion, other;
    zl_status status = ZL_TIMEOUT;

    for (int tries = 0; tries < 20000 && status == ZL_TIMEOUT; tries++) {
        EXPECT(zl_poll(ours, &other) == ZL_TIMEOUT);
        status = zl_wait_for(theirs, pending, 1, &completion);
    }
    EXPECT(status == ZL_OK);
    return completion;
}

/* The end of the request `id` that this program carries out. */
static zl_completion next(zl_connection *ours, uint64_t id)
{
    zl_completion completion;

    EXPECT(zl_wait(ours, 20000, &completion) == ZL_OK && completion.id == id);
    return completion;
}

static void memory(void)
{
    const size_t huge = (size_t)1 << 46;
    char text[ZL_ADDRESS_LENGTH];
    zl_region *region;
    zl_exported *exported;
    zl_queue *queue;
    FILE *file = tmpfile();

    EXPECT(ON(zl_region_new)(0, &region) == ZL_OK && zl_region_length(region) == 0);
    REFUSED(ON(zl_exported_new)(region, 0, 1, &exported));
    zl_region_free(region);
    REFUSED(zl_region_new(SIZE_MAX, &region));
    EXPECT(zl_region_new(INT64_MAX, &region) == ZL_ERROR_SYSTEM);
    EXPECT(ON(zl_region_wrap)(text, 0, NULL, NULL, &region) == ZL_OK);
    zl_region_free(region);
    REFUSED(zl_region_wrap(text, SIZE_MAX, NULL, NULL, &region));
    REFUSED(zl_region_wrap(text, (size_t)INT64_MIN, NULL, NULL, &region));
    void *mapped = mmap(NULL, huge, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    EXPECT(mapped != MAP_FAILED);
    EXPECT(zl_region_wrap(mapped, huge, NULL, NULL, &region) == ZL_OK);
    REFUSED(zl_exported_new(region, huge, 1, &exported));
    REFUSED(zl_exported_new(region, 8, SIZE_MAX - 7, &exported));
    EXPECT(zl_exported_new(region, huge, 0, &exported) == ZL_OK);
    zl_exported_free(exported);
    zl_region_free(region);
    EXPECT(munmap(mapped, huge) == 0);

    REFUSED(ON(zl_exported_memfd)(0, &exported));
    EXPECT(zl_exported_memfd(INT64_MAX, &exported) < 0);
    EXPECT(zl_exported_memfd(SIZE_MAX, &exported) < 0);

    EXPECT(file != NULL && fputs("content", file) >= 0 && fflush(file) == 0);
    REFUSED(ON(zl_region_map_file)(INT_MIN, 0, 1, ZL_ACCESS_READ, &region));
    EXPECT(zl_region_map_file(INT_MAX, 0, 1, ZL_ACCESS_READ, &region) == ZL_ERROR_SYSTEM);
    REFUSED(zl_region_map_file(fileno(file), 0, 1, 0, &region));
    REFUSED(zl_region_map_file(fileno(file), 0, 1, UINT32_MAX, &region));
    for (size_t n = 0; n < COUNT(BEYOND); n++)
        EXPECT(zl_region_map_file(fileno(file), BEYOND[n], 8, ZL_ACCESS_READ, &region) == ZL_ERROR_SYSTEM);
    EXPECT(zl_region_map_file(fileno(file), 1, SIZE_MAX, ZL_ACCESS_READ, &region) == ZL_ERROR_SYSTEM);
    EXPECT(zl_region_map_file(fileno(file), 0, INT64_MAX, ZL_ACCESS_READ, &region) == ZL_ERROR_SYSTEM);
    EXPECT(zl_region_map_file(fileno(file), 7, 0, ZL_ACCESS_READ, &region) == ZL_OK);
    EXPECT(zl_region_length(region) == 0);
    zl_region_free(region);
    fclose(file);

    EXPECT(ON(zl_queue_new)(0, &queue) == ZL_OK);
    zl_queue_free(queue);
    EXPECT(zl_queue_new(INT64_MAX, &queue) == ZL_ERROR_SYSTEM);
    EXPECT(zl_queue_new(SIZE_MAX, &queue) == ZL_ERROR_SYSTEM);

    const int32_t codes[] = {INT32_MIN, INT32_MAX};
    for (size_t n = 0; n < COUNT(codes); n++)
        EXPECT(strcmp(ON(zl_status_text)(codes[n]), "unknown status") == 0);
}

static void options(const char *directory)
{
    const uint32_t known[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20};
    const uint32_t unknown[] = {0, COUNT(known) + 1, INT32_MAX, UINT32_MAX};
    const uint64_t values[] = {0, INT64_MAX, (uint64_t)INT64_MIN, UINT64_MAX};
    const zl_device_options devices[] = {
        {.flags = UINT32_MAX}, {.max_connections = UINT32_MAX}, {.busy_poll = UINT32_MAX}, {.reserved = {UINT64_MAX}},
    };
    zl_options *options;
    zl_device *device;
    char text[ZL_PUBLIC_KEY_LENGTH], file[4096];

    EXPECT(zl_options_new(&options) == ZL_OK);
    for (size_t n = 0; n < COUNT(known); n++)
        for (size_t value = 0; value < COUNT(values); value++) {
            const zl_status status = ON(zl_options_set)(options, known[n], values[value]);
            EXPECT(status == ZL_OK || status == ZL_ERROR_ARGUMENT);
        }
    for (size_t n = 0; n < COUNT(unknown); n++)
        REFUSED(zl_options_set(options, unknown[n], 1));
    EXPECT(snprintf(file, sizeof file, "%s/extremes.key", directory) < (int)sizeof file);
    REFUSES_ROOM(zl_options_identity, options, file);
    for (size_t n = 0; n < COUNT(devices); n++)
        REFUSED(zl_device_open("lo", &devices[n], &device));
    /* A device needs root. */
    REFUSES_ROOM(zl_device_refused, NULL);
    zl_options_free(options);
}

static void texts(const struct ends *it)
{
    char text[ZL_ADDRESS_LENGTH];
    zl_endpoint *endpoint;

    EXPECT(zl_endpoint_bind("127.0.0.1:0", NULL, &endpoint) == ZL_OK);
    REFUSES_ROOM(zl_endpoint_local_addr, endpoint);
    REFUSES_ROOM(zl_endpoint_public_key, endpoint);
    zl_endpoint_free(endpoint);
    REFUSES_ROOM(zl_peer_addr, it->ours);
    REFUSES_ROOM(zl_local_addr, it->ours);
    REFUSES_ROOM(zl_peer_key, it->ours);
    REFUSES_ROOM(zl_peer_addr, it->theirs);
    REFUSES_ROOM(zl_local_addr, it->theirs);
    REFUSES_ROOM(zl_peer_key, it->theirs);
    REFUSES_ROOM(zl_endpoint_local_addr, it->endpoint);
    REFUSES_ROOM(zl_endpoint_public_key, it->endpoint);
}

/* Calls that another thread ends. */

static void wake(void *connection) { EXPECT(zl_wake(connection) == ZL_OK); }

static void waits(zl_connection *ours, zl_region *local)
{
    struct later later;
    zl_completion completion;
    uint64_t length;
    size_t len;
    uint64_t id;

    EXPECT(zl_post_recv(ours, local, 0, SMALL, NULL, &id) == ZL_OK);
    for (size_t n = 0; n < COUNT(FOREVER); n++) {
        start(&later, wake, ours);
        EXPECT(ON(zl_wait)(ours, FOREVER[n], &completion) == ZL_WOKEN && waited(&later));
        start(&later, wake, ours);
        EXPECT(ON(zl_announced)(ours, FOREVER[n], &length) == ZL_WOKEN && waited(&later));
        start(&later, wake, ours);
        EXPECT(ON(zl_recv_datagram)(ours, FOREVER[n], NULL, 0, &len) == ZL_WOKEN && waited(&later));
        start(&later, wake, ours);
        EXPECT(ON(zl_wait_arrived)(ours, id, 0, FOREVER[n], &length) == ZL_WOKEN && waited(&later));
        start(&later, wake, ours);
        EXPECT(zl_wait_arrived(ours, id, UINT64_MAX, FOREVER[n], &length) == ZL_WOKEN && waited(&later));
    }
    EXPECT(zl_wait(ours, 0, &completion) == ZL_TIMEOUT);
    EXPECT(zl_announced(ours, 0, &length) == ZL_TIMEOUT);
    EXPECT(zl_wait_arrived(ours, id, UINT64_MAX, 0, &length) == ZL_TIMEOUT);
    EXPECT(zl_cancel(ours, id) == ZL_OK && next(ours, id).status == ZL_ERROR_CANCELLED);
}

struct client {
    const char *address;
    zl_connection *connection;
};

static void connect_client(void *of)
{
    struct client *client = of;

    EXPECT(zl_connect(client->address, NULL, &client->connection) == ZL_OK);
}

static void accepts(struct ends *it)
{
    struct later later;
    zl_endpoint *endpoint;
    zl_connection *connection;
    zl_connection *handle;
    char address[ZL_ADDRESS_LENGTH];
    struct client one = {.address = address}, two = {.address = it->address};

    EXPECT(zl_endpoint_bind("127.0.0.1:0", NULL, &endpoint) == ZL_OK);
    EXPECT(zl_endpoint_local_addr(endpoint, address, sizeof address) == ZL_OK);
    for (size_t n = 0; n < COUNT(FOREVER); n++) {
        start(&later, connect_client, &one);
        EXPECT(ON(zl_endpoint_accept)(endpoint, FOREVER[n], &connection) == ZL_OK && waited(&later));
        zl_connection_free(one.connection);
        zl_connection_free(connection);
        start(&later, connect_client, &two);
        EXPECT(ON(zl_endpoint_accept)(it->endpoint, FOREVER[n], &handle) == ZL_OK && waited(&later));
        zl_connection_free(two.connection);
        zl_connection_free(handle);
    }
    EXPECT(zl_endpoint_accept(endpoint, 0, &connection) == ZL_TIMEOUT);
    EXPECT(zl_endpoint_accept(it->endpoint, 0, &handle) == ZL_TIMEOUT);
    zl_endpoint_free(endpoint);
}

/* Requests for connections, and private data. */
static void incoming(zl_connection *ours)
{
    struct later later;
    char text[ZL_ADDRESS_LENGTH];
    struct client client = {.address = text};
    uint8_t data[ZL_PRIVATE_DATA_LENGTH + 1] = {0};
    size_t length;
    zl_endpoint *endpoint;
    zl_incoming *incoming;
    zl_connection *accepted;
    zl_options *options;
    const size_t longer[] = {sizeof data, INT64_MAX, SIZE_MAX};

    EXPECT(zl_options_new(&options) == ZL_OK && zl_options_set(options, ZL_OPTION_ASKS, 1) == ZL_OK);
    EXPECT(zl_endpoint_bind("127.0.0.1:0", options, &endpoint) == ZL_OK);
    EXPECT(zl_endpoint_local_addr(endpoint, text, sizeof text) == ZL_OK);
    EXPECT(zl_endpoint_incoming(endpoint, 0, &incoming) == ZL_TIMEOUT);
    for (size_t n = 0; n < COUNT(FOREVER); n++) {
        start(&later, connect_client, &client);
        EXPECT(ON(zl_endpoint_incoming)(endpoint, FOREVER[n], &incoming) == ZL_OK);
        char other[ZL_ADDRESS_LENGTH];
        REFUSED(ON(zl_incoming_peer_addr)(incoming, other, 0));
        REFUSED(ON(zl_incoming_peer_key)(incoming, other, 0));
        EXPECT(ON(zl_incoming_data)(incoming, NULL, 0, &length) == ZL_OK && length == 0);
        REFUSED(zl_incoming_data(incoming, data, SIZE_MAX, &length));
        for (size_t many = 0; many < COUNT(longer); many++)
            REFUSED(ON(zl_incoming_accept)(incoming, data, longer[many], &accepted));
        EXPECT(zl_incoming_accept(incoming, data, 0, &accepted) == ZL_OK && waited(&later));
        zl_connection_free(client.connection);
        zl_connection_free(accepted);
    }
    for (size_t many = 0; many < COUNT(longer); many++)
        REFUSED(ON(zl_options_set_private_data)(options, data, longer[many]));
    EXPECT(zl_options_set_private_data(options, NULL, 0) == ZL_OK);
    EXPECT(ON(zl_peer_data)(ours, NULL, 0, &length) == ZL_OK && length == 0);
    REFUSED(zl_peer_data(ours, data, SIZE_MAX, &length));
    zl_options_free(options);
    zl_endpoint_free(endpoint);
}

static void send_from_peer(void *of)
{
    struct ends *it = of;

    EXPECT(zl_post_send(it->theirs, it->memory, 0, SMALL, NULL, &it->pending) == ZL_OK);
}

static void request_timeouts(struct ends *it)
{
    struct later later;
    char bytes[SMALL];
    size_t length;

    for (size_t n = 0; n < COUNT(FOREVER); n++) {
        EXPECT(ON(zl_set_timeout)(it->ours, FOREVER[n]) == ZL_OK);
        start(&later, send_from_peer, it);
        EXPECT(zl_recv_into(it->ours, bytes, sizeof bytes, &length) == ZL_OK && length == SMALL);
        EXPECT(waited(&later) && over(it->theirs, it->pending, it->ours).status == ZL_OK);
    }
    EXPECT(zl_set_timeout(it->ours, 0) == ZL_OK);
    EXPECT(zl_recv_into(it->ours, bytes, sizeof bytes, &length) == ZL_ERROR_TIMED_OUT);
    EXPECT(zl_set_timeout(it->ours, 20000) == ZL_OK);
}

/* Parts of a region, at functions that name one. */
static void parts(struct ends *it)
{
    zl_connection *ours = it->ours;
    zl_connection *theirs = it->theirs;
    zl_exported *exported;
    uint64_t pending;
    uint64_t id;

    for (size_t n = 0; n < COUNT(OUTSIDE); n++) {
        const size_t at = OUTSIDE[n][0], len = OUTSIDE[n][1];
        const zl_part part = {.region = it->local, .offset = at, .length = len};
        const zl_piece piece = {.remote_offset = 0, .region = it->local, .offset = at, .length = len};

        REFUSED(zl_exported_new(it->local, at, len, &exported));
        REFUSED(ON(zl_post_send)(ours, it->local, at, len, NULL, &id));
        REFUSED(ON(zl_post_recv)(ours, it->local, at, len, NULL, &id));
        REFUSED(ON(zl_post_put)(ours, &it->key, 0, it->local, at, len, NULL, &id));
        REFUSED(ON(zl_post_get)(ours, &it->key, 0, it->local, at, len, NULL, &id));
        REFUSED(ON(zl_post_message)(ours, "", 0, it->local, at, len, NULL, &id));
        REFUSED(ON(zl_post_message_recv)(ours, it->local, at, len, NULL, &id));
        REFUSED(ON(zl_post_send_vectored)(ours, &part, 1, NULL, &id));
        REFUSED(ON(zl_post_message_vectored)(ours, "", 0, &part, 1, NULL, &id));
        REFUSED(ON(zl_post_put_vectored)(ours, &it->key, &piece, 1, NULL, &id));
        REFUSED(ON(zl_post_get_vectored)(ours, &it->key, &piece, 1, NULL, &id));
        REFUSED(ON(zl_post_send)(theirs, it->local, at, len, NULL, &pending));
        REFUSED(ON(zl_post_recv)(theirs, it->local, at, len, NULL, &pending));
        REFUSED(ON(zl_post_put)(theirs, &it->key, 0, it->local, at, len, NULL, &pending));
        REFUSED(ON(zl_post_get)(theirs, &it->key, 0, it->local, at, len, NULL, &pending));
        REFUSED(ON(zl_post_message)(theirs, "", 0, it->local, at, len, NULL, &pending));
        REFUSED(ON(zl_post_message_recv)(theirs, it->local, at, len, NULL, &pending));
        REFUSED(ON(zl_post_send_vectored)(theirs, &part, 1, NULL, &pending));
        REFUSED(ON(zl_post_message_vectored)(theirs, "", 0, &part, 1, NULL, &pending));
        REFUSED(ON(zl_post_put_vectored)(theirs, &it->key, &piece, 1, NULL, &pending));
        REFUSED(ON(zl_post_get_vectored)(theirs, &it->key, &piece, 1, NULL, &pending));
    }
}

/* More than memory, of the program's own bytes. */
static void lengths(struct ends *it)
{
    const zl_part part = {.region = it->local, .offset = 0, .length = 1};
    const zl_piece piece = {.remote_offset = 0, .region = it->local, .offset = 0, .length = 1};
    const size_t many[] = {SIZE_MAX, (size_t)INT64_MIN, INT64_MAX / 8};
    zl_connection *ours = it->ours;
    zl_connection *theirs = it->theirs;
    uint64_t pending;
    char text[ZL_CONTROL_LENGTH] = {0};
    size_t length;
    uint64_t id;

    for (size_t n = 0; n < COUNT(many); n++) {
        REFUSED(zl_post_send_vectored(ours, &part, many[n], NULL, &id));
        REFUSED(zl_post_message_vectored(ours, "", 0, &part, many[n], NULL, &id));
        REFUSED(zl_post_put_vectored(ours, &it->key, &piece, many[n], NULL, &id));
        REFUSED(zl_post_get_vectored(ours, &it->key, &piece, many[n], NULL, &id));
        REFUSED(zl_post_send_vectored(theirs, &part, many[n], NULL, &pending));
        REFUSED(zl_post_message_vectored(theirs, "", 0, &part, many[n], NULL, &pending));
        REFUSED(zl_post_put_vectored(theirs, &it->key, &piece, many[n], NULL, &pending));
        REFUSED(zl_post_get_vectored(theirs, &it->key, &piece, many[n], NULL, &pending));
    }
    REFUSED(zl_post_put_vectored(ours, &it->key, &piece, 0, NULL, &id));
    REFUSED(zl_post_get_vectored(ours, &it->key, &piece, 0, NULL, &id));
    /* Far more than are posted at once. */
    zl_piece *pieces = calloc(PIECES, sizeof *pieces);
    EXPECT(pieces != NULL);
    for (size_t n = 0; n < PIECES; n++)
        pieces[n] = (zl_piece){n * 8 % LENGTH, it->local, n * 8 % LENGTH, 8};
    EXPECT(zl_post_put_vectored(ours, &it->key, pieces, PIECES, NULL, &id) == ZL_OK);
    EXPECT(zl_post_put_inline(ours, &it->key, 0, text, 8, NULL, &pending) == ZL_ERROR_TOO_MANY);
    /* A call that waits for its end waits for that of the pieces. */
    EXPECT(zl_put(ours, &it->key, 0, text, sizeof text) == ZL_OK);
    EXPECT(next(ours, id).length == PIECES * 8);
    EXPECT(zl_post_get_vectored(ours, &it->key, pieces, PIECES, NULL, &id) == ZL_OK);
    EXPECT(next(ours, id).length == PIECES * 8);
    free(pieces);
    for (size_t n = 0; n < 2; n++) {
        REFUSED(ON(zl_send)(ours, text, many[n]));
        REFUSED(ON(zl_recv_into)(ours, text, many[n], &length));
        REFUSED(ON(zl_send_datagram)(ours, text, many[n]));
        REFUSED(zl_recv_datagram(ours, 0, text, many[n], &length));
        REFUSED(ON(zl_put)(ours, &it->key, 0, text, many[n]));
        REFUSED(ON(zl_put_with_immediate)(ours, &it->key, 0, text, many[n], 0));
        REFUSED(ON(zl_get)(ours, &it->key, 0, text, many[n]));
        REFUSED(ON(zl_send_message)(ours, text, many[n], NULL, 0));
        REFUSED(zl_send_message(ours, text, 0, text, many[n]));
        REFUSED(ON(zl_recv_message)(ours, text, &length, text, many[n], &length));
        REFUSED(zl_post_message(ours, text, many[n], NULL, 0, 0, NULL, &id));
        REFUSED(zl_post_message(theirs, text, many[n], NULL, 0, 0, NULL, &pending));
        REFUSED(ON(zl_post_put_inline)(ours, &it->key, 0, text, many[n], NULL, &id));
        REFUSED(ON(zl_post_message_inline)(ours, text, 0, text, many[n], NULL, &id));
        REFUSED(zl_post_message_inline(ours, text, many[n], text, 0, NULL, &id));
    }
}

/* Nothing is moved, and that is no failure. */
static void nothing(struct ends *it)
{
    zl_connection *ours = it->ours;
    uint64_t pending;
    size_t length = 1;
    uint64_t id;

    EXPECT(zl_put(ours, &it->key, 0, NULL, 0) == ZL_OK);
    EXPECT(zl_get(ours, &it->key, 0, NULL, 0) == ZL_OK);
    EXPECT(zl_post_put_inline(ours, &it->key, 0, NULL, 0, NULL, &id) == ZL_OK);
    EXPECT(next(ours, id).status == ZL_OK);
    EXPECT(zl_post_recv(it->theirs, it->memory, LENGTH, 0, NULL, &pending) == ZL_OK);
    EXPECT(zl_send(ours, NULL, 0) == ZL_OK && over(it->theirs, pending, it->ours).status == ZL_OK);
    EXPECT(zl_post_recv(it->theirs, it->memory, 0, 0, NULL, &pending) == ZL_OK);
    EXPECT(zl_post_send_vectored(ours, NULL, 0, NULL, &id) == ZL_OK && next(ours, id).status == ZL_OK);
    EXPECT(over(it->theirs, pending, it->ours).length == 0);
    EXPECT(zl_post_send(it->theirs, it->memory, 0, 0, NULL, &pending) == ZL_OK);
    EXPECT(zl_recv_into(ours, NULL, 0, &length) == ZL_OK && length == 0);
    EXPECT(over(it->theirs, pending, it->ours).status == ZL_OK);
}

static void remote(struct ends *it)
{
    zl_connection *ours = it->ours;
    zl_connection *theirs = it->theirs;
    zl_exported *own;
    zl_key key;
    uint64_t pending;
    char text[8] = {0};
    uint64_t before;
    uint64_t id;

    /* The worker's end uses memory of this one. */
    EXPECT(zl_exported_memfd(LENGTH, &own) == ZL_OK);
    EXPECT(zl_export(ours, own, ALL, &key) == ZL_OK);
    for (size_t n = 0; n < COUNT(BEYOND); n++) {
        const zl_piece piece = {.remote_offset = BEYOND[n], .region = it->local, .offset = 0, .length = 8};

        EXPECT(zl_put(ours, &it->key, BEYOND[n], text, 8) == ZL_ERROR_OUT_OF_BOUNDS);
        EXPECT(zl_put_with_immediate(ours, &it->key, BEYOND[n], text, 8, 0) == ZL_ERROR_OUT_OF_BOUNDS);
        EXPECT(zl_get(ours, &it->key, BEYOND[n], text, 8) == ZL_ERROR_OUT_OF_BOUNDS);
        EXPECT(ON(zl_fetch_op)(ours, &it->key, BEYOND[n], ZL_FETCH_ADD, 1, 0, &before) ==
               ZL_ERROR_OUT_OF_BOUNDS);
        EXPECT(zl_post_put(ours, &it->key, BEYOND[n], it->local, 0, 8, NULL, &id) == ZL_ERROR_OUT_OF_BOUNDS);
        EXPECT(zl_post_put_inline(ours, &it->key, BEYOND[n], text, 8, NULL, &id) == ZL_ERROR_OUT_OF_BOUNDS);
        EXPECT(zl_post_get(ours, &it->key, BEYOND[n], it->local, 0, 8, NULL, &id) == ZL_ERROR_OUT_OF_BOUNDS);
        EXPECT(zl_post_put_vectored(ours, &it->key, &piece, 1, NULL, &id) == ZL_ERROR_OUT_OF_BOUNDS);
        EXPECT(zl_post_get_vectored(ours, &it->key, &piece, 1, NULL, &id) == ZL_ERROR_OUT_OF_BOUNDS);
        EXPECT(ON(zl_post_fetch_op)(ours, &it->key, BEYOND[n], ZL_FETCH_ADD, 1, 0, NULL, &id) ==
               ZL_ERROR_OUT_OF_BOUNDS);
        zl_completion completion;
        EXPECT(zl_post_put(theirs, &key, BEYOND[n], it->local, 0, 8, NULL, &pending) == ZL_OK);
        EXPECT(zl_wait_for(theirs, pending, -1, &completion) == ZL_OK &&
               completion.status == ZL_ERROR_OUT_OF_BOUNDS);
        EXPECT(zl_post_get(theirs, &key, BEYOND[n], it->local, 0, 8, NULL, &pending) == ZL_OK);
        EXPECT(zl_wait_for(theirs, pending, -1, &completion) == ZL_OK &&
               completion.status == ZL_ERROR_OUT_OF_BOUNDS);
        EXPECT(ON(zl_post_fetch_op)(theirs, &key, BEYOND[n], ZL_FETCH_ADD, 1, 0, NULL, &pending) == ZL_OK);
        EXPECT(zl_wait_for(theirs, pending, -1, &completion) == ZL_OK &&
               completion.status == ZL_ERROR_OUT_OF_BOUNDS);
    }
    REFUSED(zl_fetch_op(ours, &it->key, 0, UINT32_MAX, 1, 0, &before));
    REFUSED(zl_post_fetch_op(ours, &it->key, 0, UINT32_MAX, 1, 0, NULL, &id));
    REFUSED(zl_post_fetch_op(theirs, &key, 0, UINT32_MAX, 1, 0, NULL, &pending));
    /* Words keep all of their bits. */
    EXPECT(zl_fetch_op(ours, &it->key, 0, ZL_FETCH_ADD, UINT64_MAX, 0, &before) == ZL_OK && before == 0);
    EXPECT(zl_fetch_op(ours, &it->key, 0, ZL_FETCH_SWAP, INT64_MAX, 0, &before) == ZL_OK);
    EXPECT(before == UINT64_MAX);
    EXPECT(zl_fetch_op(ours, &it->key, 0, ZL_FETCH_COMPARE_AND_SWAP, (uint64_t)INT64_MIN, INT64_MAX, &before) ==
           ZL_OK);
    EXPECT(before == INT64_MAX);
    EXPECT(zl_fetch_op(ours, &it->key, 0, ZL_FETCH_CLEAR, 0, 0, &before) == ZL_OK);
    EXPECT(before == (uint64_t)INT64_MIN);
    EXPECT(zl_revoke(ours, &key) == ZL_OK);
    zl_exported_free(own);
}

static void rights(struct ends *it)
{
    const uint32_t unknown[] = {UINT32_MAX, INT32_MAX, (uint32_t)INT32_MIN, ALL + 1};
    uint64_t pending;
    zl_key key;
    uint64_t id;

    for (size_t n = 0; n < COUNT(unknown); n++) {
        REFUSED(ON(zl_export)(it->ours, it->exported, unknown[n], &key));
        REFUSED(ON(zl_export_named)(it->ours, "name", it->exported, unknown[n], &key));
        REFUSED(ON(zl_open_region)(it->ours, "name", unknown[n], &key));
        REFUSED(ON(zl_post_open_region)(it->ours, "name", unknown[n], NULL, &id));
        REFUSED(ON(zl_export)(it->theirs, it->exported, unknown[n], &key));
        REFUSED(ON(zl_export_named)(it->theirs, "name", it->exported, unknown[n], &key));
        REFUSED(ON(zl_post_open_region)(it->theirs, "name", unknown[n], NULL, &pending));
        REFUSED(ON(zl_endpoint_export)(it->endpoint, "name", it->exported, unknown[n]));
    }
    /* A name has 1 to 32 bytes. */
    REFUSED(zl_export_named(it->ours, "", it->exported, ALL, &key));
    REFUSED(zl_open_region(it->ours, "", ALL, &key));
    REFUSED(zl_open_region(it->ours, "a name of more than 32 bytes in all", ALL, &key));
    EXPECT(strstr(zl_last_error(), "1 to 32 bytes") != NULL);
    /* No right is a right set, too. */
    EXPECT(zl_export(it->ours, it->exported, 0, &key) == ZL_OK && zl_revoke(it->ours, &key) == ZL_OK);
    EXPECT(zl_open_region(it->ours, "none", 0, &key) == ZL_ERROR_UNKNOWN);
}

/* Numbers of regions are below 2^24. */
static void numbers(struct ends *it)
{
    const uint32_t wrong[] = {1 << 24, INT32_MAX, (uint32_t)INT32_MIN, UINT32_MAX};
    const uint32_t least_and_most[] = {0, (1 << 24) - 1};
    zl_worker *worker;
    zl_key key;
    uint64_t value;

    EXPECT(zl_worker_new(&worker) == ZL_OK);
    for (size_t n = 0; n < COUNT(wrong); n++) {
        REFUSED(ON(zl_key_numbered)(wrong[n], 0, &key));
        REFUSED(ON(zl_export_numbered)(it->ours, wrong[n], it->exported, ALL, &key));
        REFUSED(ON(zl_export_numbered)(it->theirs, wrong[n], it->exported, ALL, &key));
        REFUSED(ON(zl_worker_export_numbered)(worker, wrong[n], it->exported, ALL));
        REFUSED(ON(zl_worker_revoke_number)(worker, wrong[n]));
        REFUSED(ON(zl_worker_export_numbered)(it->thread, wrong[n], it->exported, ALL));
        REFUSED(ON(zl_worker_revoke_number)(it->thread, wrong[n]));
    }
    for (size_t n = 0; n < COUNT(least_and_most); n++) {
        const uint32_t number = least_and_most[n];

        REFUSED(zl_export_numbered(it->ours, number, it->exported, UINT32_MAX, &key));
        REFUSED(zl_export_numbered(it->theirs, number, it->exported, UINT32_MAX, &key));
        REFUSED(zl_worker_export_numbered(worker, number, it->exported, UINT32_MAX));
        REFUSED(zl_worker_export_numbered(it->thread, number, it->exported, UINT32_MAX));
        EXPECT(zl_worker_export_numbered(it->thread, number, it->exported, ALL) == ZL_OK);
        EXPECT(zl_key_numbered(number, 0, &key) == ZL_OK);
        EXPECT(zl_put(it->ours, &key, LENGTH - 8, "12345678", 8) == ZL_OK);
        for (size_t at = 0; at < COUNT(BEYOND); at++)
            EXPECT(zl_put(it->ours, &key, BEYOND[at], "12345678", 8) == ZL_ERROR_OUT_OF_BOUNDS);
        EXPECT(zl_worker_revoke_number(it->thread, number) == ZL_OK);
        EXPECT(zl_put(it->ours, &key, 0, "12345678", 8) == ZL_ERROR_UNKNOWN);
    }
    EXPECT(zl_key_numbered(1, UINT64_MAX, &key) == ZL_OK && zl_key_length(&key) == 0);
    REFUSED(zl_key_to_u64(&key, &value));
    for (size_t n = 0; n < COUNT(NOTHING); n++)
        EXPECT(ON(zl_key_from_u64)(NOTHING[n], &key) == ZL_OK && zl_key_to_u64(&key, &value) == ZL_OK &&
               value == NOTHING[n]);
    zl_worker_free(worker);
}

/* Words of exported memory that are not there. */
static void own_words(const struct ends *it)
{
    const size_t beyond[] = {LENGTH, LENGTH - 4, INT64_MAX - 7, SIZE_MAX - 7};
    uint64_t before;

    for (size_t n = 0; n < COUNT(beyond); n++)
        EXPECT(ON(zl_exported_fetch_op)(it->exported, beyond[n], ZL_FETCH_ADD, 1, 0, &before) != ZL_OK);
    REFUSED(zl_exported_fetch_op(it->exported, 0, UINT32_MAX, 1, 0, &before));
    REFUSED(zl_exported_fetch_op(it->exported, 0, ZL_FETCH_ADD | ZL_FETCH_U32, 1UL << 32, 0, &before));
    REFUSED(zl_exported_fetch_op(it->exported, 0, ZL_FETCH_SWAP | ZL_FETCH_U32, UINT64_MAX, 0, &before));
    EXPECT(zl_exported_fetch_op(it->exported, LENGTH - 8, ZL_FETCH_SWAP, UINT64_MAX, 0, &before) == ZL_OK);
    EXPECT(zl_exported_fetch_op(it->exported, LENGTH - 4, ZL_FETCH_CLEAR | ZL_FETCH_U32, 0, 0, &before) == ZL_OK &&
           before == UINT32_MAX);
}

static void sets(struct ends *it)
{
    zl_set *set;
    zl_completion completion;
    uint64_t token;
    size_t count;

    EXPECT(zl_set_new(&set) == ZL_OK);
    for (size_t n = 0; n < COUNT(NOTHING); n++) {
        EXPECT(ON(zl_set_signal)(set, NOTHING[n]) == ZL_OK);
        EXPECT(ON(zl_set_wait)(set, FOREVER[n], &token) == ZL_OK && token == NOTHING[n]);
        EXPECT(zl_post_recv(it->theirs, it->memory, 0, 0, NULL, &it->pending) == ZL_OK);
        EXPECT(ON(zl_set_add)(set, it->theirs, it->pending, NOTHING[n]) == ZL_OK);
        EXPECT(zl_send(it->ours, NULL, 0) == ZL_OK);
        EXPECT(zl_set_wait(set, FOREVER[n], &token) == ZL_OK && token == NOTHING[n]);
        EXPECT(zl_wait_for(it->theirs, it->pending, 0, &completion) == ZL_OK && completion.length == 0);
    }
    REFUSED(ON(zl_set_poll_batch)(set, &token, 0, &count));
    REFUSED(zl_set_poll_batch(set, &token, SIZE_MAX, &count));
    zl_set_free(set);
}

static void open_stream(void *of)
{
    zl_stream *stream;

    EXPECT(zl_streams_open(of, NULL, 0, 0, &stream) == ZL_OK);
    zl_stream_free(stream);
}

static void reset_stream(void *of) { EXPECT(zl_stream_reset(of, "") == ZL_OK); }

static void free_streams(void *of) { zl_streams_free(of); }

/* Streams over a connection of their own. */
static void streams(const struct ends *it)
{
    static uint8_t purpose[1025];
    static char text[1 << 20];
    const size_t longer[] = {sizeof purpose, INT64_MAX, SIZE_MAX};
    const zl_bytes huge[] = {{text, INT64_MAX}, {text, INT64_MAX}, {text, INT64_MAX}};
    const zl_bytes wrong[] = {{text, SIZE_MAX}, {NULL, 1}};
    struct client client = {.address = NULL};
    struct later later;
    char address[ZL_ADDRESS_LENGTH];
    zl_connection *accepted;
    zl_endpoint *endpoint;
    zl_streams *ours, *peers;
    zl_stream *one, *other;
    zl_set *set;
    uint64_t token;
    size_t length;

    EXPECT(zl_set_new(&set) == ZL_OK && zl_endpoint_bind("127.0.0.1:0", NULL, &endpoint) == ZL_OK);
    EXPECT(zl_endpoint_local_addr(endpoint, address, sizeof address) == ZL_OK);
    client.address = address;
    start(&later, connect_client, &client);
    EXPECT(zl_endpoint_accept(endpoint, 20000, &accepted) == ZL_OK);
    waited(&later);
    REFUSED(ON(zl_streams_new)(client.connection, 0, &ours));
    REFUSED(zl_streams_new(client.connection, 3, &ours));
    REFUSED(zl_streams_new(client.connection, UINT32_MAX, &ours));
    REFUSED(zl_streams_new(it->theirs, ZL_ROLE_ACCEPTOR, &peers));
    EXPECT(zl_streams_new(client.connection, ZL_ROLE_CONNECTOR, &ours) == ZL_OK);
    EXPECT(zl_streams_new(accepted, ZL_ROLE_ACCEPTOR, &peers) == ZL_OK);
    for (size_t n = 0; n < COUNT(longer); n++)
        REFUSED(ON(zl_streams_open)(ours, purpose, longer[n], 0, &one));
    REFUSED(zl_streams_open(ours, purpose, 0, 8, &one));
    REFUSED(zl_streams_open(ours, purpose, 0, UINT8_MAX, &one));
    for (size_t n = 0; n < COUNT(FOREVER); n++) {
        start(&later, open_stream, ours);
        EXPECT(ON(zl_streams_accept)(peers, FOREVER[n], &other) == ZL_OK && waited(&later));
        zl_stream_free(other);
        EXPECT(ON(zl_streams_watch)(peers, set, NOTHING[n]) == ZL_OK);
        EXPECT(zl_streams_open(ours, purpose, 1024, 7, &one) == ZL_OK);
        EXPECT(zl_set_wait(set, FOREVER[n], &token) == ZL_OK && token == NOTHING[n]);
        EXPECT(zl_streams_accept(peers, 0, &other) == ZL_OK);
        EXPECT(ON(zl_stream_purpose)(other, NULL, 0, &length) == ZL_ERROR_TOO_LARGE && length == 1024);
        REFUSED(zl_stream_purpose(other, purpose, SIZE_MAX, &length));
        EXPECT(ON(zl_stream_accepted)(one, FOREVER[n]) == ZL_OK);
        EXPECT(ON(zl_stream_write)(one, FOREVER[n], text, 0, &length) == ZL_OK && length == 0);
        EXPECT(ON(zl_stream_read)(other, FOREVER[n], text, 0, &length) == ZL_OK && length == 0);
        REFUSED(zl_stream_write(one, FOREVER[n], text, SIZE_MAX, &length));
        REFUSED(zl_stream_read(one, FOREVER[n], text, SIZE_MAX, &length));
        REFUSED(zl_stream_write(one, FOREVER[n], NULL, 1, &length));
        REFUSED(ON(zl_stream_write_vectored)(one, FOREVER[n], huge, 3, &length));
        REFUSED(ON(zl_stream_read_vectored)(one, FOREVER[n], huge, 3, &length));
        REFUSED(zl_stream_write_vectored(one, FOREVER[n], wrong, 1, &length));
        REFUSED(zl_stream_read_vectored(one, FOREVER[n], wrong + 1, 1, &length));
        REFUSED(zl_stream_write_vectored(one, FOREVER[n], huge, SIZE_MAX, &length));
        REFUSED(zl_stream_read_vectored(one, FOREVER[n], huge, SIZE_MAX, &length));
        REFUSED(ON(zl_stream_watch)(other, 0, set, NOTHING[n]));
        REFUSED(zl_stream_watch(other, UINT32_MAX, set, NOTHING[n]));
        EXPECT(zl_stream_watch(other, ZL_READY_READ, set, NOTHING[n]) == ZL_OK);
        EXPECT(zl_set_wait(set, 0, &token) == ZL_TIMEOUT);
        EXPECT(zl_stream_read(other, 0, text, sizeof text, &length) == ZL_TIMEOUT);
        start(&later, reset_stream, one);
        EXPECT(zl_stream_read(other, FOREVER[n], text, sizeof text, &length) == ZL_ERROR_RESET);
        EXPECT(waited(&later) && zl_set_wait(set, FOREVER[n], &token) == ZL_OK && token == NOTHING[n]);
        zl_stream_free(one);
        zl_stream_free(other);
    }
    EXPECT(zl_streams_accept(peers, 0, &other) == ZL_TIMEOUT);
    EXPECT(zl_streams_open(ours, NULL, 0, 0, &one) == ZL_OK && zl_streams_accept(peers, -1, &other) == ZL_OK);
    while (zl_stream_write(one, 100, text, sizeof text, &length) == ZL_OK)
        ;
    EXPECT(ON(zl_streams_close)(ours, 0) == ZL_TIMEOUT);
    start(&later, free_streams, peers);
    EXPECT(zl_streams_close(ours, INT64_MAX) == ZL_OK);
    waited(&later);
    EXPECT(zl_streams_close(ours, INT64_MIN) == ZL_OK);
    zl_streams_free(ours);
    zl_stream_free(one);
    zl_stream_free(other);
    zl_endpoint_free(endpoint);
    zl_set_free(set);
}

static void no_notice(void *context)
{
    (void)context;
}

static void pools(const struct ends *it)
{
    zl_pool *pool;
    uint64_t context;

    EXPECT(zl_pool_new(&pool) == ZL_OK);
    for (size_t n = 0; n < COUNT(OUTSIDE); n++)
        REFUSED(ON(zl_pool_add)(pool, it->memory, OUTSIDE[n][0], OUTSIDE[n][1], 0));
    for (size_t n = 0; n < COUNT(NOTHING); n++) {
        EXPECT(zl_pool_add(pool, it->memory, LENGTH, 0, NOTHING[n]) == ZL_OK);
        EXPECT(ON(zl_pool_notify_below)(pool, NOTHING[n], no_notice, NULL) == ZL_OK);
        EXPECT(zl_pool_remove(pool, &context) == ZL_OK && context == NOTHING[n]);
    }
    zl_pool_free(pool);
}

/* A connection that is over, and what is told of it. */
static void ended(const struct ends *it)
{
    zl_connection *ours;
    zl_connection *theirs;
    zl_completion completion;
    char text[SMALL];
    size_t length;

    EXPECT(zl_connect(it->address, NULL, &ours) == ZL_OK);
    EXPECT(zl_endpoint_accept(it->endpoint, 20000, &theirs) == ZL_OK);
    REFUSED(ON(zl_honour_delivery)(ours, UINT32_MAX));
    REFUSED(ON(zl_account_json)(ours, text, 0, &length));
    REFUSED(zl_account_json(ours, text, SIZE_MAX, &length));
    REFUSED(ON(zl_account_json)(theirs, text, 0, &length));
    REFUSED(zl_account_json(theirs, text, SIZE_MAX, &length));
    REFUSED(zl_honour_delivery(theirs, UINT32_MAX));
    EXPECT(ON(zl_wait)(theirs, 0, &completion) == ZL_TIMEOUT);
    zl_connection_free(ours);
    for (size_t n = 0; n < COUNT(FOREVER); n++)
        EXPECT(zl_wait(theirs, FOREVER[n], &completion) == ZL_ERROR_CLOSED);
    zl_connection_free(theirs);
}

static void ids(zl_connection *ours)
{
    zl_completion completion;
    zl_path path;
    uint64_t bytes;
    size_t count;
    zl_set *set;

    EXPECT(zl_set_new(&set) == ZL_OK);

    for (size_t n = 0; n < COUNT(NOTHING); n++) {
        REFUSED(ON(zl_cancel)(ours, NOTHING[n]));
        REFUSED(ON(zl_notify)(ours, NOTHING[n]));
        REFUSED(ON(zl_arrived)(ours, NOTHING[n], &bytes));
        REFUSED(zl_wait_arrived(ours, NOTHING[n], UINT64_MAX, INT64_MAX, &bytes));
        REFUSED(ON(zl_wait_for)(ours, NOTHING[n], FOREVER[n], &completion));
        REFUSED(zl_set_add(set, ours, NOTHING[n], 0));
    }
    zl_set_free(set);
    REFUSED(ON(zl_remove_path)(ours, 0));
    EXPECT(zl_remove_path(ours, INT32_MAX) == ZL_OK && zl_remove_path(ours, UINT32_MAX) == ZL_OK);
    REFUSED(ON(zl_poll_batch)(ours, &completion, 0, &count));
    REFUSED(zl_poll_batch(ours, &completion, SIZE_MAX, &count));
    REFUSED(ON(zl_paths_read)(ours, &path, 0, &count));
    REFUSED(zl_paths_read(ours, &path, SIZE_MAX, &count));
}

struct put {
    const struct ends *ends;
    uint32_t immediate;
};

static void put_immediate(void *of)
{
    const struct put *put = of;

    EXPECT(zl_put_with_immediate(put->ends->ours, &put->ends->key, 0, NULL, 0, put->immediate) == ZL_OK);
}

static void send_to_peer(void *of)
{
    const struct ends *it = of;

    EXPECT(zl_send(it->ours, zl_region_data(it->local), LENGTH) == ZL_OK);
}

static void announce_to_peer(void *of)
{
    const struct ends *it = of;
    uint64_t id;
    zl_completion completion;

    EXPECT(zl_post_send(it->ours, it->local, 0, LENGTH, NULL, &id) == ZL_OK);
    EXPECT(zl_poll(it->ours, &completion) == ZL_TIMEOUT);
}

static void handles(struct ends *it)
{
    const uint32_t immediates[] = {0, INT32_MAX, (uint32_t)INT32_MIN, UINT32_MAX};
    struct later later;
    uint64_t pending;
    zl_completion completion;
    zl_status status;
    uint64_t bytes;

    for (size_t n = 0; n < COUNT(FOREVER); n++) {
        struct put put = {.ends = it, .immediate = immediates[n]};
        start(&later, put_immediate, &put);
        EXPECT(zl_wait(it->theirs, FOREVER[n], &completion) == ZL_OK && waited(&later));
        EXPECT(completion.kind == ZL_KIND_IMMEDIATE && completion.value == immediates[n]);

        EXPECT(zl_post_recv(it->theirs, it->memory, 0, LENGTH, NULL, &pending) == ZL_OK);
        start(&later, send_to_peer, it);
        EXPECT(ON(zl_wait_for)(it->theirs, pending, FOREVER[n], &completion) == ZL_OK && waited(&later));
        EXPECT(completion.status == ZL_OK && completion.length == LENGTH);

        EXPECT(zl_post_recv(it->theirs, it->memory, 0, LENGTH, NULL, &pending) == ZL_OK);
        EXPECT(zl_wait_for(it->theirs, pending, 0, &completion) == ZL_TIMEOUT);
        EXPECT(zl_wait_arrived(it->theirs, pending, UINT64_MAX, 0, &bytes) == ZL_TIMEOUT);
        start(&later, send_to_peer, it);
        /* It may be over before it is asked. */
        status = ON(zl_wait_arrived)(it->theirs, pending, 0, FOREVER[n], &bytes);
        EXPECT((status == ZL_OK && bytes > 0) || status == ZL_ERROR_ARGUMENT);
        EXPECT(waited(&later) && over(it->theirs, pending, it->ours).status == ZL_OK);

        start(&later, announce_to_peer, it);
        EXPECT(ON(zl_announced)(it->theirs, FOREVER[n], &bytes) == ZL_OK && waited(&later));
        EXPECT(bytes == LENGTH);
        EXPECT(zl_post_recv(it->theirs, it->memory, 0, LENGTH, NULL, &pending) == ZL_OK);
        EXPECT(zl_wait(it->ours, 20000, &completion) == ZL_OK && completion.status == ZL_OK);
        EXPECT(over(it->theirs, pending, it->ours).status == ZL_OK);
    }
    EXPECT(zl_wait(it->theirs, 0, &completion) == ZL_TIMEOUT);
    EXPECT(zl_announced(it->theirs, 0, &bytes) == ZL_TIMEOUT);
}

static void hand_over(void *ours)
{
    zl_completion completion;

    EXPECT(zl_wait(ours, 0, &completion) == ZL_WOKEN);
}

/* Last, because completions go to the queue from then on. */
static void queues(struct ends *it)
{
    struct later later;
    zl_queue *queue;
    zl_completion completion;
    size_t count;
    uint64_t id;

    EXPECT(zl_queue_new(4, &queue) == ZL_OK);
    REFUSED(ON(zl_queue_poll_batch)(queue, &completion, 0, &count));
    REFUSED(zl_queue_poll_batch(queue, &completion, SIZE_MAX, &count));
    for (size_t n = 0; n < COUNT(FOREVER); n++) {
        EXPECT(ON(zl_set_completion_queue)(it->ours, queue, NOTHING[n]) == ZL_OK);
        EXPECT(zl_post_recv(it->ours, it->local, 0, SMALL, NULL, &id) == ZL_OK);
        EXPECT(ON(zl_queue_wait)(queue, 0, &completion) == ZL_TIMEOUT);
        EXPECT(zl_cancel(it->ours, id) == ZL_OK);
        start(&later, hand_over, it->ours);
        EXPECT(zl_queue_wait(queue, FOREVER[n], &completion) == ZL_OK && waited(&later));
        EXPECT(completion.id == id && completion.tag == NOTHING[n]);
        EXPECT(completion.status == ZL_ERROR_CANCELLED);
    }
    zl_queue_free(queue);
}

static void wake_worker(void *worker) { EXPECT(zl_worker_wake(worker) == ZL_OK); }

static void workers(zl_exported *exported)
{
    struct later later;
    zl_worker *worker;
    zl_endpoint *endpoint;
    zl_event event;
    size_t count;
    char text[ZL_ADDRESS_LENGTH];

    EXPECT(zl_worker_new(&worker) == ZL_OK);
    EXPECT(zl_worker_listen(worker, "127.0.0.1:0", NULL, &endpoint) == ZL_OK);
    REFUSES_ROOM(zl_endpoint_local_addr, endpoint);
    REFUSES_ROOM(zl_endpoint_public_key, endpoint);
    REFUSED(ON(zl_endpoint_export)(endpoint, "name", exported, UINT32_MAX));
    REFUSED(ON(zl_worker_accept_request)(worker, NULL, (uint8_t *)text, SIZE_MAX));
    REFUSED(ON(zl_worker_events)(worker, &event, 0, &count));
    REFUSED(zl_worker_events(worker, &event, SIZE_MAX, &count));
    /* However long it polls, it ends in time. */
    const uint32_t spins[] = {0, UINT32_MAX};
    for (size_t spin = 0; spin < COUNT(spins); spin++) {
        EXPECT(ON(zl_worker_set_spin)(worker, spins[spin]) == ZL_OK);
        EXPECT(ON(zl_worker_wait)(worker, 0) == ZL_TIMEOUT && zl_worker_wait(worker, 1) == ZL_TIMEOUT);
        for (size_t n = 0; n < COUNT(FOREVER); n++) {
            start(&later, wake_worker, worker);
            EXPECT(zl_worker_wait(worker, FOREVER[n]) == ZL_WOKEN && waited(&later));
        }
    }
    zl_endpoint_free(endpoint);
    zl_worker_free(worker);
}

int main(int arguments, char **argument)
{
    struct ends ends;

    EXPECT(arguments == 2);
    memory();
    options(argument[1]);
    connect_ends(&ends);
    texts(&ends);
    waits(ends.ours, ends.local);
    accepts(&ends);
    incoming(ends.ours);
    request_timeouts(&ends);
    parts(&ends);
    lengths(&ends);
    nothing(&ends);
    remote(&ends);
    rights(&ends);
    ids(ends.ours);
    ids(ends.theirs);
    numbers(&ends);
    own_words(&ends);
    sets(&ends);
    pools(&ends);
    streams(&ends);
    ended(&ends);
    handles(&ends);
    queues(&ends);
    workers(ends.exported);
    end(&ends);
    return EXIT_SUCCESS;
}
