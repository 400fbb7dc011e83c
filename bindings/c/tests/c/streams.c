/* Tests streams: content of many sizes, thousands beside one that nobody reads, half-close, resets, and ends that die.
   Run by tests/install.rs. */
#define _DEFAULT_SOURCE

#include "pair.h"
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <zerolane.h>

enum { MANY = 1000, LONG_MS = 60000, BYTES = 3000000 };

static unsigned char byte_at(size_t seed, size_t at)
{
    return (unsigned char)((at + seed) * 2654435761u >> 13 ^ at >> 16);
}

static unsigned char *content(size_t seed, size_t length)
{
    unsigned char *bytes = malloc(length + 1);

    EXPECT(bytes != NULL);
    for (size_t n = 0; n < length; n++)
        bytes[n] = byte_at(seed, n);
    return bytes;
}

static void write_all(zl_stream *stream, const unsigned char *bytes, size_t length)
{
    for (size_t at = 0, written; at < length; at += written)
        EXPECT(zl_stream_write(stream, LONG_MS, bytes + at, length - at, &written) == ZL_OK);
}

/* Both ends of streams, over a connection of their own. */
static void make_streams(zl_streams **ours, zl_streams **peers)
{
    zl_connection *connected, *accepted;

    connect_pair(&connected, &accepted);
    EXPECT(zl_streams_new(connected, 0, ours) == ZL_ERROR_ARGUMENT);
    EXPECT(zl_streams_new(connected, ZL_ROLE_CONNECTOR, ours) == ZL_OK);
    EXPECT(zl_streams_new(accepted, ZL_ROLE_ACCEPTOR, peers) == ZL_OK);
}

static void make_stream(zl_streams *ours, zl_streams *peers, zl_stream **one, zl_stream **other)
{
    char purpose[8];
    size_t length;

    EXPECT(zl_streams_open(ours, (const uint8_t *)"purpose", 7, ZL_PRIORITY, one) == ZL_OK);
    EXPECT(zl_streams_accept(peers, LONG_MS, other) == ZL_OK);
    EXPECT(zl_stream_purpose(*other, (uint8_t *)purpose, sizeof purpose, &length) == ZL_OK);
    EXPECT(length == 7 && memcmp(purpose, "purpose", 7) == 0);
    EXPECT(zl_stream_purpose(*other, (uint8_t *)purpose, 6, &length) == ZL_ERROR_TOO_LARGE && length == 7);
    EXPECT(zl_stream_accepted(*one, LONG_MS) == ZL_OK);
}

static void *writes_all(void *of)
{
    zl_stream *stream = of;
    unsigned char *bytes = content(1, BYTES);

    write_all(stream, bytes, BYTES);
    EXPECT(zl_stream_finish(stream) == ZL_OK);
    free(bytes);
    return NULL;
}

/* Every byte comes, in order, whatever the sizes of the reads; and the other direction lives on. */
static void sizes_and_half_close(zl_streams *ours, zl_streams *peers)
{
    static unsigned char buffer[300000];
    zl_stream *one, *other;
    pthread_t writer;
    size_t at = 0, length = 1, written;

    make_stream(ours, peers, &one, &other);
    EXPECT(pthread_create(&writer, NULL, writes_all, one) == 0);
    for (size_t size = 1; length > 0; size = size * 7 % 299993 + 1) {
        EXPECT(zl_stream_read(other, LONG_MS, buffer, size, &length) == ZL_OK && length <= size);
        for (size_t n = 0; n < length; n++)
            EXPECT(buffer[n] == byte_at(1, at + n));
        at += length;
    }
    EXPECT(at == BYTES && pthread_join(writer, NULL) == 0);
    EXPECT(zl_stream_write(one, LONG_MS, "x", 1, &written) == ZL_ERROR_FINISHED);
    write_all(other, (const unsigned char *)"back", 4);
    EXPECT(zl_stream_read(one, LONG_MS, buffer, sizeof buffer, &length) == ZL_OK && length == 4);
    EXPECT(memcmp(buffer, "back", 4) == 0);
    EXPECT(zl_stream_read(one, 10, buffer, sizeof buffer, &length) == ZL_TIMEOUT);
    zl_stream_free(one);
    EXPECT(zl_stream_read(other, LONG_MS, buffer, sizeof buffer, &length) == ZL_OK && length == 0);
    zl_stream_free(other);
}

static void vectored(zl_streams *ours, zl_streams *peers)
{
    char first[5], second[20];
    const zl_bytes sources[] = {{"one ", 4}, {NULL, 0}, {"and ", 4}, {"another", 7}};
    const zl_bytes places[] = {{first, sizeof first}, {NULL, 0}, {second, sizeof second}};
    zl_stream *one, *other;
    size_t length;

    EXPECT(sizeof(zl_bytes) == sizeof(struct iovec));
    make_stream(ours, peers, &one, &other);
    EXPECT(zl_stream_write_vectored(one, LONG_MS, sources, 4, &length) == ZL_OK && length == 15);
    EXPECT(zl_stream_read_vectored(other, LONG_MS, places, 3, &length) == ZL_OK && length == 15);
    EXPECT(memcmp(first, "one a", 5) == 0 && memcmp(second, "nd another", 10) == 0);
    EXPECT(zl_stream_write_vectored(one, LONG_MS, NULL, 0, &length) == ZL_OK && length == 0);
    EXPECT(zl_stream_read_vectored(other, LONG_MS, NULL, 0, &length) == ZL_OK && length == 0);
    zl_stream_free(one);
    zl_stream_free(other);
}

/* One stream is not read: the others flow. One descriptor tells of all of them. */
static void many(zl_streams *ours, zl_streams *peers)
{
    static zl_stream *opened[MANY], *accepted[MANY];
    static size_t got[MANY];
    static unsigned char filling[100000], buffer[10000];
    zl_stream *stuck, *unread;
    zl_set *set;
    zl_status status;
    size_t length, count, over = 0;
    uint64_t tokens[64];

    make_stream(ours, peers, &stuck, &unread);
    do
        status = zl_stream_write(stuck, 200, filling, sizeof filling, &length);
    while (status == ZL_OK);
    EXPECT(status == ZL_TIMEOUT && zl_set_new(&set) == ZL_OK);
    EXPECT(zl_stream_watch(stuck, ZL_READY_WRITE, set, MANY) == ZL_OK);
    EXPECT(zl_stream_watch(stuck, 0, set, MANY) == ZL_ERROR_ARGUMENT);
    for (size_t n = 0; n < MANY; n++) {
        unsigned char *bytes = content(n, n * 7);

        EXPECT(zl_streams_open(ours, NULL, 0, n % 8, &opened[n]) == ZL_OK);
        write_all(opened[n], bytes, n * 7);
        EXPECT(zl_stream_finish(opened[n]) == ZL_OK);
        free(bytes);
    }
    for (size_t n = 0; n < MANY; n++) {
        EXPECT(zl_streams_accept(peers, LONG_MS, &accepted[n]) == ZL_OK);
        EXPECT(zl_stream_watch(accepted[n], ZL_READY_READ, set, n) == ZL_OK);
    }
    while (over < MANY) {
        struct pollfd ready = {.fd = zl_set_fd(set), .events = POLLIN};

        EXPECT(poll(&ready, 1, LONG_MS) == 1);
        EXPECT(zl_set_poll_batch(set, tokens, 64, &count) == ZL_OK);
        for (size_t token = 0; token < count; token++) {
            const size_t n = tokens[token];

            EXPECT(n < MANY);
            status = zl_stream_read(accepted[n], 0, buffer, sizeof buffer, &length);
            if (status == ZL_OK && length == 0) {
                over++;
                continue;
            }
            EXPECT(status == ZL_OK || status == ZL_TIMEOUT);
            for (size_t at = 0; status == ZL_OK && at < length; at++)
                EXPECT(buffer[at] == byte_at(n, got[n] + at));
            got[n] += status == ZL_OK ? length : 0;
            EXPECT(zl_stream_watch(accepted[n], ZL_READY_READ, set, n) == ZL_OK);
        }
    }
    for (size_t n = 0; n < MANY; n++) {
        EXPECT(got[n] == n * 7);
        zl_stream_free(opened[n]);
        zl_stream_free(accepted[n]);
    }
    EXPECT(zl_set_poll_batch(set, tokens, 64, &count) == ZL_TIMEOUT);
    /* It is read, so there is room. */
    EXPECT(zl_stream_read(unread, LONG_MS, filling, sizeof filling, &length) == ZL_OK);
    zl_stream_free(unread);
    EXPECT(zl_set_wait(set, LONG_MS, &tokens[0]) == ZL_OK && tokens[0] == MANY);
    zl_stream_free(stuck);
    zl_set_free(set);
}

static void resets(zl_streams *ours, zl_streams *peers)
{
    zl_stream *one, *other;
    char buffer[8];
    size_t length;

    make_stream(ours, peers, &one, &other);
    EXPECT(zl_stream_reset(one, "enough of it") == ZL_OK);
    EXPECT(zl_stream_read(other, LONG_MS, buffer, sizeof buffer, &length) == ZL_ERROR_RESET);
    EXPECT(strcmp(zl_last_error(), "enough of it") == 0);
    EXPECT(zl_stream_write(other, LONG_MS, "x", 1, &length) == ZL_ERROR_RESET);
    EXPECT(zl_stream_read(one, LONG_MS, buffer, sizeof buffer, &length) == ZL_ERROR_RESET);
    zl_stream_free(one);
    zl_stream_free(other);
}

static void *closes_soon(void *of)
{
    const struct timespec soon = {.tv_nsec = 100000000};

    nanosleep(&soon, NULL);
    EXPECT(zl_stream_close(of) == ZL_OK && zl_stream_close(of) == ZL_OK);
    return NULL;
}

static void closed_by_another_thread(zl_streams *ours, zl_streams *peers)
{
    zl_stream *one, *other;
    pthread_t thread;
    char buffer[8];
    size_t length;

    make_stream(ours, peers, &one, &other);
    EXPECT(pthread_create(&thread, NULL, closes_soon, one) == 0);
    EXPECT(zl_stream_read(one, LONG_MS, buffer, sizeof buffer, &length) == ZL_ERROR_CLOSED);
    EXPECT(pthread_join(thread, NULL) == 0);
    EXPECT(zl_stream_finish(one) == ZL_ERROR_CLOSED && zl_stream_accepted(one, 0) == ZL_ERROR_CLOSED);
    EXPECT(zl_stream_read(other, LONG_MS, buffer, sizeof buffer, &length) == ZL_OK && length == 0);
    zl_stream_free(one);
    zl_stream_free(other);
}

static void ends(zl_streams *ours, zl_streams *peers)
{
    zl_stream *one, *other, *none;
    char buffer[8];
    size_t length;

    make_stream(ours, peers, &one, &other);
    write_all(one, (const unsigned char *)"last", 4);
    EXPECT(zl_streams_close(ours, LONG_MS) == ZL_OK);
    EXPECT(zl_streams_open(ours, NULL, 0, 0, &none) == ZL_ERROR_CLOSED);
    EXPECT(zl_stream_read(other, LONG_MS, buffer, sizeof buffer, &length) == ZL_OK && length == 4);
    EXPECT(memcmp(buffer, "last", 4) == 0);
    /* It had no end. */
    EXPECT(zl_stream_read(other, LONG_MS, buffer, sizeof buffer, &length) == ZL_ERROR_CLOSED);
    EXPECT(zl_streams_accept(peers, LONG_MS, &none) == ZL_ERROR_CLOSED);
    EXPECT(zl_streams_accept(ours, LONG_MS, &none) == ZL_ERROR_CLOSED);
    zl_stream_free(one);
    zl_stream_free(other);
    zl_streams_free(ours);
    zl_streams_free(peers);
}

static zl_options *over_udp(void)
{
    zl_options *options;

    EXPECT(zl_options_new(&options) == ZL_OK);
    EXPECT(zl_options_set(options, ZL_OPTION_LANE, ZL_LANE_UDP) == ZL_OK);
    EXPECT(zl_options_set(options, ZL_OPTION_IDLE_TIMEOUT_MS, 2000) == ZL_OK);
    EXPECT(zl_options_set(options, ZL_OPTION_KEEP_ALIVE, 1) == ZL_OK);
    return options;
}

/* The process that is killed: it writes, and reads nothing. */
static void serve(int tell)
{
    char address[ZL_ADDRESS_LENGTH] = {0};
    zl_endpoint *endpoint;
    zl_connection *connection;
    zl_streams *streams;
    zl_stream *stream;

    EXPECT(zl_endpoint_bind("127.0.0.1:0", over_udp(), &endpoint) == ZL_OK);
    EXPECT(zl_endpoint_local_addr(endpoint, address, sizeof address) == ZL_OK);
    EXPECT(write(tell, address, sizeof address) == sizeof address);
    EXPECT(zl_endpoint_accept(endpoint, LONG_MS, &connection) == ZL_OK);
    EXPECT(zl_streams_new(connection, ZL_ROLE_ACCEPTOR, &streams) == ZL_OK);
    EXPECT(zl_streams_accept(streams, LONG_MS, &stream) == ZL_OK);
    write_all(stream, (const unsigned char *)"alive", 5);
    sleep(300);
    exit(EXIT_FAILURE);
}

static void peer_dies(const char *address, pid_t server)
{
    zl_options *options = over_udp();
    zl_connection *connection;
    zl_streams *streams;
    zl_stream *stream;
    char buffer[8];
    size_t length;

    EXPECT(zl_connect(address, options, &connection) == ZL_OK);
    zl_options_free(options);
    EXPECT(zl_streams_new(connection, ZL_ROLE_CONNECTOR, &streams) == ZL_OK);
    EXPECT(zl_streams_open(streams, NULL, 0, ZL_PRIORITY, &stream) == ZL_OK);
    EXPECT(zl_stream_read(stream, LONG_MS, buffer, sizeof buffer, &length) == ZL_OK && length == 5);
    EXPECT(memcmp(buffer, "alive", 5) == 0);
    EXPECT(kill(server, SIGKILL) == 0 && waitpid(server, NULL, 0) == server);
    EXPECT(zl_stream_read(stream, LONG_MS, buffer, sizeof buffer, &length) == ZL_ERROR_PEER_DEAD);
    EXPECT(zl_stream_write(stream, LONG_MS, "x", 1, &length) == ZL_ERROR_PEER_DEAD);
    EXPECT(zl_streams_close(streams, LONG_MS) == ZL_ERROR_PEER_DEAD);
    zl_streams_free(streams);
    zl_stream_free(stream);
}

int main(void)
{
    char address[ZL_ADDRESS_LENGTH];
    zl_streams *ours, *peers;
    int tells[2];
    pid_t server;

    EXPECT(pipe(tells) == 0);
    server = fork();
    EXPECT(server >= 0);
    if (server == 0)
        serve(tells[1]);
    close(tells[1]);
    EXPECT(read(tells[0], address, sizeof address) == sizeof address);
    peer_dies(address, server);

    make_streams(&ours, &peers);
    sizes_and_half_close(ours, peers);
    vectored(ours, peers);
    many(ours, peers);
    resets(ours, peers);
    closed_by_another_thread(ours, peers);
    ends(ours, peers);
    puts("streams: ok");
    return 0;
}
