/*
 * Answers requests of a thousand clients in one thread; the clients run in one thread of another process. Starts
 * fewer clients if descriptors are scarce: each connection has one, and a second while it probes a silent peer.
 *
 *   cc -std=c11 rpc_server.c $(pkg-config --cflags --libs zerolane) -o rpc_server && ./rpc_server [CLIENTS [REQUESTS]]
 */
#define _POSIX_C_SOURCE 200809L

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>
#include <zerolane.h>

enum {
    EVENTS = 256,        /* taken in one call */
    CONNECTING = 32,     /* connections started and not established */
    RESERVE = 32,        /* descriptors for other uses */
    SILENT_SECONDS = 20, /* without an event: a failure */
};

struct request {
    uint64_t number, a, b;
};

struct reply {
    uint64_t number, sum;
};

/* Ends the process with the library's error text if a call failed. */
static void check(zl_status status, const char *call)
{
    if (status < 0) {
        fprintf(stderr, "%s: %s: %s\n", call, zl_status_text(status), zl_last_error());
        exit(EXIT_FAILURE);
    }
}

static void fail(const char *why)
{
    fprintf(stderr, "%s\n", why);
    exit(EXIT_FAILURE);
}

/* The next events of a worker. */
static size_t next_events(zl_worker *worker, zl_event *events)
{
    size_t count;

    for (int seconds = 0; zl_worker_events(worker, events, EVENTS, &count) == ZL_TIMEOUT; seconds++) {
        if (seconds == SILENT_SECONDS)
            fail("nothing happens any more");
        check(zl_worker_wait(worker, 1000), "wait");
    }
    return count;
}

/* Answers a request and receives the client's next one. */
static void answer(const zl_event *event)
{
    const zl_work unsignalled = {.flags = ZL_WORK_UNSIGNALLED};
    struct request request;

    if (event->completion.control_length != sizeof request)
        fail("this is no request");
    memcpy(&request, event->completion.control, sizeof request);
    const struct reply reply = {request.number, request.a + request.b};
    const zl_status received = zl_post_message_recv(event->connection, NULL, 0, 0, NULL, NULL);
    if (received == ZL_ERROR_CLOSED)
        return; /* the client left before its answer */
    check(received, "receive");
    check(zl_post_message(event->connection, &reply, sizeof reply, NULL, 0, 0, &unsignalled, NULL), "answer");
}

/* Serves until `clients` have connected and left. */
static uint64_t serve(zl_worker *worker, unsigned clients)
{
    static zl_event events[EVENTS];
    uint64_t answered = 0;

    for (unsigned gone = 0; gone < clients;) {
        size_t count = next_events(worker, events);
        for (size_t n = 0; n < count; n++) {
            const zl_event *event = &events[n];
            switch (event->kind) {
            case ZL_EVENT_ACCEPTED:
                check(zl_post_message_recv(event->connection, NULL, 0, 0, NULL, NULL), "receive");
                break;
            case ZL_EVENT_COMPLETED:
                /* The last receive of each client ends with its connection. */
                if (event->completion.kind == ZL_KIND_MESSAGE_RECEIVED && event->completion.status == ZL_OK) {
                    answer(event);
                    answered++;
                }
                break;
            case ZL_EVENT_ENDPOINT_FAILED:
                fail(zl_status_text(event->status));
                break;
            case ZL_EVENT_CLOSED:
                zl_connection_free(event->connection);
                gone++;
                break;
            }
        }
    }
    return answered;
}

struct client {
    zl_connection *server;
    uint64_t requests;
};

/* Sends the next request; the context of the answer's completion identifies the client. */
static void ask(const struct client *clients, uint64_t index)
{
    const zl_work how = {.context = index};
    const zl_work unsignalled = {.flags = ZL_WORK_UNSIGNALLED};
    const uint64_t number = clients[index].requests;
    const struct request request = {number, index, number * number};
    zl_connection *server = clients[index].server;

    check(zl_post_message_recv(server, NULL, 0, 0, &how, NULL), "receive");
    check(zl_post_message(server, &request, sizeof request, NULL, 0, 0, &unsignalled, NULL), "ask");
}

/* Connects `count` clients, which send one request each, and the rest once all are connected. */
static void ask_all(const char *address, unsigned count, uint64_t requests)
{
    static zl_event events[EVENTS];
    struct client *clients = calloc(count, sizeof *clients);
    unsigned started = 0, answered = 0, closed = 0;
    zl_worker *worker;
    struct reply reply;

    if (clients == NULL)
        fail("no memory");
    check(zl_worker_new(&worker), "worker");
    while (closed < count) {
        for (; started < count && started - answered < CONNECTING; started++) {
            /* Requests posted before the connection is established wait. */
            check(zl_worker_connect(worker, address, NULL, &clients[started].server), "connect");
            ask(clients, started);
        }
        size_t there = next_events(worker, events);
        for (size_t n = 0; n < there; n++) {
            const zl_completion *completion = &events[n].completion;
            if (events[n].kind == ZL_EVENT_CLOSED) {
                if (answered < count)
                    fail(zl_status_text(events[n].status));
                zl_connection_free(events[n].connection);
                closed++;
            }
            if (events[n].kind != ZL_EVENT_COMPLETED)
                continue;
            check(completion->status, "answer");
            struct client *client = &clients[completion->context];
            memcpy(&reply, completion->control, sizeof reply);
            if (reply.number != client->requests ||
                reply.sum != completion->context + reply.number * reply.number)
                fail("a wrong answer");
            if (client->requests++ == 0) {
                if (++answered == count)
                    for (unsigned index = 0; index < count; index++)
                        requests > 1 ? ask(clients, index)
                                     : check(zl_worker_close(worker, clients[index].server), "close");
            } else if (client->requests < requests) {
                ask(clients, completion->context);
            } else {
                check(zl_worker_close(worker, client->server), "close");
            }
        }
    }
    zl_worker_free(worker);
    free(clients);
}

/* As many clients as the descriptors allow. */
static unsigned afforded(unsigned clients)
{
    struct rlimit limit;

    if (getrlimit(RLIMIT_NOFILE, &limit) != 0)
        fail("no limit is known");
    limit.rlim_cur = limit.rlim_max;
    (void)setrlimit(RLIMIT_NOFILE, &limit);
    (void)getrlimit(RLIMIT_NOFILE, &limit);
    if (limit.rlim_cur <= RESERVE + 2)
        fail("too few descriptors");
    const rlim_t most = (limit.rlim_cur - RESERVE) / 2;
    return most < clients ? (unsigned)most : clients;
}

int main(int count, char **arguments)
{
    const unsigned clients = afforded(count > 1 ? (unsigned)strtoul(arguments[1], NULL, 10) : 1000);
    const uint64_t requests = count > 2 ? strtoul(arguments[2], NULL, 10) : 100;
    char address[ZL_ADDRESS_LENGTH];
    zl_worker *worker;
    zl_endpoint *endpoint;
    int pipes[2], status;

    if (clients == 0 || requests == 0 || pipe(pipes) != 0)
        fail("usage: rpc_server [CLIENTS [REQUESTS]]");
    /* Before the worker exists: a child must not use its parent's. */
    pid_t child = fork();
    if (child < 0)
        fail("fork");
    if (child == 0) {
        if (read(pipes[0], address, sizeof address) != sizeof address)
            fail("no address");
        ask_all(address, clients, requests);
        _exit(EXIT_SUCCESS);
    }
    check(zl_worker_new(&worker), "worker");
    check(zl_worker_listen(worker, "127.0.0.1:0", NULL, &endpoint), "listen");
    memset(address, 0, sizeof address);
    check(zl_endpoint_local_addr(endpoint, address, sizeof address), "address");
    if (write(pipes[1], address, sizeof address) != sizeof address)
        fail("pipe");
    const uint64_t answered = serve(worker, clients);
    zl_endpoint_free(endpoint);
    zl_worker_free(worker);
    if (waitpid(child, &status, 0) != child || status != 0 || answered != clients * requests) {
        fprintf(stderr, "the clients failed, or %llu answers are wrong\n", (unsigned long long)answered);
        return EXIT_FAILURE;
    }
    printf("%u clients at once, %llu requests answered by one thread, all right\n", clients,
           (unsigned long long)answered);
    return EXIT_SUCCESS;
}
