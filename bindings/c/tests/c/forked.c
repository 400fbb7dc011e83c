/* Tests a child of fork with copies of its parent's handles: calls fail with a text, and freeing them sends nothing to
   peers. Run by tests/install.rs. */
#define _POSIX_C_SOURCE 200809L

#include "pair.h"
#include <pthread.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define FORKED(call)                                                                               \
    EXPECT((call) == ZL_ERROR_CLOSED && strstr(zl_last_error(), "the parent process") != NULL)

struct all {
    zl_connection *ours, *busy;
    zl_endpoint *endpoint;
    zl_worker *worker;
    zl_queue *queue;
    zl_set *set;
    zl_worker *background;
    zl_exported *exported;
    zl_region *wrapped;
    /* Carries no streams yet. */
    zl_connection *bare;
    zl_streams *streams, *peers_streams;
    zl_stream *stream, *peers_stream;
};

/* Memory that was given back. */
static int released;

static void count(void *memory, void *context)
{
    (void)memory, (void)context;
    released++;
}

/* A thread that is in a call when its process forks: in the child its lock is never let go. */
static void *wait_for_a_wake(void *connection)
{
    zl_completion completion;

    EXPECT(zl_wait(connection, -1, &completion) == ZL_WOKEN);
    return NULL;
}

/* Every call of streams. */
static void child_of_streams(const struct all *all)
{
    zl_streams *streams;
    zl_stream *stream;
    char buffer[8] = "a child";
    const zl_bytes place = {buffer, sizeof buffer};
    uint8_t purpose[8];
    size_t length;

    /* That frees the handle, as any failure but ZL_ERROR_ARGUMENT. */
    FORKED(zl_streams_new(all->bare, ZL_ROLE_CONNECTOR, &streams));
    FORKED(zl_streams_open(all->streams, NULL, 0, ZL_PRIORITY, &stream));
    FORKED(zl_streams_accept(all->streams, -1, &stream));
    FORKED(zl_streams_watch(all->streams, all->set, 9));
    FORKED(zl_streams_close(all->streams, -1));
    /* The handle itself has it. */
    EXPECT(zl_stream_purpose(all->stream, purpose, sizeof purpose, &length) == ZL_OK);
    EXPECT(length == 7 && memcmp(purpose, "purpose", 7) == 0);
    FORKED(zl_stream_accepted(all->stream, -1));
    FORKED(zl_stream_read(all->peers_stream, -1, buffer, sizeof buffer, &length));
    FORKED(zl_stream_read_vectored(all->peers_stream, -1, &place, 1, &length));
    FORKED(zl_stream_write(all->stream, -1, buffer, sizeof buffer, &length));
    FORKED(zl_stream_write_vectored(all->stream, -1, &place, 1, &length));
    FORKED(zl_stream_watch(all->stream, ZL_READY_WRITE, all->set, 9));
    FORKED(zl_stream_finish(all->stream));
    FORKED(zl_stream_reset(all->stream, "by the child"));
    FORKED(zl_stream_close(all->stream));
    zl_stream_free(all->stream);
    zl_stream_free(all->peers_stream);
    zl_streams_free(all->streams);
    zl_streams_free(all->peers_streams);
}

static void child(const struct all *all)
{
    zl_connection *connection;
    zl_completion completion;
    zl_region *region;
    zl_key key;
    uint64_t id;
    size_t count;
    uint64_t number;
    char buffer[8];
    zl_worker *background;
    zl_endpoint *listening;

    FORKED(zl_send(all->ours, "by the child", 12));
    FORKED(zl_recv_into(all->ours, buffer, sizeof buffer, &count));
    EXPECT(zl_region_new(64, &region) == ZL_OK);
    FORKED(zl_post_send(all->ours, region, 0, 64, NULL, &id));
    FORKED(zl_poll(all->ours, &completion));
    FORKED(zl_wait(all->ours, -1, &completion));
    FORKED(zl_export(all->ours, all->exported, ZL_RIGHT_READ, &key));
    FORKED(zl_wake(all->ours));
    /* Not ZL_ERROR_BUSY: there is no such thread. */
    FORKED(zl_send(all->busy, "by the child", 12));
    FORKED(zl_wake(all->busy));
    FORKED(zl_endpoint_accept(all->endpoint, -1, &connection));
    FORKED(zl_worker_progress(all->worker));
    FORKED(zl_worker_wait(all->worker, -1));
    FORKED(zl_worker_wake(all->worker));
    FORKED(zl_worker_connect(all->worker, "127.0.0.1:1", NULL, &connection));
    FORKED(zl_queue_poll(all->queue, &completion));
    FORKED(zl_queue_poll_batch(all->queue, &completion, 1, &count));
    FORKED(zl_queue_wait(all->queue, -1, &completion));
    FORKED(zl_set_poll_batch(all->set, &number, 1, &count));
    FORKED(zl_set_wait(all->set, -1, &number));
    EXPECT(zl_set_signal(all->set, 8) == ZL_OK);
    FORKED(zl_worker_listen(all->background, "127.0.0.1:0", NULL, &listening));
    FORKED(zl_exported_revoke(all->exported));
    EXPECT(zl_exported_data(all->exported) == NULL);
    /* What it makes itself is as any other. */
    zl_connection *own, *peers;
    connect_pair(&own, &peers);
    FORKED(zl_export(own, all->exported, ZL_RIGHT_READ, &key));
    zl_connection_free(own);
    zl_connection_free(peers);
    EXPECT(zl_worker_background(&background) == ZL_OK);
    EXPECT(zl_worker_listen(background, "127.0.0.1:0", NULL, &listening) == ZL_OK);
    zl_endpoint_free(listening);
    zl_worker_free(background);
    child_of_streams(all);
    FORKED(zl_close(all->ours));
    zl_connection_free(all->busy);
    zl_endpoint_free(all->endpoint);
    zl_worker_free(all->worker);
    zl_queue_free(all->queue);
    zl_set_free(all->set);
    zl_worker_free(all->background);
    zl_exported_free(all->exported);
    zl_region_free(all->wrapped);
    EXPECT(released == 0);
    _exit(EXIT_SUCCESS);
}

static void make_streams(struct all *all)
{
    zl_connection *connected, *accepted;

    connect_pair(&connected, &accepted);
    EXPECT(zl_streams_new(connected, ZL_ROLE_CONNECTOR, &all->streams) == ZL_OK);
    EXPECT(zl_streams_new(accepted, ZL_ROLE_ACCEPTOR, &all->peers_streams) == ZL_OK);
    EXPECT(zl_streams_open(all->streams, (const uint8_t *)"purpose", 7, ZL_PRIORITY, &all->stream) == ZL_OK);
    EXPECT(zl_streams_accept(all->peers_streams, 60000, &all->peers_stream) == ZL_OK);
}

/* The parent's streams go on. */
static void end_streams(const struct all *all)
{
    char buffer[8];
    size_t length;

    EXPECT(zl_stream_write(all->stream, 60000, "still", 5, &length) == ZL_OK && length == 5);
    EXPECT(zl_stream_read(all->peers_stream, 60000, buffer, sizeof buffer, &length) == ZL_OK);
    EXPECT(length == 5 && memcmp(buffer, "still", 5) == 0);
    EXPECT(zl_stream_finish(all->stream) == ZL_OK);
    EXPECT(zl_stream_read(all->peers_stream, 60000, buffer, sizeof buffer, &length) == ZL_OK && length == 0);
    EXPECT(zl_streams_close(all->streams, 60000) == ZL_OK);
    zl_stream_free(all->stream);
    zl_stream_free(all->peers_stream);
    zl_streams_free(all->streams);
    zl_streams_free(all->peers_streams);
}

static void *send_hello(void *connection)
{
    EXPECT(zl_send(connection, "hello", 5) == ZL_OK);
    return NULL;
}

/* Sends both ways: a number that the child had used would be lost. */
static void talk(zl_connection *one, zl_connection *other)
{
    zl_connection *both[] = {one, other};
    zl_completion completion;
    pthread_t sending;
    char buffer[8];
    size_t length;

    for (int round = 0; round < 3; round++) {
        EXPECT(pthread_create(&sending, NULL, send_hello, both[round % 2]) == 0);
        EXPECT(zl_recv_into(both[1 - round % 2], buffer, sizeof buffer, &length) == ZL_OK);
        EXPECT(length == 5 && memcmp(buffer, "hello", 5) == 0);
        zl_wait(both[1 - round % 2], 1, &completion);
        EXPECT(pthread_join(sending, NULL) == 0);
    }
}

int main(void)
{
    struct all all;
    zl_connection *peers, *others, *bare_peers;
    zl_key key;
    pthread_t waiting, connecting;
    char address[ZL_ADDRESS_LENGTH], memory[8];
    int status;

    connect_pair(&all.ours, &peers);
    connect_pair(&all.busy, &others);
    connect_pair(&all.bare, &bare_peers);
    make_streams(&all);
    EXPECT(zl_endpoint_bind("127.0.0.1:0", NULL, &all.endpoint) == ZL_OK);
    EXPECT(zl_worker_new(&all.worker) == ZL_OK);
    EXPECT(zl_queue_new(8, &all.queue) == ZL_OK);
    EXPECT(zl_set_new(&all.set) == ZL_OK && zl_set_signal(all.set, 7) == ZL_OK);
    EXPECT(zl_worker_background(&all.background) == ZL_OK);
    EXPECT(zl_exported_memfd(4096, &all.exported) == ZL_OK);
    EXPECT(zl_region_wrap(memory, sizeof memory, count, NULL, &all.wrapped) == ZL_OK);
    EXPECT(zl_export(peers, all.exported, ZL_RIGHT_READ, &key) == ZL_OK);
    EXPECT(pthread_create(&waiting, NULL, wait_for_a_wake, all.busy) == 0);
    pid_t pid = fork();
    EXPECT(pid >= 0);
    if (pid == 0) {
        /* A child that hangs ends so. */
        alarm(60);
        child(&all);
    }
    EXPECT(waitpid(pid, &status, 0) == pid && status == 0);

    /* The parent goes on with all of it. */
    EXPECT(zl_wake(all.busy) == ZL_OK && pthread_join(waiting, NULL) == 0);
    talk(all.ours, peers);
    talk(all.bare, bare_peers);
    end_streams(&all);
    void *connected;
    EXPECT(zl_endpoint_local_addr(all.endpoint, address, sizeof address) == ZL_OK);
    EXPECT(pthread_create(&connecting, NULL, connect_to, address) == 0);
    zl_connection *accepted;
    EXPECT(zl_endpoint_accept(all.endpoint, 10000, &accepted) == ZL_OK);
    EXPECT(pthread_join(connecting, &connected) == 0);
    zl_connection_free(connected);
    zl_connection_free(accepted);
    EXPECT(zl_worker_progress(all.worker) == ZL_OK);
    uint64_t token;
    EXPECT(zl_set_wait(all.set, 0, &token) == ZL_OK && token == 7);
    EXPECT(zl_set_wait(all.set, 0, &token) == ZL_TIMEOUT);
    zl_set_free(all.set);
    zl_endpoint *listening;
    EXPECT(zl_worker_listen(all.background, "127.0.0.1:0", NULL, &listening) == ZL_OK);
    zl_endpoint_free(listening);
    EXPECT(zl_worker_stop(all.background) == ZL_ERROR_ARGUMENT);
    EXPECT(zl_exported_revoke(all.exported) == ZL_OK && zl_exported_data(all.exported) == NULL);
    zl_exported_free(all.exported);
    zl_region_free(all.wrapped);
    EXPECT(released == 1);
    zl_queue_free(all.queue);
    zl_worker_free(all.worker);
    zl_endpoint_free(all.endpoint);
    zl_connection_free(all.ours);
    zl_connection_free(peers);
    zl_connection_free(all.busy);
    zl_connection_free(others);
    zl_connection_free(all.bare);
    zl_connection_free(bare_peers);
    return 0;
}
