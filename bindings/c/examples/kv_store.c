/*
 * Stores the key-value cache of a language model. Prefill puts the blocks of a request at the places in the page table,
 * scattered over the store, and notifies the store with the last one; decode reads them. The store is passive: a
 * worker's thread serves its memory while its own thread does something else.
 *
 *   cc -std=c11 kv_store.c $(pkg-config --cflags --libs zerolane) -o kv_store && ./kv_store
 */
#define _POSIX_C_SOURCE 200809L

#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <zerolane.h>

enum { REQUESTS = 8, LAYERS = 16, BLOCK = 32 << 10, BLOCKS = REQUESTS * LAYERS, PATIENCE_MS = 20000 };

/* The memory that the store exports. */
struct cache {
    _Atomic uint64_t ready[REQUESTS];
    unsigned char blocks[BLOCKS][BLOCK];
};

/* Ends the process with the library's error text if a call failed. */
static void check(zl_status status, const char *call)
{
    if (status != ZL_OK) {
        fprintf(stderr, "%s: %s: %s\n", call, zl_status_text(status), zl_last_error());
        exit(EXIT_FAILURE);
    }
}

static void fail(const char *why)
{
    fprintf(stderr, "%s\n", why);
    exit(EXIT_FAILURE);
}

/* The page table: the place of a layer's block. Neighbours lie far apart. */
static uint64_t place_of(unsigned request, unsigned layer)
{
    const unsigned block = (request * LAYERS + layer) * 37 % BLOCKS;
    return offsetof(struct cache, blocks) + (uint64_t)block * BLOCK;
}

static unsigned char expected(unsigned request, unsigned layer, size_t index)
{
    return (unsigned char)((request * 131 + layer * 31 + index) * 2654435761u >> 24);
}

/* One request's blocks, as pieces of `region`. */
static void pieces_of(unsigned request, const zl_region *region, zl_piece *pieces)
{
    for (unsigned layer = 0; layer < LAYERS; layer++)
        pieces[layer] = (zl_piece){
            .remote_offset = place_of(request, layer),
            .region = region,
            .offset = (size_t)layer * BLOCK,
            .length = BLOCK,
        };
}

/* The store's address, which the store sends when this end may begin. */
static zl_connection *connect_to_store(int pipe)
{
    char address[ZL_ADDRESS_LENGTH];
    zl_connection *connection;

    if (read(pipe, address, sizeof address) != sizeof address)
        fail("no address");
    check(zl_connect(address, NULL, &connection), "connect");
    check(zl_set_timeout(connection, PATIENCE_MS), "timeout");
    return connection;
}

static void await(zl_connection *connection, uint64_t id, const char *what)
{
    zl_completion completion;

    check(zl_wait(connection, PATIENCE_MS, &completion), what);
    check(completion.status, what);
    if (completion.id != id)
        fail("another request ended");
}

static void prefill(int pipe)
{
    zl_connection *store = connect_to_store(pipe);
    zl_piece pieces[LAYERS];
    zl_region *region;
    zl_key cache;
    uint64_t id;

    check(zl_open_region(store, "cache", ZL_RIGHT_WRITE, &cache), "open");
    check(zl_region_new((size_t)LAYERS * BLOCK, &region), "allocate");
    for (unsigned request = 0; request < REQUESTS; request++) {
        unsigned char *bytes = zl_region_data(region);
        for (unsigned layer = 0; layer < LAYERS; layer++)
            for (size_t i = 0; i < BLOCK; i++)
                bytes[(size_t)layer * BLOCK + i] = expected(request, layer, i);
        pieces_of(request, region, pieces);
        /* The store gets this number when all pieces are placed. */
        const zl_work tell = {.flags = ZL_WORK_IMMEDIATE, .immediate = request};
        check(zl_post_put_vectored(store, &cache, pieces, LAYERS, &tell, &id), "put");
        await(store, id, "put");
    }
    zl_region_free(region);
    check(zl_close(store), "close");
}

static void decode(int pipe)
{
    const struct timespec millisecond = {.tv_nsec = 1000000};
    zl_connection *store = connect_to_store(pipe);
    zl_piece pieces[LAYERS];
    zl_region *region;
    zl_key cache;
    uint64_t id;

    check(zl_open_region(store, "cache", ZL_RIGHT_READ, &cache), "open");
    check(zl_region_new((size_t)LAYERS * BLOCK, &region), "allocate");
    for (unsigned request = 0; request < REQUESTS; request++) {
        uint64_t ready = 0;
        for (int tries = 0; ready == 0; tries++) {
            const uint64_t word = offsetof(struct cache, ready) + request * sizeof ready;
            check(zl_get(store, &cache, word, &ready, sizeof ready), "get");
            if (tries == PATIENCE_MS)
                fail("the request is not there");
            if (ready == 0)
                nanosleep(&millisecond, NULL);
        }
        pieces_of(request, region, pieces);
        check(zl_post_get_vectored(store, &cache, pieces, LAYERS, NULL, &id), "get");
        await(store, id, "get");
        const unsigned char *bytes = zl_region_data(region);
        for (unsigned layer = 0; layer < LAYERS; layer++)
            for (size_t i = 0; i < BLOCK; i++)
                if (bytes[(size_t)layer * BLOCK + i] != expected(request, layer, i))
                    fail("a wrong byte");
    }
    zl_region_free(region);
    check(zl_close(store), "close");
}

/* A child process, and the pipe that sends it the address. */
static pid_t begin(void (*run)(int), int *told)
{
    int pipes[2];

    if (pipe(pipes) != 0)
        fail("pipe");
    pid_t child = fork();
    if (child < 0)
        fail("fork");
    if (child == 0) {
        close(pipes[1]);
        run(pipes[0]);
        _exit(EXIT_SUCCESS);
    }
    close(pipes[0]);
    *told = pipes[1];
    return child;
}

int main(void)
{
    char address[ZL_ADDRESS_LENGTH] = {0};
    int tell_prefill, tell_decode, prefilled, decoded;
    zl_worker *worker;
    zl_endpoint *endpoint;
    zl_connection *prefiller;
    zl_region *region;
    zl_exported *exported;
    zl_completion put;

    /* Before the worker's thread starts. */
    pid_t prefiller_process = begin(prefill, &tell_prefill);
    pid_t decoder_process = begin(decode, &tell_decode);

    check(zl_region_new(sizeof(struct cache), &region), "allocate");
    struct cache *cache = zl_region_data(region);
    check(zl_exported_new(region, 0, sizeof *cache, &exported), "export");
    check(zl_worker_new(&worker), "worker");
    check(zl_worker_spawn(worker), "spawn");
    check(zl_worker_listen(worker, "127.0.0.1:0", NULL, &endpoint), "listen");
    check(zl_endpoint_export(endpoint, "cache", exported, ZL_RIGHT_READ | ZL_RIGHT_WRITE), "export");
    check(zl_endpoint_local_addr(endpoint, address, sizeof address), "address");

    if (write(tell_prefill, address, sizeof address) != sizeof address)
        fail("pipe");
    check(zl_endpoint_accept(endpoint, PATIENCE_MS, &prefiller), "accept");
    /* The worker serves decode's connection without zl_endpoint_accept. */
    if (write(tell_decode, address, sizeof address) != sizeof address)
        fail("pipe");
    for (int requests = 0; requests < REQUESTS; requests++) {
        const zl_status told = zl_wait(prefiller, PATIENCE_MS, &put);
        check(told, "notification");
        if (told != ZL_OK || put.kind != ZL_KIND_IMMEDIATE || put.value >= REQUESTS)
            fail("there is no such request");
        atomic_store_explicit(&cache->ready[put.value], 1, memory_order_release);
    }
    /* From here on this thread makes no call for its peers. */
    if (waitpid(prefiller_process, &prefilled, 0) < 0 || waitpid(decoder_process, &decoded, 0) < 0 ||
        prefilled != 0 || decoded != 0)
        fail("prefill or decode failed");

    zl_connection_free(prefiller);
    zl_endpoint_free(endpoint);
    check(zl_worker_stop(worker), "stop");
    zl_exported_free(exported);
    zl_region_free(region);
    printf("%d requests of %d scattered blocks put and read, all right\n", REQUESTS, LAYERS);
    return EXIT_SUCCESS;
}
