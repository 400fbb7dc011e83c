/*
 * Zerolane moves memory between hosts over Ethernet. docs/guide/c.md has complete programs.
 *
 * A server receives one Transfer:
 *
 *     zl_endpoint_bind("0.0.0.0:9181", NULL, &endpoint);
 *     zl_endpoint_accept(endpoint, -1, &connection);
 *     zl_recv_into(connection, buffer, sizeof buffer, &length);
 *     zl_close(connection);
 *     zl_endpoint_free(endpoint);
 *
 * A client sends it:
 *
 *     zl_connect("192.0.2.1:9181", NULL, &connection);
 *     zl_send(connection, "hello", 6);
 *     zl_close(connection);
 *
 * If a call returns a negative zl_status, zl_last_error() returns the reason. Null and bad arguments
 * return ZL_ERROR_ARGUMENT and change nothing.
 *
 * cbindgen makes this file from bindings/c/src; do not edit it.
 */

#ifndef ZEROLANE_H
#define ZEROLANE_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ================================================================================================
 * Connect, send, receive, close
 * One end listens, the other connects. One send and the receive that it matches are a Transfer, of
 * any length. Functions return a zl_status and write results through pointers. Each comment says
 * which threads may call the function. Any: at any time. One at a time: a call returns
 * ZL_ERROR_BUSY and does nothing while another thread is in a call with the same handle.
 */

/**
 * Version of the binary interface. It grows when programs compiled with an older header would
 * no longer work. While it is 0, any release may break them.
 */
#define ZL_ABI_VERSION 0

/**
 * Returns the version of the library's binary interface. Compare it with ZL_ABI_VERSION, the
 * header's version.
 *
 * Threads: any.
 */
uint32_t zl_abi_version(void);

/**
 * Returns the library's release, such as "1.2.3".
 *
 * Threads: any.
 */
const char *zl_version(void);

/**
 * The result of a function or a request. Negative values are failures; zl_last_error has the
 * details. The connection survives ZL_ERROR_ARGUMENT, ZL_ERROR_BUSY, ZL_ERROR_TOO_MANY and the
 * failures of a single request: ZL_ERROR_CANCELLED to ZL_ERROR_UNKNOWN, ZL_ERROR_TIMED_OUT,
 * ZL_ERROR_FINISHED, ZL_ERROR_RESET. Later versions may add codes.
 */
enum zl_status
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : int32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
    /**
     * Success.
     */
    ZL_OK = 0,
    /**
     * Nothing happened in the given time. Not a failure.
     */
    ZL_TIMEOUT = 1,
    /**
     * There is more to do: do not sleep. Not a failure.
     */
    ZL_READY = 2,
    /**
     * The wait was ended by zl_wake or zl_worker_wake. Not a failure.
     */
    ZL_WOKEN = 3,
    /**
     * A null pointer, a value out of range, or a text that is not UTF-8.
     */
    ZL_ERROR_ARGUMENT = -1,
    /**
     * Another thread uses the handle, or its requests are not over (zl_release).
     */
    ZL_ERROR_BUSY = -2,
    /**
     * The operating system refused.
     */
    ZL_ERROR_SYSTEM = -3,
    /**
     * The host is unknown, or has no address.
     */
    ZL_ERROR_NO_ADDRESS = -4,
    /**
     * No answer came within the connect timeout.
     */
    ZL_ERROR_CONNECT_TIMEOUT = -5,
    /**
     * The peer rejected the connection.
     */
    ZL_ERROR_REJECTED = -6,
    /**
     * This end or the peer closed the connection; or this process is a child of fork and the
     * handle belongs to its parent.
     */
    ZL_ERROR_CLOSED = -7,
    /**
     * The peer stopped answering, or nothing listens there.
     */
    ZL_ERROR_PEER_DEAD = -8,
    /**
     * The peer violated the protocol.
     */
    ZL_ERROR_PROTOCOL = -9,
    /**
     * Strict mode: payload would have been copied in user space.
     */
    ZL_ERROR_STRICT = -10,
    /**
     * The connection has as many requests in flight, or as many regions exported, as it may
     * have.
     */
    ZL_ERROR_TOO_MANY = -11,
    /**
     * This end cancelled the request.
     */
    ZL_ERROR_CANCELLED = -12,
    /**
     * The message is larger than its receive.
     */
    ZL_ERROR_TOO_LARGE = -13,
    /**
     * The peer cancelled or refused the request.
     */
    ZL_ERROR_REFUSED = -14,
    /**
     * Memory could not be accessed: a mapped file shrank.
     */
    ZL_ERROR_MEMORY = -15,
    /**
     * The request exceeds the peer's memory.
     */
    ZL_ERROR_OUT_OF_BOUNDS = -16,
    /**
     * The peer exported the memory without the necessary right.
     */
    ZL_ERROR_DENIED = -17,
    /**
     * The owner revoked the memory.
     */
    ZL_ERROR_REVOKED = -18,
    /**
     * The peer exports no memory of that name or key on this connection.
     */
    ZL_ERROR_UNKNOWN = -19,
    /**
     * The peer's key is not trusted (zl_options_trust).
     */
    ZL_ERROR_UNTRUSTED = -20,
    /**
     * The call took longer than zl_set_timeout allows. Its request was cancelled; the peer may
     * have seen it.
     */
    ZL_ERROR_TIMED_OUT = -21,
    /**
     * The peer finished sending and nothing more comes; or this end finished and cannot send.
     */
    ZL_ERROR_FINISHED = -22,
    /**
     * Only short packets reach the peer, not those of 576 bytes over IPv4 (1280 otherwise).
     */
    ZL_ERROR_PATH_TOO_NARROW = -23,
    /**
     * An end reset the stream, or the peer refused it; zl_last_error has its words.
     */
    ZL_ERROR_RESET = -24,
    /**
     * A bug in this library. The handle can only be freed.
     */
    ZL_ERROR_INTERNAL = -99,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum zl_status zl_status;
#else
typedef int32_t zl_status;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

/**
 * Describes `status` in a few words. Never null; the text is static.
 *
 * Threads: any.
 */
const char *zl_status_text(int32_t status);

/**
 * Describes the last failed call of this thread, in a sentence with details. Empty if no call
 * failed. Valid until the thread's next failure.
 *
 * Threads: any; each has its own.
 */
const char *zl_last_error(void);

/**
 * Settings of connections. The defaults suit a local network, encrypt, and trust any peer.
 */
typedef struct zl_options zl_options;

/**
 * Bytes that hold any address as text, with its terminating zero.
 */
#define ZL_ADDRESS_LENGTH 64

/**
 * A listening port, of the program (zl_endpoint_bind) or of a worker (zl_worker_listen).
 *
 * A thread of the former accepts up to 64 connections before the program does
 * (ZL_OPTION_BACKLOG): zl_connect then returns, and what the peer asks waits until the program
 * accepts. After fork it belongs to the parent, and only the parent accepts. The
 * child may free its copy. A server of several processes binds an endpoint in each, on a port
 * of its own.
 */
typedef struct zl_endpoint zl_endpoint;

/**
 * A connection. It has one of three drivers:
 *
 * The program's calls (zl_connect, zl_endpoint_accept): it makes progress only inside its functions,
 * in the calling thread. A peer that makes no calls for the idle timeout while this end waits for it
 * counts as dead.
 *
 * A worker that the program calls (zl_worker_new): post; the worker reports what happens as events.
 * Calls with the connection count as calls with the worker.
 *
 * A worker's thread (zl_worker_spawn, zl_worker_background): post, then wait. Any thread may use it,
 * also several at once: "one at a time" in the comments is for the other two. Requests of one thread
 * start in its order. They wait in order if there is no room; if the connection refuses one, its
 * completion says so.
 *
 * Functions that wait for their own request (zl_send, zl_recv_into, zl_put, zl_get, zl_fetch_op,
 * zl_open_region, zl_send_message, zl_recv_message) are for the first driver; with the others they
 * return ZL_ERROR_ARGUMENT.
 *
 * After fork the connection belongs to the parent: calls in the child fail with ZL_ERROR_CLOSED.
 * The child may free its copy, which does not disconnect the peer.
 */
typedef struct zl_connection zl_connection;

/**
 * Listens on `address`, "host:port" (port 0: any free port), with `options`, or the defaults
 * if null. A link-local IPv6 address includes its interface: "[fe80::1%eth0]:9181". Free the
 * endpoint with zl_endpoint_free.
 *
 * Threads: any.
 */
zl_status zl_endpoint_bind(const char *address,
                           const struct zl_options *options,
                           struct zl_endpoint **endpoint);

/**
 * Writes the address listened on to `buffer`, as "host:port" and a zero: at most
 * ZL_ADDRESS_LENGTH bytes. ZL_ERROR_ARGUMENT if `capacity` is too small.
 *
 * Threads: one at a time.
 */
zl_status zl_endpoint_local_addr(const struct zl_endpoint *endpoint, char *buffer, size_t capacity);

/**
 * Waits `timeout_ms` milliseconds (negative: no limit) for the next connection; 0 takes one that
 * waits already; ZL_TIMEOUT if none came. Another thread may use the connection. End it with
 * zl_close or zl_connection_free. A worker's thread serves connections that were not accepted,
 * too: they may use what the endpoint exports. ZL_ERROR_ARGUMENT for an endpoint of a worker that
 * the program calls: ZL_EVENT_ACCEPTED has its connections.
 *
 * Threads: one at a time.
 */
zl_status zl_endpoint_accept(struct zl_endpoint *endpoint,
                             int64_t timeout_ms,
                             struct zl_connection **connection);

/**
 * Stops listening and frees the endpoint. Null does nothing. Accepted connections stay open.
 *
 * Threads: the last that uses it.
 */
void zl_endpoint_free(struct zl_endpoint *endpoint);

/**
 * Connects to `address`, "host:port", with `options`, or the defaults if null. A link-local
 * IPv6 address includes its interface: "[fe80::1%eth0]:9181". Fails with ZL_ERROR_NO_ADDRESS,
 * ZL_ERROR_CONNECT_TIMEOUT, ZL_ERROR_PEER_DEAD, ZL_ERROR_REJECTED or ZL_ERROR_UNTRUSTED. End
 * the connection with zl_close or zl_connection_free.
 *
 * Threads: any.
 */
zl_status zl_connect(const char *address,
                     const struct zl_options *options,
                     struct zl_connection **connection);

/**
 * Writes the peer's address to `buffer`, as "host:port" and a zero: at most ZL_ADDRESS_LENGTH
 * bytes. Of a worker's thread: the address at the time when the connection was made.
 *
 * Threads: one at a time.
 */
zl_status zl_peer_addr(const struct zl_connection *connection, char *buffer, size_t capacity);

/**
 * Writes this end's current address to `buffer`, as "host:port" and a zero: at most
 * ZL_ADDRESS_LENGTH bytes. The text is empty while there is no route to the peer.
 *
 * Threads: one at a time.
 */
zl_status zl_local_addr(const struct zl_connection *connection, char *buffer, size_t capacity);

/**
 * Sends `len` bytes at `data` as one Transfer; returns when the peer has received all of it.
 * ZL_ERROR_TOO_LARGE if the peer's receive was smaller.
 *
 * Threads: one at a time.
 */
zl_status zl_send(struct zl_connection *connection, const void *data, size_t len);

/**
 * Waits `timeout_ms` milliseconds (negative: no limit) until the peer announces a Transfer
 * that no posted receive matches, and writes its length to `len`, so that you can allocate a
 * buffer of that size. ZL_TIMEOUT if none was announced.
 *
 * Threads: one at a time.
 */
zl_status zl_announced(struct zl_connection *connection, int64_t timeout_ms, uint64_t *len);

/**
 * Receives the next Transfer into `buffer` and writes its length to `len`. If it is larger
 * than `capacity`, both ends get ZL_ERROR_TOO_LARGE and nothing is written; the next Transfer
 * can be received. ZL_ERROR_FINISHED if the peer finished sending (zl_finish).
 *
 * Threads: one at a time.
 */
zl_status zl_recv_into(struct zl_connection *connection,
                       void *buffer,
                       size_t capacity,
                       size_t *len);

/**
 * Sends a copy of `len` bytes at `data`, 1 to zl_max_datagram, as a datagram: sealed, and under
 * congestion control, but it may be lost, come late or before an earlier one, and is never sent
 * again (RFC 9221). ZL_ERROR_TOO_MANY if many wait to leave; ZL_ERROR_REFUSED if the peer takes
 * none. One that waits for longer than 100 ms is dropped; the `unreliable_` counters of
 * zl_account_json tell what was dropped, and why.
 *
 * Threads: one at a time; any on a connection of a worker's thread.
 */
zl_status zl_send_datagram(struct zl_connection *connection, const void *data, size_t len);

/**
 * Waits `timeout_ms` milliseconds (negative: no limit) for a datagram of the peer, copies it to
 * `buffer` and writes its length to `len`. ZL_TIMEOUT if none came; ZL_ERROR_TOO_LARGE if it has
 * more than `capacity` bytes: then it is dropped, and `len` has its length. On a connection that a
 * worker drives it does not wait.
 *
 * Threads: one at a time; any on a connection of a worker's thread.
 */
zl_status zl_recv_datagram(struct zl_connection *connection,
                           int64_t timeout_ms,
                           void *buffer,
                           size_t capacity,
                           size_t *len);

/**
 * Writes the length of the longest datagram that the peer takes to `len`, in bytes; 0: it takes
 * none.
 *
 * Threads: one at a time; any on a connection of a worker's thread.
 */
zl_status zl_max_datagram(struct zl_connection *connection, size_t *len);

/**
 * Limits how long a call may wait for its request, in milliseconds (negative: no limit, the
 * default): zl_send, zl_recv_into, zl_put and so on. A request that takes longer is cancelled,
 * and the call returns ZL_ERROR_TIMED_OUT.
 *
 * Threads: one at a time.
 */
zl_status zl_set_timeout(struct zl_connection *connection, int64_t timeout_ms);

/**
 * Finishes sending. Requests posted before are delivered; later sends and messages return
 * ZL_ERROR_FINISHED. Receives at the peer that no Transfer or message matches end with that
 * code, now and later. The other direction stays open, and so do operations on remote memory.
 * While messages wait for receives that the peer does not post, it may not learn of the
 * finish.
 *
 * Threads: one at a time.
 */
zl_status zl_finish(struct zl_connection *connection);

/**
 * Waits until the peer has received all that was sent, then disconnects and frees the
 * connection, also on failure. Gives up after the idle timeout without progress. Requests in
 * flight end; the kernel may still read what they send, so free wrapped memory in its `release`
 * (zl_region_wrap). ZL_ERROR_ARGUMENT for null and for a connection of a worker that the program
 * calls: use zl_worker_close.
 *
 * Threads: the last that uses it.
 */
zl_status zl_close(struct zl_connection *connection);

/**
 * Frees the connection, and ends it: at once if the program drives it, and in the background, once
 * posted sends are completed, if a worker does. A worker that the program calls reports no more
 * events of it. Tells the peer if possible. The kernel may still read what its requests send: free
 * wrapped memory in its `release` (zl_region_wrap). Null does nothing.
 *
 * Threads: the last that uses it.
 */
void zl_connection_free(struct zl_connection *connection);

/* ================================================================================================
 * Many requests in flight
 * Requests on parts of a region are posted and complete later; until then their memory belongs to
 * the library. A request may carry a context, a number that its completion returns. Completions of
 * many connections may go to one queue.
 */

/**
 * Memory for requests, which name parts of it. You may free the region while a request or an
 * export uses it: its memory stays until both are over. Memory of zl_region_wrap is yours
 * again when its `release` runs.
 */
typedef struct zl_region zl_region;

/**
 * Allocates a region of `len` zero bytes, page-aligned, in huge pages if the system has them
 * and `len` is at least 1 MiB. A region of less than 2 MiB then takes a whole huge page.
 *
 * Threads: any.
 */
zl_status zl_region_new(size_t len, struct zl_region **region);

/**
 * Makes a region of `len` bytes at `memory`. `release` gets `memory` and `context`, once, when
 * neither Zerolane nor the kernel accesses the bytes any more: the region is freed, its exports
 * have ended, and the completions of its requests were taken, or their connection is freed.
 * Free or unmap the memory only then: after the end of a connection the kernel may still read
 * what was being sent. In that case `release` never runs, because nothing tells when the kernel
 * is done.
 *
 * `release` runs in a thread that calls this library, or in a worker's thread. It must return
 * soon, and must neither call this library nor throw. In a child of fork it does not run. If
 * this function fails, it does not run either, and the memory remains yours. It may be null if
 * the memory stays as long as the process.
 *
 * Threads: any.
 */
zl_status zl_region_wrap(void *memory,
                         size_t len,
                         void (*release)(void *memory, void *context),
                         void *context,
                         struct zl_region **region);

/**
 * The use of a mapped file.
 */
enum zl_access
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : uint32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
    /**
     * For sending: writes to the region do not change the file.
     */
    ZL_ACCESS_READ = 1,
    /**
     * For receiving: writes reach the file.
     */
    ZL_ACCESS_WRITE = 2,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum zl_access zl_access;
#else
typedef uint32_t zl_access;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

/**
 * Maps `len` bytes of the open file `fd` from `offset`. `access` is a value of enum zl_access.
 * You may close the descriptor afterwards. If the file is truncated, requests fail with
 * ZL_ERROR_MEMORY; other accesses to missing pages raise SIGBUS, as with every mapping.
 *
 * Threads: any.
 */
zl_status zl_region_map_file(int fd,
                             uint64_t offset,
                             size_t len,
                             uint32_t access,
                             struct zl_region **region);

/**
 * Returns the start of the region's bytes; null if `region` is null. While a request receives
 * into them, or a peer may write them, their content is undefined and may change during a
 * read.
 *
 * Threads: any.
 */
void *zl_region_data(const struct zl_region *region);

/**
 * Returns the region's length in bytes; 0 if `region` is null.
 *
 * Threads: any.
 */
size_t zl_region_length(const struct zl_region *region);

/**
 * Frees the region. Null does nothing. Memory that a request or an export uses stays until that
 * is over.
 *
 * Threads: the last that uses it.
 */
void zl_region_free(struct zl_region *region);

/**
 * How the sender wants the arrival of a Transfer delivered; it counts for a receiver that chose
 * so (zl_honour_delivery). In all modes completions come in order, and a call that waits for one
 * particular request (zl_recv_into) returns at its end. Four events wake in all modes: a
 * failure, the end of the connection, a Transfer that matches no posted receive, and one of no
 * bytes.
 */
enum zl_delivery
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : uint32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
    /**
     * Delivered, and wakes a waiting receiver.
     */
    ZL_DELIVERY_INTERRUPT = 0,
    /**
     * Delivered to a receiver that polls: zl_poll, zl_queue_poll, or a wait with a timeout of
     * 0. A waiting receiver gets it with the next completion that wakes.
     */
    ZL_DELIVERY_POLLED = 1,
    /**
     * No event and no wake-up. The completion is held back until the connection's next
     * completion that is not silent, or until the receiver asks for it with zl_notify.
     */
    ZL_DELIVERY_SILENT = 2,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum zl_delivery zl_delivery;
#else
typedef uint32_t zl_delivery;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

/**
 * The request completes only if it fails.
 */
#define ZL_WORK_UNSIGNALLED 1

/**
 * The request starts when all earlier requests of the connection are complete. For requests on
 * the peer's memory and messages.
 */
#define ZL_WORK_FENCE 2

/**
 * The peer gets a completion of kind ZL_KIND_IMMEDIATE with the number `immediate`. For puts.
 */
#define ZL_WORK_IMMEDIATE 4

/**
 * Options of a request. Where a pointer to it may be null, null means 0 in all fields. An
 * option that has no meaning for the request is ZL_ERROR_ARGUMENT.
 */
typedef struct zl_work {
    /**
     * ZL_WORK_... flags, joined by |.
     */
    uint32_t flags;
    /**
     * With ZL_WORK_IMMEDIATE: the number.
     */
    uint32_t immediate;
    /**
     * A value of enum zl_delivery, for sends of Transfers; otherwise 0.
     */
    uint32_t delivery;
    /**
     * Must be 0.
     */
    uint32_t reserved;
    /**
     * A number of your own, such as a pointer or an index. The completion returns it.
     */
    uint64_t context;
} zl_work;

/**
 * Posts the send of `len` bytes of `region` from `offset`; many may be in flight. `how` may be
 * null; it sets the delivery at the receiver, whether success is reported here, and the
 * context. `id` gets the request's number; it may be null, here and in all functions that post.
 * ZL_ERROR_TOO_MANY if too many requests are in flight: take a completion and try again.
 *
 * Threads: one at a time.
 */
zl_status zl_post_send(struct zl_connection *connection,
                       const struct zl_region *region,
                       size_t offset,
                       size_t len,
                       const struct zl_work *how,
                       uint64_t *id);

/**
 * One of several parts of memory that are sent as one.
 */
typedef struct zl_part {
    /**
     * The region of the part.
     */
    const struct zl_region *region;
    /**
     * Bytes from the region's start.
     */
    size_t offset;
    /**
     * Length in bytes.
     */
    size_t length;
} zl_part;

/**
 * Posts the send of `count` parts of regions, one after another, as one Transfer with one
 * completion, gathered in place. Parts may overlap; no parts make a Transfer of no bytes.
 * `how` and `id` as for zl_post_send.
 *
 * Threads: one at a time.
 */
zl_status zl_post_send_vectored(struct zl_connection *connection,
                                const struct zl_part *parts,
                                size_t count,
                                const struct zl_work *how,
                                uint64_t *id);

/**
 * Posts a receive into `len` bytes of `region` from `offset`. The n-th receive gets the peer's
 * n-th Transfer, if it fits. Receives complete when their Transfers do: after a lost datagram,
 * a later one may complete first. `how` may be null, or have a context and
 * ZL_WORK_UNSIGNALLED.
 *
 * Threads: one at a time.
 */
zl_status zl_post_recv(struct zl_connection *connection,
                       const struct zl_region *region,
                       size_t offset,
                       size_t len,
                       const struct zl_work *how,
                       uint64_t *id);

/**
 * The kind of a completed request.
 */
enum zl_kind
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : uint32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
    /**
     * zl_post_send.
     */
    ZL_KIND_SEND = 0,
    /**
     * zl_post_recv.
     */
    ZL_KIND_RECEIVE = 1,
    /**
     * zl_post_put and its variants.
     */
    ZL_KIND_PUT = 2,
    /**
     * zl_post_get and its variants.
     */
    ZL_KIND_GET = 3,
    /**
     * zl_post_fetch_op.
     */
    ZL_KIND_FETCH = 4,
    /**
     * zl_post_message.
     */
    ZL_KIND_MESSAGE = 5,
    /**
     * zl_post_message_recv, or memory of a zl_pool.
     */
    ZL_KIND_MESSAGE_RECEIVED = 6,
    /**
     * A put of the peer's with an immediate number: no request of this end, id 0.
     */
    ZL_KIND_IMMEDIATE = 7,
    /**
     * zl_post_open_region.
     */
    ZL_KIND_OPEN = 8,
    /**
     * A kind that this version does not know.
     */
    ZL_KIND_OTHER = 255,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum zl_kind zl_kind;
#else
typedef uint32_t zl_kind;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

/**
 * Most bytes of a message's control.
 */
#define ZL_CONTROL_LENGTH 128

/**
 * Bytes of a zl_key.
 */
#define ZL_KEY_LENGTH 24

/**
 * Names exported memory on one connection. Plain bytes: pass them to the peer by any means.
 */
typedef struct zl_key {
    /**
     * Opaque.
     */
    uint8_t bytes[ZL_KEY_LENGTH];
} zl_key;

/**
 * A finished request. Its memory belongs to the program again.
 */
typedef struct zl_completion {
    /**
     * The request's number, from the function that posted it.
     */
    uint64_t id;
    /**
     * A value of enum zl_kind.
     */
    uint32_t kind;
    /**
     * The request's result.
     */
    zl_status status;
    /**
     * A value of enum zl_delivery.
     */
    uint32_t delivery;
    /**
     * ZL_KIND_MESSAGE_RECEIVED: bytes of `control`.
     */
    uint32_t control_length;
    /**
     * The `context` of the request's zl_work.
     */
    uint64_t context;
    /**
     * From a queue: the connection's tag.
     */
    uint64_t tag;
    /**
     * Bytes moved. ZL_KIND_IMMEDIATE: bytes of the put; of a vectored one, those of its last
     * piece.
     */
    uint64_t length;
    /**
     * ZL_KIND_FETCH: the word's previous value. ZL_KIND_IMMEDIATE: the number.
     */
    uint64_t value;
    /**
     * ZL_KIND_OPEN: the key. ZL_KIND_IMMEDIATE: the key of the memory here that the put wrote, as
     * its export returned it; zl_key_to_u64 has the number of numbered memory in its highest 24
     * bits. Zeros otherwise.
     */
    struct zl_key region;
    /**
     * ZL_KIND_MESSAGE_RECEIVED: the message's control.
     */
    uint8_t control[ZL_CONTROL_LENGTH];
} zl_completion;

/**
 * Waits `timeout_ms` milliseconds (negative: no limit) for a completion, or for one that wakes
 * (zl_honour_delivery), and returns the first completion there is. 0 polls, as zl_poll does.
 * ZL_TIMEOUT if none came, ZL_WOKEN after zl_wake, or if completions went to a queue. Once the
 * connection is over and all completions were taken, it fails with the reason, such as
 * ZL_ERROR_PEER_DEAD.
 *
 * Threads: one at a time; zl_wake of another ends it.
 */
zl_status zl_wait(struct zl_connection *connection,
                  int64_t timeout_ms,
                  struct zl_completion *completion);

/**
 * Waits `timeout_ms` milliseconds (negative: no limit) for request `id`, and returns its completion;
 * others stay. ZL_TIMEOUT if it takes longer: it continues. ZL_WOKEN after zl_wake.
 * ZL_ERROR_ARGUMENT if there is no such request, or its completion was taken; also for a
 * zl_post_put_inline without a context on a connection that the program drives. ZL_ERROR_BUSY while
 * another thread waits for it.
 *
 * Threads: one at a time; zl_wake of another ends it.
 */
zl_status zl_wait_for(struct zl_connection *connection,
                      uint64_t id,
                      int64_t timeout_ms,
                      struct zl_completion *completion);

/**
 * Makes progress without sleeping and returns a completion if there is one, otherwise
 * ZL_TIMEOUT. It returns ZL_DELIVERY_POLLED completions too.
 *
 * Threads: one at a time.
 */
zl_status zl_poll(struct zl_connection *connection, struct zl_completion *completion);

/**
 * Like zl_poll, for up to `capacity` completions, at least 1, after one round of progress.
 * `count` gets their number; ZL_TIMEOUT if there were none.
 *
 * Threads: one at a time.
 */
zl_status zl_poll_batch(struct zl_connection *connection,
                        struct zl_completion *completions,
                        size_t capacity,
                        size_t *count);

/**
 * Ends another thread's zl_wait, or the next one if none is in progress: it returns ZL_WOKEN. So do
 * zl_wait_for, zl_announced and zl_wait_arrived, except on a connection of a worker's thread. It
 * ends no request: calls that wait for one continue. On a connection of a worker that the program
 * calls it acts as zl_worker_wake.
 *
 * Threads: any, also while another uses the connection.
 */
zl_status zl_wake(const struct zl_connection *connection);

/**
 * Sets whether the delivery that senders ask for counts: 1, or 0 as unless set. If not, every
 * completion ends a zl_wait and makes a queue's descriptor readable. ZL_ERROR_ARGUMENT for a
 * connection of a worker's thread.
 *
 * Threads: one at a time.
 */
zl_status zl_honour_delivery(struct zl_connection *connection, uint32_t honours);

/**
 * Makes the completion of request `id` end a zl_wait, whatever delivery its sender chose, also
 * if it is already held back. ZL_ERROR_ARGUMENT if there is no such request, or its completion
 * was taken.
 *
 * Threads: one at a time.
 */
zl_status zl_notify(struct zl_connection *connection, uint64_t id);

/**
 * Writes to `bytes` how many bytes at the start of the memory of receive or get `id` are
 * verified and in place; 0 while the request waits for room. You may read them and pass them on
 * before the request completes. The number never shrinks; bytes after them are undefined.
 * ZL_ERROR_ARGUMENT if no such request is in progress.
 *
 * Threads: one at a time.
 */
zl_status zl_arrived(const struct zl_connection *connection, uint64_t id, uint64_t *bytes);

/**
 * Waits `timeout_ms` milliseconds (negative: no limit) until more than `beyond` bytes of
 * request `id` have arrived, and writes how many to `bytes`. ZL_TIMEOUT if they did not, ZL_WOKEN if
 * zl_wake was called; ZL_ERROR_ARGUMENT if the request is over: its completion has the result.
 *
 * Threads: one at a time; zl_wake of another ends it.
 */
zl_status zl_wait_arrived(struct zl_connection *connection,
                          uint64_t id,
                          uint64_t beyond,
                          int64_t timeout_ms,
                          uint64_t *bytes);

/**
 * Cancels a request. Its memory is in use until its completion, with ZL_ERROR_CANCELLED, or with what
 * came before. ZL_ERROR_ARGUMENT if it is already over.
 *
 * Threads: one at a time.
 */
zl_status zl_cancel(struct zl_connection *connection,
                    uint64_t id);

/**
 * Tells an event loop what to wait for: the connection's socket in `fd`, its events in
 * `events` (POLLIN, and POLLOUT if its send buffer was full), and a time in milliseconds in
 * `timeout_ms` (-1: none). After such an event or that time, call zl_wait with a timeout of 0,
 * which makes one round of progress, then ask again. A time of 0 means that there may be more
 * to do. Do not read the socket.
 *
 * Threads: one at a time.
 */
zl_status zl_watch(struct zl_connection *connection, int *fd, short *events, int64_t *timeout_ms);

/**
 * A queue for the completions of many connections. After fork it belongs to the parent.
 */
typedef struct zl_queue zl_queue;

/**
 * Makes a queue for `capacity` completions and allocates memory for all of them;
 * ZL_ERROR_SYSTEM if there is not enough. When it is full, connections keep their completions
 * and make their peers wait. A queue drives no connection: use it if each connection has a
 * thread of its own, and a zl_worker if one thread drives many. Free the queue with
 * zl_queue_free.
 *
 * Threads: any.
 */
zl_status zl_queue_new(size_t capacity, struct zl_queue **queue);

/**
 * Sends the connection's completions to `queue` from now on, with `tag`. The connection still
 * makes progress only inside its functions, such as zl_wait in a thread of its own.
 *
 * Threads: one at a time.
 */
zl_status zl_set_completion_queue(struct zl_connection *connection,
                                  const struct zl_queue *queue,
                                  uint64_t tag);

/**
 * Returns a completion if there is one, whether it wakes or not, otherwise ZL_TIMEOUT. Its
 * `tag` is its connection's.
 *
 * Threads: any.
 */
zl_status zl_queue_poll(const struct zl_queue *queue, struct zl_completion *completion);

/**
 * Like zl_queue_poll, for up to `capacity` completions, at least 1. `count` gets their number;
 * ZL_TIMEOUT if there were none.
 *
 * Threads: any.
 */
zl_status zl_queue_poll_batch(const struct zl_queue *queue,
                              struct zl_completion *completions,
                              size_t capacity,
                              size_t *count);

/**
 * Waits `timeout_ms` milliseconds (negative: no limit) for a completion that wakes, while
 * other threads drive the connections, and returns the first completion there is. 0 polls, as
 * zl_queue_poll does. ZL_TIMEOUT if none came.
 *
 * Threads: any.
 */
zl_status zl_queue_wait(const struct zl_queue *queue,
                        int64_t timeout_ms,
                        struct zl_completion *completion);

/**
 * Returns a descriptor that is readable while the queue has completions that wake; -1 if
 * `queue` is null. Do not read it.
 *
 * Threads: any.
 */
int zl_queue_fd(const struct zl_queue *queue);

/**
 * Frees the handle. Null does nothing. The queue is freed with the last connection that uses
 * it.
 *
 * Threads: the last that uses it.
 */
void zl_queue_free(struct zl_queue *queue);

/* ================================================================================================
 * Remote memory
 * One end exports memory with rights; the other puts, gets, and changes words of 8 bytes
 * atomically. A worker's thread serves memory while its owner computes or sleeps:
 * zl_worker_background, zl_endpoint_export. Otherwise a put takes effect only during the owner's
 * calls.
 */

/**
 * The peer may read: zl_get.
 */
#define ZL_RIGHT_READ 1

/**
 * The peer may write: zl_put.
 */
#define ZL_RIGHT_WRITE 2

/**
 * The peer may use zl_fetch_op.
 */
#define ZL_RIGHT_ATOMIC 4

/**
 * Memory that peers may read and write while this program uses it. Use C11's stdatomic.h for
 * 8-byte words that both change, zl_exported_fetch_op for 4-byte words. After fork it belongs to the parent, and only the parent can
 * export and revoke it.
 */
typedef struct zl_exported zl_exported;

/**
 * Makes `len` bytes of `region` from `offset` ready to export. They must start at an address
 * that is a multiple of 8; otherwise ZL_ERROR_ARGUMENT. Free it with zl_exported_free.
 *
 * Threads: any.
 */
zl_status zl_exported_new(const struct zl_region *region,
                          size_t offset,
                          size_t len,
                          struct zl_exported **exported);

/**
 * Makes `len` zero bytes, page-aligned, ready to export. A peer on this host that is connected
 * through shared memory (ZL_LANE_SHARED_MEMORY) maps this memory: with the right to read it
 * gets, and with the right to write as well it puts and does atomic operations, without a call
 * of this program. Other peers use it like any exported memory. The system allocates all of it
 * at once: ZL_ERROR_SYSTEM if the machine or the process's control group has less;
 * ZL_ERROR_ARGUMENT if `len` is 0. zl_exported_data returns its address until it is revoked.
 * Free it with zl_exported_free.
 *
 * Threads: any.
 */
zl_status zl_exported_memfd(size_t len, struct zl_exported **exported);

/**
 * Returns the start of the exported bytes. Null if `exported` is null or revoked, and in a
 * child of fork, which does not have the memory of zl_exported_memfd.
 *
 * Threads: any.
 */
void *zl_exported_data(const struct zl_exported *exported);

/**
 * Exports memory to the connection's peer with `rights`, ZL_RIGHT_... flags joined by |. `key`
 * names it there. ZL_ERROR_REVOKED if the memory was revoked.
 *
 * Threads: one at a time.
 */
zl_status zl_export(struct zl_connection *connection,
                    const struct zl_exported *exported,
                    uint32_t rights,
                    struct zl_key *key);

/**
 * Like zl_export; the peer can also ask for the memory by `name`, 1 to 32 bytes of UTF-8.
 * ZL_ERROR_ARGUMENT if the name is taken.
 *
 * Threads: one at a time.
 */
zl_status zl_export_named(struct zl_connection *connection,
                          const char *name,
                          const struct zl_exported *exported,
                          uint32_t rights,
                          struct zl_key *key);

/**
 * Like zl_export, under `number`, below 2^24, of the program's own: the peer makes the key with
 * zl_key_numbered and need not be told it. `key` may be null. ZL_ERROR_ARGUMENT if the number is
 * taken. After revocation it is free; a request that the peer posted before then meets the memory
 * that has the number when it arrives.
 *
 * Threads: one at a time.
 */
zl_status zl_export_numbered(struct zl_connection *connection,
                             uint32_t number,
                             const struct zl_exported *exported,
                             uint32_t rights,
                             struct zl_key *key);

/**
 * Ends an export to this connection's peer, at once. ZL_ERROR_ARGUMENT if `key` names no
 * export of this connection.
 *
 * Threads: one at a time.
 */
zl_status zl_revoke(struct zl_connection *connection, const struct zl_key *key);

/**
 * Ends all exports of `exported` to this connection's peer, under any key and name, including
 * those of zl_endpoint_export. Other peers keep theirs. ZL_ERROR_ARGUMENT if there is none.
 *
 * Threads: one at a time.
 */
zl_status zl_revoke_region(struct zl_connection *connection, const struct zl_exported *exported);

/**
 * Ends all exports of the memory, to all peers, at once. After it returns, no operation of a
 * peer reads or writes the memory, however late it comes.
 *
 * Threads: any.
 */
zl_status zl_exported_revoke(const struct zl_exported *exported);

/**
 * Frees the handle. Null does nothing. Exports continue, and use the memory, until they are
 * revoked or their connections end.
 *
 * Threads: the last that uses it.
 */
void zl_exported_free(struct zl_exported *exported);

/**
 * Asks the peer for the key of the memory that it exports as `name`, with `rights`.
 * ZL_ERROR_UNKNOWN if there is none, ZL_ERROR_DENIED if it lacks one of the rights.
 *
 * Threads: one at a time.
 */
zl_status zl_open_region(struct zl_connection *connection,
                         const char *name,
                         uint32_t rights,
                         struct zl_key *key);

/**
 * Returns the length in bytes of the memory that `key` names; 0 if `key` is null or invalid.
 *
 * Threads: any.
 */
uint64_t zl_key_length(const struct zl_key *key);

/**
 * Makes the key of the memory that the peer exports under `number`, below 2^24, from byte `offset`
 * on, which is offset 0 of the key. The peer is not asked: it refuses a request that it does not
 * permit (ZL_ERROR_UNKNOWN, ZL_ERROR_OUT_OF_BOUNDS, ZL_ERROR_DENIED). Its zl_key_length is
 * 2^64 - 1 less `offset`.
 *
 * Threads: any.
 */
zl_status zl_key_numbered(uint32_t number, uint64_t offset, struct zl_key *key);

/**
 * Writes `key` to `value` as 8 bytes: its number times 2^40 plus its offset. ZL_ERROR_ARGUMENT
 * unless it is the key of numbered memory with an offset below 2^40. Length and rights are not part
 * of it.
 *
 * Threads: any.
 */
zl_status zl_key_to_u64(const struct zl_key *key, uint64_t *value);

/**
 * Makes the key that zl_key_to_u64 wrote as `value`, as zl_key_numbered does. Every value is a key.
 *
 * Threads: any.
 */
zl_status zl_key_from_u64(uint64_t value, struct zl_key *key);

/**
 * Writes `len` bytes at `data` to the peer's memory at `offset`; returns when they are placed
 * and visible there. ZL_ERROR_OUT_OF_BOUNDS, ZL_ERROR_DENIED, ZL_ERROR_REVOKED or
 * ZL_ERROR_UNKNOWN if the peer refuses.
 *
 * Threads: one at a time.
 */
zl_status zl_put(struct zl_connection *connection,
                 const struct zl_key *to,
                 uint64_t offset,
                 const void *data,
                 size_t len);

/**
 * Like zl_put; when the bytes are placed, the peer gets a completion of kind ZL_KIND_IMMEDIATE
 * with the number `immediate`.
 *
 * Threads: one at a time.
 */
zl_status zl_put_with_immediate(struct zl_connection *connection,
                                const struct zl_key *to,
                                uint64_t offset,
                                const void *data,
                                size_t len,
                                uint32_t immediate);

/**
 * Reads `len` bytes of the peer's memory at `offset` into `buffer`. Errors as for zl_put.
 *
 * Threads: one at a time.
 */
zl_status zl_get(struct zl_connection *connection,
                 const struct zl_key *from,
                 uint64_t offset,
                 void *buffer,
                 size_t len);

/**
 * An operation on a word of the peer's memory, done atomically and exactly once.
 */
enum zl_fetch_op_kind
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : uint32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
    /**
     * Adds `operand`, wrapping.
     */
    ZL_FETCH_ADD = 0,
    /**
     * Adds 1, wrapping.
     */
    ZL_FETCH_INCREMENT = 1,
    /**
     * Subtracts 1, wrapping.
     */
    ZL_FETCH_DECREMENT = 2,
    /**
     * Stores 0.
     */
    ZL_FETCH_CLEAR = 3,
    /**
     * Stores `operand`.
     */
    ZL_FETCH_SWAP = 4,
    /**
     * Stores `operand` if the word equals `expected`.
     */
    ZL_FETCH_COMPARE_AND_SWAP = 5,
    /**
     * Clears the bits that `operand` does not have.
     */
    ZL_FETCH_AND = 6,
    /**
     * Sets the bits of `operand`.
     */
    ZL_FETCH_OR = 7,
    /**
     * Flips the bits of `operand`.
     */
    ZL_FETCH_XOR = 8,
    /**
     * Stores `operand` if it is less, unsigned.
     */
    ZL_FETCH_MIN = 9,
    /**
     * Stores `operand` if it is greater, unsigned.
     */
    ZL_FETCH_MAX = 10,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum zl_fetch_op_kind zl_fetch_op_kind;
#else
typedef uint32_t zl_fetch_op_kind;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

/**
 * Joined by | to a zl_fetch_op_kind: the word has 4 bytes, and `operand` and `expected` are below
 * 2^32. The region must have the 8 aligned bytes that hold the word.
 */
#define ZL_FETCH_U32 65536

/**
 * Does `op`, a value of enum zl_fetch_op_kind, on the 8-byte word at `offset` of the peer's
 * memory, or with ZL_FETCH_U32 on a 4-byte word, atomically and exactly once. Writes the word's
 * previous value to `before`, if not null. Operations that do not use `operand` or `expected`
 * ignore them. ZL_ERROR_ARGUMENT if `offset` is not a multiple of the word's bytes; other errors as
 * for zl_put.
 *
 * Threads: one at a time.
 */
zl_status zl_fetch_op(struct zl_connection *connection,
                      const struct zl_key *on,
                      uint64_t offset,
                      uint32_t op,
                      uint64_t operand,
                      uint64_t expected,
                      uint64_t *before);

/**
 * Does the operation of a zl_fetch_op on a word of this program's own memory, atomically with
 * those of the peers. Use it for 4-byte words that peers change; for 8-byte words it is the same as
 * C11's atomics. ZL_ERROR_REVOKED if the memory was revoked, ZL_ERROR_OUT_OF_BOUNDS if it does not
 * have the 8 aligned bytes that are or hold the word.
 *
 * Threads: any.
 */
zl_status zl_exported_fetch_op(const struct zl_exported *exported,
                               size_t offset,
                               uint32_t op,
                               uint64_t operand,
                               uint64_t expected,
                               uint64_t *before);

/**
 * Posts a zl_open_region. Its completion, of kind ZL_KIND_OPEN, has the key in `region`. `how`
 * may be null, or have a context.
 *
 * Threads: one at a time.
 */
zl_status zl_post_open_region(struct zl_connection *connection,
                              const char *name,
                              uint32_t rights,
                              const struct zl_work *how,
                              uint64_t *id);

/**
 * Posts a put of `len` bytes of `region` from `region_offset` to the peer's memory at
 * `offset`. It completes when they are placed and visible there. `how` may be null.
 *
 * Threads: one at a time.
 */
zl_status zl_post_put(struct zl_connection *connection,
                      const struct zl_key *to,
                      uint64_t offset,
                      const struct zl_region *region,
                      size_t region_offset,
                      size_t len,
                      const struct zl_work *how,
                      uint64_t *id);

/**
 * Most bytes of a zl_post_put_inline, and of the payload of a zl_post_message_inline.
 */
#define ZL_INLINE_LENGTH 256

/**
 * Posts a put of a copy of `len` bytes at `data`, at most ZL_INLINE_LENGTH; you may reuse
 * `data` at once. `how` may be null.
 *
 * Threads: one at a time.
 */
zl_status zl_post_put_inline(struct zl_connection *connection,
                             const struct zl_key *to,
                             uint64_t offset,
                             const void *data,
                             size_t len,
                             const struct zl_work *how,
                             uint64_t *id);

/**
 * Posts a get of `len` bytes of the peer's memory at `offset` into `region` from
 * `region_offset`. `how` may be null.
 *
 * Threads: one at a time.
 */
zl_status zl_post_get(struct zl_connection *connection,
                      const struct zl_key *from,
                      uint64_t offset,
                      const struct zl_region *region,
                      size_t region_offset,
                      size_t len,
                      const struct zl_work *how,
                      uint64_t *id);

/**
 * A piece of local memory and its place in the peer's memory.
 */
typedef struct zl_piece {
    /**
     * Bytes from the start of the peer's memory.
     */
    uint64_t remote_offset;
    /**
     * The region of the piece.
     */
    const struct zl_region *region;
    /**
     * Bytes from the region's start.
     */
    size_t offset;
    /**
     * Length in bytes.
     */
    size_t length;
} zl_piece;

/**
 * Posts one put of any number of pieces, at least 1, gathered here and scattered there. From 4096
 * on, pieces wait for others to complete; until all are posted, posts of later operations on remote
 * memory and of messages return ZL_ERROR_TOO_MANY, and calls that wait for their end wait. `how`
 * may be null.
 *
 * Threads: one at a time.
 */
zl_status zl_post_put_vectored(struct zl_connection *connection,
                               const struct zl_key *to,
                               const struct zl_piece *pieces,
                               size_t count,
                               const struct zl_work *how,
                               uint64_t *id);

/**
 * Posts one get of pieces, gathered there and scattered here: otherwise like
 * zl_post_put_vectored. `how` may be null.
 *
 * Threads: one at a time.
 */
zl_status zl_post_get_vectored(struct zl_connection *connection,
                               const struct zl_key *from,
                               const struct zl_piece *pieces,
                               size_t count,
                               const struct zl_work *how,
                               uint64_t *id);

/**
 * Posts a zl_fetch_op. The `value` of its completion is the word's previous value. `how` may
 * be null.
 *
 * Threads: one at a time.
 */
zl_status zl_post_fetch_op(struct zl_connection *connection,
                           const struct zl_key *on,
                           uint64_t offset,
                           uint32_t op,
                           uint64_t operand,
                           uint64_t expected,
                           const struct zl_work *how,
                           uint64_t *id);

/* ================================================================================================
 * Messages
 * A message has up to 128 bytes of control, and a payload of any length or none. The n-th receive
 * gets the n-th message; a message without a receive waits for one. Connections may share a pool
 * of memory instead: zl_pool_new.
 */

/**
 * Sends a message: `control_len` bytes of control, at most ZL_CONTROL_LENGTH, and `len` bytes
 * of payload; for none, null and 0. Returns when the peer has received it. ZL_ERROR_TOO_LARGE if
 * the peer's receive was smaller.
 *
 * Threads: one at a time.
 */
zl_status zl_send_message(struct zl_connection *connection,
                          const void *control,
                          size_t control_len,
                          const void *payload,
                          size_t len);

/**
 * Receives the next message. `control` has room for ZL_CONTROL_LENGTH bytes; `control_len`
 * gets their number. `payload` has room for `capacity` bytes; if no payload is expected, null and
 * 0. `len` gets the payload's length.
 *
 * Threads: one at a time.
 */
zl_status zl_recv_message(struct zl_connection *connection,
                          void *control,
                          size_t *control_len,
                          void *payload,
                          size_t capacity,
                          size_t *len);

/**
 * Posts a zl_send_message. Its payload is `len` bytes of `region` from `offset`; for none, null
 * and twice 0. The control is copied before the call returns. `how` may be null.
 *
 * Threads: one at a time.
 */
zl_status zl_post_message(struct zl_connection *connection,
                          const void *control,
                          size_t control_len,
                          const struct zl_region *region,
                          size_t offset,
                          size_t len,
                          const struct zl_work *how,
                          uint64_t *id);

/**
 * Posts a zl_send_message. Its payload is a copy of `len` bytes at `payload`, at most
 * ZL_INLINE_LENGTH; you may reuse `control` and `payload` at once. With ZL_WORK_UNSIGNALLED it
 * has no completion unless it fails. `how` may be null.
 *
 * Threads: one at a time.
 */
zl_status zl_post_message_inline(struct zl_connection *connection,
                                 const void *control,
                                 size_t control_len,
                                 const void *payload,
                                 size_t len,
                                 const struct zl_work *how,
                                 uint64_t *id);

/**
 * Posts a zl_send_message. Its payload is `count` parts of regions, one after another,
 * gathered in place. Parts may overlap; no parts make a message without payload. The control
 * is copied before the call returns. `how` may be null.
 *
 * Threads: one at a time.
 */
zl_status zl_post_message_vectored(struct zl_connection *connection,
                                   const void *control,
                                   size_t control_len,
                                   const struct zl_part *parts,
                                   size_t count,
                                   const struct zl_work *how,
                                   uint64_t *id);

/**
 * Posts a receive of a message, with its payload into `len` bytes of `region` from `offset`; if
 * no payload is expected, null and twice 0. The n-th receive gets the peer's n-th message. Its
 * completion has the control. `how` may be null, or have a context.
 *
 * Threads: one at a time.
 */
zl_status zl_post_message_recv(struct zl_connection *connection,
                               const struct zl_region *region,
                               size_t offset,
                               size_t len,
                               const struct zl_work *how,
                               uint64_t *id);

/**
 * Memory for messages, shared by any number of connections (ibv_srq, a shared receive context
 * of libfabric). A message takes the first piece when it arrives and no zl_post_message_recv
 * matches it, so an idle connection holds none. Its completion, ZL_KIND_MESSAGE_RECEIVED, has
 * the piece's context; the memory is yours again, to be added again. A message longer than its
 * piece fails with ZL_ERROR_TOO_LARGE at both ends, and no other does.
 *
 * While the pool is empty, peers wait. Connections that hold none are served in the order of
 * waiting, and a connection holds at most as many pieces, of messages that are not complete, as
 * are left. Memory that no message used returns to the pool when its connection ends.
 */
typedef struct zl_pool zl_pool;

/**
 * Makes an empty pool. Free it with zl_pool_free.
 *
 * Threads: any.
 */
zl_status zl_pool_new(struct zl_pool **pool);

/**
 * Adds `len` bytes at `offset` of `region` for the payload of one message, and lets a peer that
 * waits continue, also while the thread of its connection sleeps. 0 bytes serve a message
 * without payload. `context` returns with the completion. ZL_ERROR_CLOSED if the pool is closed.
 *
 * Threads: any.
 */
zl_status zl_pool_add(const struct zl_pool *pool,
                      const struct zl_region *region,
                      size_t offset,
                      size_t len,
                      uint64_t context);

/**
 * Takes out the first piece that no message has taken, and returns its context. ZL_TIMEOUT if
 * there is none.
 *
 * Threads: any.
 */
zl_status zl_pool_remove(const struct zl_pool *pool, uint64_t *context);

/**
 * Returns the number of pieces that no message has taken.
 *
 * Threads: any.
 */
zl_status zl_pool_len(const struct zl_pool *pool, size_t *count);

/**
 * Calls `notice` with `context` once when less than `limit` pieces are left, at once if that is
 * so now (IBV_EVENT_SRQ_LIMIT_REACHED). It replaces an earlier notice. `notice` runs in a thread
 * that drives a connection; it must return soon, and must neither call this library nor throw.
 *
 * Threads: any.
 */
zl_status zl_pool_notify_below(const struct zl_pool *pool,
                               size_t limit,
                               void (*notice)(void *context),
                               void *context);

/**
 * Ends the pool: no message takes memory of it, and nothing can be added. Messages that have
 * memory continue. What no message has taken, and what returns from connections that end, stays
 * for zl_pool_remove.
 *
 * Threads: any.
 */
zl_status zl_pool_close(const struct zl_pool *pool);

/**
 * Frees the handle. Connections that share the pool still do; close it first if they must not.
 * Null does nothing.
 *
 * Threads: the last that uses it.
 */
void zl_pool_free(struct zl_pool *pool);

/**
 * Takes memory of `pool` for messages that no posted receive matches, from now on and for the
 * life of the connection. ZL_ERROR_ARGUMENT if it shares another pool.
 *
 * Threads: one at a time; any if a worker's thread drives the connection.
 */
zl_status zl_set_receive_pool(struct zl_connection *connection, const struct zl_pool *pool);

/* ================================================================================================
 * Workers: many connections in one loop, or in a thread
 * A worker owns endpoints and connections, and reports events. Call zl_worker_wait, then
 * zl_worker_events; or, in your own event loop, zl_worker_arm before you sleep on zl_worker_fd and
 * zl_worker_progress afterwards. Or give it a thread, which serves peers while the program does
 * something else: any thread may then use its endpoints and connections, by the same functions,
 * and wait for a request (zl_wait_for), for the next one of a connection (zl_wait), or for any of
 * many connections (zl_set).
 */

/**
 * Owns endpoints and connections and advances all of them, with one descriptor and one timer: in
 * zl_worker_progress and zl_worker_wait, or, after zl_worker_spawn, in a thread of its own, which
 * answers keep-alives and serves exported memory whatever the program does. Free its endpoints and
 * connections too, before or after it.
 *
 * Any thread may use a worker that has a thread, at any time: "one at a time" in the comments is
 * for one that the program calls.
 *
 * After fork the worker and all that it owns belong to the parent: calls in the child fail with
 * ZL_ERROR_CLOSED. The child may free its copies, which does not disconnect peers.
 */
typedef struct zl_worker zl_worker;

/**
 * Makes a worker that owns nothing. Free it with zl_worker_free.
 *
 * Threads: any.
 */
zl_status zl_worker_new(struct zl_worker **worker);

/**
 * Sets how many microseconds zl_worker_wait, or the worker's thread, polls before it sleeps;
 * 50 by default. The time adapts to how often polling finds something.
 *
 * Threads: one at a time.
 */
zl_status zl_worker_set_spin(struct zl_worker *worker, uint32_t spin_us);

/**
 * Listens on `address`, "host:port" (port 0: any free port), with `options`, or the defaults
 * if null. The worker owns accepted connections. If the program calls it, it reports each as
 * ZL_EVENT_ACCEPTED; if it has a thread, take them with zl_endpoint_accept. Free the endpoint with
 * zl_endpoint_free.
 *
 * Threads: one at a time.
 */
zl_status zl_worker_listen(struct zl_worker *worker,
                           const char *address,
                           const struct zl_options *options,
                           struct zl_endpoint **endpoint);

/**
 * Lets every client of a worker's endpoint that connects from now on use the memory by `name`,
 * with `rights`, ZL_RIGHT_... flags joined by |. Registered once, for any number of peers;
 * zl_exported_revoke ends it for all. ZL_ERROR_ARGUMENT for an endpoint of zl_endpoint_bind.
 *
 * Threads: one at a time.
 */
zl_status zl_endpoint_export(const struct zl_endpoint *endpoint,
                             const char *name,
                             const struct zl_exported *exported,
                             uint32_t rights);

/**
 * Lets every peer of the worker use memory with `rights`, ZL_RIGHT_... flags joined by |, under
 * `number`, below 2^24, of the program's own: on all present connections, and on all that it
 * accepts, makes or adopts later. The peers make the key with zl_key_numbered and need not ask.
 * ZL_ERROR_ARGUMENT if the number is taken, by the worker or on one of its connections;
 * ZL_ERROR_TOO_MANY if one of them has no room: then none has the export. See zl_export_numbered.
 *
 * Threads: one at a time.
 */
zl_status zl_worker_export_numbered(struct zl_worker *worker,
                                    uint32_t number,
                                    const struct zl_exported *exported,
                                    uint32_t rights);

/**
 * Ends zl_worker_export_numbered on all connections of the worker, at once. ZL_ERROR_ARGUMENT if
 * the worker exports nothing under `number`.
 *
 * Threads: one at a time.
 */
zl_status zl_worker_revoke_number(struct zl_worker *worker, uint32_t number);

/**
 * Takes memory of `pool` for messages that no posted receive matches, on all present connections
 * and on all that the worker accepts, makes or adopts later. A connection that shares another
 * pool keeps that. ZL_ERROR_ARGUMENT if the worker shares another pool.
 *
 * Threads: one at a time.
 */
zl_status zl_worker_share_receives(struct zl_worker *worker, const struct zl_pool *pool);

/**
 * Connects to `address`, "host:port", with `options`, or the defaults if null; host names are looked
 * up in the call, and their addresses tried in order. If the program calls the worker, this returns
 * at once, and ZL_EVENT_CONNECTED or ZL_EVENT_CLOSED reports the result; requests posted before that
 * wait, and stay with the address tried then. If the worker has a thread, this returns when the
 * connection is made or the connect timeout is over, with errors as for zl_connect. Free the
 * connection with zl_connection_free.
 *
 * Threads: one at a time.
 */
zl_status zl_worker_connect(struct zl_worker *worker,
                            const char *address,
                            const struct zl_options *options,
                            struct zl_connection **connection);

/**
 * Gives a connection that the program drives, or that was released by another worker, to this one.
 * Frees its handle, also on failure, unless it is null or a worker's; `adopted` gets another.
 *
 * Threads: one at a time; the last that uses the connection's handle.
 */
zl_status zl_worker_adopt(struct zl_worker *worker,
                          struct zl_connection *connection,
                          struct zl_connection **adopted);

/**
 * Takes a connection out of its worker, so that the program can drive it or give it to another
 * worker, for example from an accepting worker to others that answer on the same port. Its old
 * handle is then unusable; free it. From a worker's thread: ZL_ERROR_BUSY, and nothing changes, if
 * requests are not over, or received numbers were not taken. From a worker that the program calls:
 * events that were not taken stay there; ZL_ERROR_CLOSED if it is not connected.
 * ZL_ERROR_ARGUMENT if no worker has it.
 *
 * Threads: one at a time.
 */
zl_status zl_release(const struct zl_connection *connection, struct zl_connection **released);

/**
 * Writes the number of connections that are not over to `count`.
 *
 * Threads: one at a time.
 */
zl_status zl_worker_connections(struct zl_worker *worker, size_t *count);

/**
 * Begins to close a connection of a worker that the program calls: completes posted sends, as
 * zl_close does, then tells the peer. ZL_EVENT_CLOSED follows; then free it. ZL_ERROR_CLOSED if it
 * is already over.
 *
 * Threads: one at a time.
 */
zl_status zl_worker_close(struct zl_worker *worker, struct zl_connection *connection);

/**
 * Makes progress until there is an event (ZL_OK), zl_worker_wake was called (ZL_WOKEN), or
 * `timeout_ms` milliseconds (negative: no limit) passed (ZL_TIMEOUT).
 *
 * Threads: one at a time; zl_worker_wake of another ends it.
 */
zl_status zl_worker_wait(struct zl_worker *worker, int64_t timeout_ms);

/**
 * The kind of an event.
 */
enum zl_event_kind
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : uint32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
    /**
     * `endpoint` accepted `connection`, which is the program's from now on.
     */
    ZL_EVENT_ACCEPTED = 1,
    /**
     * The socket of `endpoint` failed, with `status`; the endpoint is closed.
     */
    ZL_EVENT_ENDPOINT_FAILED = 2,
    /**
     * `connection`, from zl_worker_connect, is established. Requests posted before start now.
     */
    ZL_EVENT_CONNECTED = 3,
    /**
     * A request of `connection` is over, or an immediate arrived: `completion`.
     */
    ZL_EVENT_COMPLETED = 4,
    /**
     * The peer of `connection` announced a Transfer of `length` bytes that no posted receive
     * matches. Reported once for each such Transfer.
     */
    ZL_EVENT_ANNOUNCED = 5,
    /**
     * `connection` is over, or could not be made, with `status`. Its last event: all its
     * requests have completed. Free it with zl_connection_free.
     */
    ZL_EVENT_CLOSED = 6,
    /**
     * A client asks `endpoint` for `connection`, instead of ZL_EVENT_ACCEPTED, if the endpoint has
     * ZL_OPTION_ASKS. zl_peer_data, zl_peer_key and zl_peer_addr show who asks;
     * zl_worker_accept_request or zl_worker_refuse_request answers. It is the program's, too.
     */
    ZL_EVENT_REQUESTED = 7,
    /**
     * Datagrams of the peer of `connection` wait: zl_recv_datagram. Reported again for later ones
     * once it was called.
     */
    ZL_EVENT_DATAGRAMS = 8,
    /**
     * A kind that this version does not know.
     */
    ZL_EVENT_OTHER = 255,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum zl_event_kind zl_event_kind;
#else
typedef uint32_t zl_event_kind;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

/**
 * An event of a worker.
 */
typedef struct zl_event {
    /**
     * A value of enum zl_event_kind. Later versions may add values.
     */
    uint32_t kind;
    /**
     * The reason of ZL_EVENT_ENDPOINT_FAILED and ZL_EVENT_CLOSED; otherwise ZL_OK.
     */
    zl_status status;
    /**
     * The endpoint, from zl_worker_listen; null if none, or if it was freed.
     */
    struct zl_endpoint *endpoint;
    /**
     * The connection; null if none.
     */
    struct zl_connection *connection;
    /**
     * ZL_EVENT_ANNOUNCED: bytes.
     */
    uint64_t length;
    /**
     * 0.
     */
    uint64_t reserved;
    /**
     * ZL_EVENT_COMPLETED: the completion.
     */
    struct zl_completion completion;
} zl_event;

/**
 * Takes up to `capacity` events, at least 1, without making progress. `count` gets their
 * number; ZL_TIMEOUT if there were none. Connections that the worker accepted are yours, with their
 * first event: free each with zl_connection_free, at the latest after ZL_EVENT_CLOSED.
 *
 * Threads: one at a time.
 */
zl_status zl_worker_events(struct zl_worker *worker,
                           struct zl_event *events,
                           size_t capacity,
                           size_t *count);

/**
 * Ends another thread's zl_worker_wait, or the next one if none is in progress, and makes the
 * descriptor readable after zl_worker_arm.
 *
 * Threads: any, also while another uses the worker.
 */
zl_status zl_worker_wake(const struct zl_worker *worker);

/**
 * Does a bounded amount of work and returns: ZL_READY if there may be more to do at once,
 * otherwise ZL_OK.
 *
 * Threads: one at a time.
 */
zl_status zl_worker_progress(struct zl_worker *worker);

/**
 * Call this before the program sleeps on zl_worker_fd: the descriptor becomes readable when
 * something arrives, a timer expires or zl_worker_wake is called. ZL_READY if there is
 * something to do already: do not sleep, call zl_worker_progress. Call zl_worker_progress also
 * after each sleep.
 *
 * Threads: one at a time.
 */
zl_status zl_worker_arm(struct zl_worker *worker);

/**
 * Returns the descriptor to watch for POLLIN after zl_worker_arm; -1 if `worker` is null or has a
 * thread. Do not read it.
 *
 * Threads: any.
 */
int zl_worker_fd(const struct zl_worker *worker);

/**
 * Writes to `timeout_ms` for how many milliseconds zl_worker_progress has nothing to do unless
 * the descriptor becomes readable; -1 if no timer runs. After zl_worker_arm the descriptor
 * covers timers too.
 *
 * Threads: one at a time.
 */
zl_status zl_worker_next_timeout(struct zl_worker *worker, int64_t *timeout_ms);

/**
 * Runs the worker in a thread of its own until it is stopped. Its endpoints and connections continue,
 * without events, and any thread may use their handles from then on. ZL_ERROR_BUSY, and nothing
 * changes, if events were not taken, a connection is not made yet, or requests are not over. End the
 * thread with zl_worker_stop or zl_worker_free. If the system refuses a thread, the worker has
 * ended.
 *
 * Threads: one at a time, also for all that the worker owns.
 */
zl_status zl_worker_spawn(struct zl_worker *worker);

/**
 * Returns the worker that all libraries of this process share, which has a thread. It starts
 * with the first call and lives until the process ends, which tells no peer: close
 * connections first. A child of fork gets a worker of its own with its first call. Free the
 * handle with zl_worker_free, which does not end the thread.
 *
 * Threads: any.
 */
zl_status zl_worker_background(struct zl_worker **worker);

/**
 * Makes the worker's thread call `closed` with `context` once, when the connection is over,
 * whichever end closed it, even if its handle is freed by then; soon if it is over already.
 * `reason` says why, such as ZL_ERROR_PEER_DEAD; ZL_ERROR_CLOSED if the worker ended or the
 * connection was released. The function must neither block, because all connections of the
 * worker would wait, nor unwind. It is never called in a child of fork. An idle connection over a
 * network notices a dead peer only with ZL_OPTION_KEEP_ALIVE. ZL_ERROR_ARGUMENT unless a worker's
 * thread drives the connection: zl_wait and ZL_EVENT_CLOSED tell the end of others.
 *
 * Threads: any.
 */
zl_status zl_on_closed(const struct zl_connection *connection,
                       void (*closed)(zl_status reason, void *context),
                       void *context);

/**
 * Closes all connections and endpoints of a worker that has a thread, waits until posted sends are
 * completed, as zl_close does, and frees the worker, also on failure. Fails if a system error ended
 * the thread earlier. ZL_ERROR_ARGUMENT, and frees nothing, for null, for a worker that the program
 * calls, and for zl_worker_background's, which continues.
 *
 * Threads: the last that uses it.
 */
zl_status zl_worker_stop(struct zl_worker *worker);

/**
 * Ends all connections and endpoints of the worker at once, and its thread, tells the peers if
 * possible, and frees the worker; zl_worker_background's continues. Calls on handles of what it
 * owned then return ZL_ERROR_CLOSED; free them all the same. The kernel may still read what requests
 * send: free wrapped memory in its `release` (zl_region_wrap). Null does nothing.
 *
 * Threads: the last that uses it.
 */
void zl_worker_free(struct zl_worker *worker);

/**
 * A set of requests on connections of workers' threads, of any of them: it has the token of each
 * request that is over. After fork it belongs to the parent.
 */
typedef struct zl_set zl_set;

/**
 * Makes a set without requests. Free it with zl_set_free.
 *
 * Threads: any.
 */
zl_status zl_set_new(struct zl_set **set);

/**
 * Makes `set` have `token`, a number of your choice, once request `id` is over: zl_wait_for then
 * returns its completion without waiting, and zl_wait does not. A request is in one set: adding it
 * again replaces its token. ZL_ERROR_ARGUMENT if there is no such request, if its completion was
 * taken, for ZL_WORK_UNSIGNALLED, and unless a worker's thread drives the connection.
 *
 * Threads: any.
 */
zl_status zl_set_add(const struct zl_set *set,
                     const struct zl_connection *connection,
                     uint64_t id,
                     uint64_t token);

/**
 * Adds `token` now, without a request: ends another thread's zl_set_wait.
 *
 * Threads: any.
 */
zl_status zl_set_signal(const struct zl_set *set, uint64_t token);

/**
 * Removes up to `capacity` tokens, at least 1, the oldest first. `count` gets their number;
 * ZL_TIMEOUT if there were none.
 *
 * Threads: any.
 */
zl_status zl_set_poll_batch(const struct zl_set *set,
                            uint64_t *tokens,
                            size_t capacity,
                            size_t *count);

/**
 * Waits `timeout_ms` milliseconds (negative: no limit) for a token, removes it and returns
 * it, the oldest first. 0 polls. ZL_TIMEOUT if none came.
 *
 * Threads: any.
 */
zl_status zl_set_wait(const struct zl_set *set, int64_t timeout_ms, uint64_t *token);

/**
 * Returns a descriptor that is readable while the set has tokens; -1 if `set` is null. Do not
 * read it.
 *
 * Threads: any.
 */
int zl_set_fd(const struct zl_set *set);

/**
 * Frees the set; its requests continue. Null does nothing.
 *
 * Threads: the last that uses it.
 */
void zl_set_free(struct zl_set *set);

/* ================================================================================================
 * Streams
 * A connection may carry thousands of byte streams instead of messages. Each has its own flow
 * control, priority and ends. Functions that wait have a timeout in milliseconds: negative is no
 * limit, 0 does not wait. A zl_set tells which of many streams are ready, by one descriptor.
 */

/**
 * The streams of a connection: each carries bytes in both directions, with a flow control of its
 * own, so that one that is not read holds up no other. Up to 4096 that each end opened.
 */
typedef struct zl_streams zl_streams;

/**
 * One stream. Its functions may be called by any thread at any time: each byte goes to one reader,
 * and the bytes of one write may follow those of another.
 */
typedef struct zl_stream zl_stream;

/**
 * Which end of a connection this is. One end must be the one, the other end the other.
 */
enum zl_role
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : uint32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
    /**
     * It connected.
     */
    ZL_ROLE_CONNECTOR = 1,
    /**
     * It accepted.
     */
    ZL_ROLE_ACCEPTOR = 2,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum zl_role zl_role;
#else
typedef uint32_t zl_role;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

/**
 * Makes an end of a connection that carries streams; the other end does the same. Takes the
 * connection over, which must be one that the program drives (zl_connect, zl_endpoint_accept), and
 * frees its handle, also on failure, unless that is ZL_ERROR_ARGUMENT. A thread of the library
 * drives it. `role` is a value of enum zl_role. End it with zl_streams_close and zl_streams_free.
 *
 * Threads: the last that uses `connection`.
 */
zl_status zl_streams_new(struct zl_connection *connection,
                         uint32_t role,
                         struct zl_streams **streams);

/**
 * The priority of a stream whose opener has no wish: of 0, whose bytes go first, to 7.
 */
#define ZL_PRIORITY 3

/**
 * Opens a stream, which can be written at once. `purpose`, at most 1024 bytes, tells the peer what
 * it is for: zl_stream_purpose. `priority` is 0, whose bytes go first, to 7, or ZL_PRIORITY.
 * ZL_ERROR_TOO_MANY if this end has 4096. Free the stream with zl_stream_free.
 *
 * Threads: any.
 */
zl_status zl_streams_open(const struct zl_streams *streams,
                          const uint8_t *purpose,
                          size_t length,
                          uint8_t priority,
                          struct zl_stream **stream);

/**
 * Waits `timeout_ms` milliseconds (negative: no limit) for a stream that the peer opens, and
 * accepts it; 0 takes one that waits already; ZL_TIMEOUT if none came. ZL_ERROR_CLOSED when the
 * peer or this end has disconnected. Free the stream with zl_stream_free.
 *
 * Threads: any.
 */
zl_status zl_streams_accept(const struct zl_streams *streams,
                            int64_t timeout_ms,
                            struct zl_stream **stream);

/**
 * Makes `set` have `token`, a number of your choice, once, when zl_streams_accept returns at once;
 * now if it does. Replaces the token given before.
 *
 * Threads: any.
 */
zl_status zl_streams_watch(const struct zl_streams *streams,
                           const struct zl_set *set,
                           uint64_t token);

/**
 * Delivers what was written to the peer's library, and disconnects; opens and accepts no more
 * streams. Waits up to `timeout_ms` milliseconds (negative: no limit): ZL_TIMEOUT if it was not
 * done. Call it again then, or free the streams. What a peer that disconnects first did not take is
 * lost.
 *
 * Threads: any.
 */
zl_status zl_streams_close(const struct zl_streams *streams, int64_t timeout_ms);

/**
 * Frees the streams' connection, and disconnects at once if it is open. Streams that are not freed
 * yet return errors. Null does nothing.
 *
 * Threads: the last that uses it.
 */
void zl_streams_free(struct zl_streams *streams);

/**
 * Writes what the opener of the stream said of it to `buffer`, and its length to `length`.
 * ZL_ERROR_TOO_LARGE if it does not fit; 1024 bytes are enough.
 *
 * Threads: any.
 */
zl_status zl_stream_purpose(const struct zl_stream *stream,
                            uint8_t *buffer,
                            size_t capacity,
                            size_t *length);

/**
 * Waits `timeout_ms` milliseconds (negative: no limit) until the peer's program accepts the
 * stream; ZL_TIMEOUT if it did not, ZL_ERROR_RESET if it refused. A stream can be written before.
 *
 * Threads: any.
 */
zl_status zl_stream_accepted(const struct zl_stream *stream, int64_t timeout_ms);

/**
 * Waits `timeout_ms` milliseconds (negative: no limit) for bytes, and reads those available, up to
 * `capacity` bytes; their number goes to `length`. 0 bytes are the end of the peer's direction.
 * ZL_TIMEOUT if nothing came, and nothing is lost. ZL_ERROR_RESET if an end has reset the stream.
 * ZL_ERROR_CLOSED if the peer disconnected without ending the stream, or this end closed it.
 *
 * Threads: any.
 */
zl_status zl_stream_read(const struct zl_stream *stream,
                         int64_t timeout_ms,
                         void *buffer,
                         size_t capacity,
                         size_t *length);

/**
 * Waits `timeout_ms` milliseconds (negative: no limit) for room, and queues as many bytes as there
 * is room for, at least 1 of them if there are any; their number goes to `written`. The queue has
 * room for 256 KiB, and the peer's credit bounds it. ZL_TIMEOUT if there was no room.
 * ZL_ERROR_FINISHED after zl_stream_finish, ZL_ERROR_RESET if an end has reset the stream.
 *
 * Threads: any.
 */
zl_status zl_stream_write(const struct zl_stream *stream,
                          int64_t timeout_ms,
                          const void *data,
                          size_t length,
                          size_t *written);

/**
 * Bytes of the program, laid out as struct iovec.
 */
typedef struct zl_bytes {
    /**
     * The first byte; may be null if `length` is 0.
     */
    void *base;
    /**
     * Length in bytes.
     */
    size_t length;
} zl_bytes;

/**
 * Like zl_stream_read, into several buffers in order.
 *
 * Threads: any.
 */
zl_status zl_stream_read_vectored(const struct zl_stream *stream,
                                  int64_t timeout_ms,
                                  const struct zl_bytes *buffers,
                                  size_t count,
                                  size_t *length);

/**
 * Like zl_stream_write, from several buffers in order.
 *
 * Threads: any.
 */
zl_status zl_stream_write_vectored(const struct zl_stream *stream,
                                   int64_t timeout_ms,
                                   const struct zl_bytes *buffers,
                                   size_t count,
                                   size_t *written);

/**
 * Ends the direction to the peer, as TCP's half-close does; what was written arrives before. The
 * other direction stays open.
 *
 * Threads: any.
 */
zl_status zl_stream_finish(const struct zl_stream *stream);

/**
 * Ends both directions at once: calls at both ends return ZL_ERROR_RESET, and zl_last_error has
 * `words`, up to 512 bytes of them.
 *
 * Threads: any.
 */
zl_status zl_stream_reset(const struct zl_stream *stream, const char *words);

/**
 * What a stream may be ready for (zl_stream_watch).
 */
enum zl_ready
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : uint32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
    /**
     * zl_stream_read returns at once.
     */
    ZL_READY_READ = 1,
    /**
     * zl_stream_write returns at once.
     */
    ZL_READY_WRITE = 2,
    /**
     * The peer's program accepted the stream, or it ended.
     */
    ZL_READY_ACCEPTED = 3,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum zl_ready zl_ready;
#else
typedef uint32_t zl_ready;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

/**
 * Makes `set` have `token`, a number of your choice, once, when the stream is ready; now if it is.
 * `what` is a value of enum zl_ready. So one set, and its one descriptor (zl_set_fd), tells of any
 * number of streams. Replaces the token that was given for the same before. Another thread may be
 * faster: call with a timeout of 0, and watch again after ZL_TIMEOUT.
 *
 * Threads: any.
 */
zl_status zl_stream_watch(const struct zl_stream *stream,
                          uint32_t what,
                          const struct zl_set *set,
                          uint64_t token);

/**
 * Ends the use of the stream: waits of other threads and later calls return ZL_ERROR_CLOSED. What
 * was written is delivered, then the end. If the peer writes more, or had written what was not
 * read, the stream is reset. Does nothing the second time.
 *
 * Threads: any.
 */
zl_status zl_stream_close(const struct zl_stream *stream);

/**
 * Closes the stream and frees it. Null does nothing.
 *
 * Threads: the last that uses it.
 */
void zl_stream_free(struct zl_stream *stream);

/* ================================================================================================
 * Settings and security
 * By default, each connection or endpoint makes a fresh key: no third party can listen in, but the
 * peer's identity is unknown. Lasting keys are in files.
 */

/**
 * Makes settings with all defaults. Free them with zl_options_free.
 *
 * Threads: any.
 */
zl_status zl_options_new(struct zl_options **options);

/**
 * Options for zl_options_set.
 */
enum zl_option
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : uint32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
    /**
     * 1: fail rather than copy payload in user space. Default 0.
     */
    ZL_OPTION_STRICT = 1,
    /**
     * 0: use no UDP segmentation offload. Default 1.
     */
    ZL_OPTION_GSO = 2,
    /**
     * 0: use no UDP receive offload. Default 1.
     */
    ZL_OPTION_GRO = 3,
    /**
     * 1: checksum payload in addition to UDP. Default 0.
     */
    ZL_OPTION_CHECKSUM = 4,
    /**
     * Receive socket buffer to request, in bytes, 4 KiB to 1 GiB. Default 8 MiB.
     */
    ZL_OPTION_RECEIVE_BUFFER = 5,
    /**
     * Most bytes granted to the peer ahead, 4 KiB to 1 GiB. Default 128 MiB.
     */
    ZL_OPTION_MAX_IN_FLIGHT = 6,
    /**
     * Microseconds to poll for the next datagram before sleeping. Default 50.
     */
    ZL_OPTION_SPIN_US = 7,
    /**
     * Milliseconds after which connecting fails, at least 1. Default 5000.
     */
    ZL_OPTION_CONNECT_TIMEOUT_MS = 8,
    /**
     * Milliseconds without an answer after which the peer counts as dead, at least 1. Default
     * 15000.
     */
    ZL_OPTION_IDLE_TIMEOUT_MS = 9,
    /**
     * Transfers that the peer may announce before the first is answered, 1 to 1024. Default
     * 64.
     */
    ZL_OPTION_SLOTS = 10,
    /**
     * 1: neither encrypt nor authenticate; the peer must set the same. A host on the path can
     * read and change everything. Default 0.
     */
    ZL_OPTION_PLAIN = 11,
    /**
     * 1: prove identities and protect all content from changes, but do not encrypt; the peer
     * must set the same. A host on the path can read everything. Default 0. Of this and
     * ZL_OPTION_PLAIN, the last one set counts.
     */
    ZL_OPTION_AUTHENTICATED = 12,
    /**
     * The connection's lane, a value of enum zl_lane. Default ZL_LANE_BEST.
     */
    ZL_OPTION_LANE = 13,
    /**
     * Most paths of a connection over UDP or raw Ethernet at a time, 1 to 8; the smaller of
     * both ends' values applies. Default 1, or as many as zl_options_add_path needs. Not with
     * zl_options_set_device.
     */
    ZL_OPTION_PATHS = 14,
    /**
     * 1: at this end, each path but the first has a thread, so that one connection uses more
     * than one core. Default 0.
     */
    ZL_OPTION_PATH_THREADS = 15,
    /**
     * 1: the peer may add paths over raw Ethernet, at any interface, to a connection over UDP
     * that an endpoint accepts, if ZL_OPTION_PATHS is at least 2. Needs CAP_NET_RAW; otherwise
     * zl_endpoint_bind fails. Default 0. An endpoint of ZL_LANE_ETHERNET accepts such paths
     * without it.
     */
    ZL_OPTION_ETHERNET_PATHS = 16,
    /**
     * 1: the peer may add paths over UDP, at any address of the host and the UDP port with the
     * endpoint's number, to a connection over raw Ethernet that an endpoint accepts, if
     * ZL_OPTION_PATHS is at least 2. Default 0.
     */
    ZL_OPTION_UDP_PATHS = 17,
    /**
     * 1: ask the peer ten times an idle timeout whether it lives, also while no request
     * depends on it, so that an idle connection over a network ends when its peer has died. A
     * peer whose program makes no call for the idle timeout counts as dead, unless a worker's
     * thread answers for it. Default 0.
     */
    ZL_OPTION_KEEP_ALIVE = 18,
    /**
     * Connections that an endpoint accepts before zl_endpoint_accept does, in a thread of its
     * own, 0 to 65535; further clients wait. 0: no thread, and clients wait for
     * zl_endpoint_accept. Has no effect on a worker's endpoints. Default 64.
     */
    ZL_OPTION_BACKLOG = 19,
    /**
     * 1: an endpoint accepts nothing by itself: zl_endpoint_incoming, or ZL_EVENT_REQUESTED of a
     * worker, shows each request for a connection, to accept or refuse it. Default 0.
     */
    ZL_OPTION_ASKS = 20,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum zl_option zl_option;
#else
typedef uint32_t zl_option;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

/**
 * The lane of a connection.
 */
enum zl_lane
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : uint32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
    /**
     * UDP, also to processes of this host.
     */
    ZL_LANE_UDP = 0,
    /**
     * Shared memory to processes of this host and user that listen with this value or the
     * next, otherwise UDP. Shared memory is not encrypted: the kernel keeps other users out.
     */
    ZL_LANE_BEST = 1,
    /**
     * Shared memory, or connecting fails. An endpoint accepts no other lane.
     */
    ZL_LANE_SHARED_MEMORY = 2,
    /**
     * Raw Ethernet between hosts of one segment, or connecting fails; needs CAP_NET_RAW.
     * Addresses are "ether:IFACE/MAC:PORT", and "ether:IFACE:PORT" to listen. zl_peer_addr and
     * the like return them as link-local IPv6 addresses with a scope:
     * "[fe80::ff:fe00:1%2]:7411".
     */
    ZL_LANE_ETHERNET = 3,
    /**
     * IP protocol 118, without UDP, or connecting fails; needs CAP_NET_RAW. Ports are those of
     * the protocol's header.
     */
    ZL_LANE_IP118 = 4,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum zl_lane zl_lane;
#else
typedef uint32_t zl_lane;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

/**
 * Sets `option`, a value of enum zl_option, to `value`. ZL_ERROR_ARGUMENT if the option is
 * unknown or the value out of range.
 *
 * Threads: any.
 */
zl_status zl_options_set(struct zl_options *options, uint32_t option, uint64_t value);

/**
 * Makes both ends of shared memory find each other by `name` instead of the address: for
 * containers of one kernel with separate networks, one rendezvous directory and one user.
 * `name` has 1 to 63 letters, digits, '-', '_' and '.', and starts with a letter or a digit.
 *
 * Threads: any.
 */
zl_status zl_options_rendezvous(struct zl_options *options, const char *name);

/**
 * An interface opened for raw Ethernet past the kernel's network stack (AF_XDP): once for each
 * interface, for all its connections. docs/reference/lanes.md, "AF_XDP".
 */
typedef struct zl_device zl_device;

/**
 * Flags of zl_device_options.
 */
enum zl_device_flag
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : uint32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
    /**
     * Refuse AF_XDP unless the driver itself reads and writes the memory.
     */
    ZL_DEVICE_ZERO_COPY = 1,
    /**
     * Use packet sockets if AF_XDP or the program is refused; zl_device_refused returns the
     * reason. Without this flag that is an error.
     */
    ZL_DEVICE_FALL_BACK = 2,
    /**
     * Drop frames of the protocol that belong to no connection of the device.
     */
    ZL_DEVICE_EXCLUSIVE = 4,
    /**
     * Frames come by packet sockets, and the driver drops payload that was not granted.
     */
    ZL_DEVICE_VALIDATE_ONLY = 8,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum zl_device_flag zl_device_flag;
#else
typedef uint32_t zl_device_flag;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

/**
 * Settings of a device. All 0: the defaults.
 */
typedef struct zl_device_options {
    /**
     * Values of enum zl_device_flag, joined by |.
     */
    uint32_t flags;
    /**
     * The receive queue whose frames come by AF_XDP.
     */
    uint32_t queue;
    /**
     * Most connections at a time, 1 to 1024; 0: 8.
     */
    uint32_t max_connections;
    /**
     * Poll the driver for at most this many frames a call (SO_PREFER_BUSY_POLL), up to 65535;
     * 0: do not.
     */
    uint32_t busy_poll;
    /**
     * Must be 0.
     */
    uint64_t reserved[4];
} zl_device_options;

/**
 * Opens `interface` with `options`, or the defaults if null. Needs root, or CAP_BPF,
 * CAP_NET_ADMIN, CAP_PERFMON and CAP_NET_RAW. Give the device to connections and endpoints
 * with zl_options_set_device, and free it with zl_device_free.
 *
 * Threads: any.
 */
zl_status zl_device_open(const char *interface,
                         const struct zl_device_options *options,
                         struct zl_device **device);

/**
 * Uses `device` for connections and endpoints over ZL_LANE_ETHERNET that are made with
 * `options` from now on; null: none.
 *
 * Threads: any.
 */
zl_status zl_options_set_device(struct zl_options *options, const struct zl_device *device);

/**
 * How a device's frames come and leave.
 */
enum zl_device_mode
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : uint32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
    /**
     * By packet sockets.
     */
    ZL_DEVICE_PACKET_SOCKETS = 0,
    /**
     * By AF_XDP; the kernel copies each frame once more.
     */
    ZL_DEVICE_BYPASS_COPY = 1,
    /**
     * By AF_XDP; the driver reads and writes the memory itself.
     */
    ZL_DEVICE_BYPASS_ZERO_COPY = 2,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum zl_device_mode zl_device_mode;
#else
typedef uint32_t zl_device_mode;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

/**
 * Writes to `mode` how frames come and leave, a value of enum zl_device_mode.
 *
 * Threads: any.
 */
zl_status zl_device_get_mode(const struct zl_device *device, uint32_t *mode);

/**
 * Writes to `buffer`, with a terminating zero, why AF_XDP or the program in the driver is not
 * used although requested; an empty text if it is used. 512 bytes are enough.
 *
 * Threads: any.
 */
zl_status zl_device_refused(const struct zl_device *device, char *buffer, size_t capacity);

/**
 * Frees the handle. Null does nothing. The device stays open while connections, endpoints or
 * options use it.
 *
 * Threads: the last that uses it.
 */
void zl_device_free(struct zl_device *device);

/**
 * Bytes that hold any public key as text ("zl:" and 43 characters), with its terminating zero.
 */
#define ZL_PUBLIC_KEY_LENGTH 47

/**
 * Uses the key in `file` as this end's identity; zerolane keygen makes such files. Creates
 * the file if it does not exist. Other users must not be able to read it. Without this call,
 * each connection and endpoint makes a fresh key. Writes the public key to `buffer`, if not
 * null, as text and a zero: at most ZL_PUBLIC_KEY_LENGTH bytes.
 *
 * Threads: any.
 */
zl_status zl_options_identity(struct zl_options *options,
                              const char *file,
                              char *buffer,
                              size_t capacity);

/**
 * Accepts only peers that prove they own `key` (a text, as printed by zerolane id), or another
 * key of an earlier call. Without a call, any peer is accepted: no third party can listen in,
 * but the peer's identity is unknown.
 *
 * Threads: any.
 */
zl_status zl_options_trust(struct zl_options *options, const char *key);

/**
 * Frees the settings. Null does nothing.
 *
 * Threads: the last that uses them.
 */
void zl_options_free(struct zl_options *options);

/**
 * Writes the key that the peer proved it owns to `buffer`, as text and a zero: at most
 * ZL_PUBLIC_KEY_LENGTH bytes. The text is empty if the connection is plain.
 *
 * Threads: one at a time.
 */
zl_status zl_peer_key(const struct zl_connection *connection, char *buffer, size_t capacity);

/**
 * Writes the key by which clients know this end to `buffer`, as text and a zero: at most
 * ZL_PUBLIC_KEY_LENGTH bytes. The text is empty if connections are plain.
 *
 * Threads: one at a time.
 */
zl_status zl_endpoint_public_key(const struct zl_endpoint *endpoint, char *buffer, size_t capacity);

/* ================================================================================================
 * Private data, and requests for connections
 * Up to 64 bytes of the program travel with the request for a connection and with its answer. With
 * ZL_OPTION_ASKS the program reads them before it accepts or refuses.
 */

/**
 * Most bytes of private data.
 */
#define ZL_PRIVATE_DATA_LENGTH 64

/**
 * Sets data of the program, at most ZL_PRIVATE_DATA_LENGTH bytes, that go to the peer: of a
 * connecting end with its request, of an endpoint with each answer. zl_peer_data returns them
 * there. A client that gives some, even of length 0, gets those of the answer. They are
 * encrypted with the rest.
 *
 * Threads: any.
 */
zl_status zl_options_set_private_data(struct zl_options *options,
                                      const uint8_t *data,
                                      size_t length);

/**
 * Writes the private data that came with the peer's request, or with its answer, to `buffer`,
 * and their length to `length`; 0 if there were none. ZL_PRIVATE_DATA_LENGTH bytes are enough;
 * ZL_ERROR_ARGUMENT if `capacity` is too small.
 *
 * Threads: one at a time.
 */
zl_status zl_peer_data(const struct zl_connection *connection,
                       uint8_t *buffer,
                       size_t capacity,
                       size_t *length);

/**
 * A client's request for a connection, from zl_endpoint_incoming. zl_incoming_accept and
 * zl_incoming_refuse answer it and free the handle. After fork it belongs to the parent: in the
 * child they do neither.
 */
typedef struct zl_incoming zl_incoming;

/**
 * Waits `timeout_ms` milliseconds (negative: no limit) for the next request for a connection, if
 * the endpoint has ZL_OPTION_ASKS; ZL_TIMEOUT if none came. The client waits for
 * zl_incoming_accept or zl_incoming_refuse.
 *
 * Threads: one at a time.
 */
zl_status zl_endpoint_incoming(struct zl_endpoint *endpoint,
                               int64_t timeout_ms,
                               struct zl_incoming **incoming);

/**
 * Writes the client's private data to `buffer`, as zl_peer_data does.
 *
 * Threads: one at a time.
 */
zl_status zl_incoming_data(const struct zl_incoming *incoming,
                           uint8_t *buffer,
                           size_t capacity,
                           size_t *length);

/**
 * Writes the client's address to `buffer`, as zl_peer_addr does.
 *
 * Threads: one at a time.
 */
zl_status zl_incoming_peer_addr(const struct zl_incoming *incoming, char *buffer, size_t capacity);

/**
 * Writes the key that the client proved it owns to `buffer`, as zl_peer_key does.
 *
 * Threads: one at a time.
 */
zl_status zl_incoming_peer_key(const struct zl_incoming *incoming, char *buffer, size_t capacity);

/**
 * Accepts the request and frees its handle. The answer has `length` bytes at `data`, or, if
 * `data` is null, the endpoint's of zl_options_set_private_data. ZL_ERROR_ARGUMENT leaves the
 * request as it was. End the connection with zl_close or zl_connection_free.
 *
 * Threads: the last that uses `incoming`.
 */
zl_status zl_incoming_accept(struct zl_incoming *incoming,
                             const uint8_t *data,
                             size_t length,
                             struct zl_connection **connection);

/**
 * Refuses the request and frees its handle: the client's zl_connect fails. Null does nothing.
 *
 * Threads: the last that uses `incoming`.
 */
void zl_incoming_refuse(struct zl_incoming *incoming);

/**
 * Accepts the request of ZL_EVENT_REQUESTED. The answer has `length` bytes at
 * `data`, or, if `data` is null, the endpoint's of zl_options_set_private_data. ZL_ERROR_CLOSED
 * if there is no such request: it was decided, or the client gave up.
 *
 * Threads: one at a time.
 */
zl_status zl_worker_accept_request(struct zl_worker *worker,
                                   struct zl_connection *connection,
                                   const uint8_t *data,
                                   size_t length);

/**
 * Refuses such a request: the client's zl_connect fails. ZL_EVENT_CLOSED follows.
 * ZL_ERROR_CLOSED if there is no such request.
 *
 * Threads: one at a time.
 */
zl_status zl_worker_refuse_request(struct zl_worker *worker, struct zl_connection *connection);

/* ================================================================================================
 * Counters
 * Bytes placed and copied, datagrams and system calls of a connection.
 */

/**
 * Counters of a connection since it began. Later versions may add fields in place of
 * `reserved`.
 */
typedef struct zl_account {
    /**
     * Payload bytes that reached their place without a copy in user space.
     */
    uint64_t bytes_placed;
    /**
     * Payload bytes copied once more in user space.
     */
    uint64_t bytes_moved;
    /**
     * Payload bytes handed to the kernel.
     */
    uint64_t bytes_sent;
    /**
     * Datagrams handed to the kernel.
     */
    uint64_t datagrams_sent;
    /**
     * Datagrams taken from the kernel.
     */
    uint64_t datagrams_received;
    /**
     * Datagrams that the kernel dropped because the receive buffer was full.
     */
    uint64_t dropped_socket_buffer;
    /**
     * System calls that sent.
     */
    uint64_t send_syscalls;
    /**
     * System calls that received, including those that found nothing.
     */
    uint64_t receive_syscalls;
    /**
     * Receive buffer that the kernel granted, in bytes.
     */
    uint64_t receive_buffer;
    /**
     * Of `bytes_sent`, bytes that the kernel sent without its own copy.
     */
    uint64_t bytes_sent_zerocopy;
    /**
     * The lane: ZL_LANE_UDP, ZL_LANE_SHARED_MEMORY, ZL_LANE_ETHERNET or ZL_LANE_IP118.
     */
    uint64_t lane;
    /**
     * 1: raw Ethernet frames come and leave by AF_XDP (zl_device_open); otherwise 0.
     */
    uint64_t bypass;
    /**
     * Puts, gets and atomic operations that this end did in its mapping of the peer's memory,
     * without the peer's CPU (zl_exported_memfd).
     */
    uint64_t direct_operations;
    /**
     * 0.
     */
    uint64_t reserved[3];
} zl_account;

/**
 * Writes the connection's counters so far to `account`.
 *
 * Threads: one at a time.
 */
zl_status zl_account_read(const struct zl_connection *connection, struct zl_account *account);

/**
 * Writes all of the connection's counters to `buffer` as one line of JSON, without a line feed,
 * and a zero. `length` gets its bytes without the zero, also on failure; it may be null.
 * ZL_ERROR_ARGUMENT if `capacity` is too small; 4096 bytes usually do. The members have the names
 * of Rust's Account: numbers are integers, times nanoseconds ("rtt_ns"), and what is not known is
 * null.
 *
 * Threads: one at a time.
 */
zl_status zl_account_json(const struct zl_connection *connection,
                          char *buffer,
                          size_t capacity,
                          size_t *length);

/* ================================================================================================
 * Paths
 * A connection over UDP or raw Ethernet may have several paths, from several interfaces. Payload
 * uses all of them; a path that fails loses nothing. docs/reference/lanes.md, "Several paths".
 */

/**
 * Adds a path to connections that are opened with `options`, besides the first; up to 7 calls.
 * `path` is "LOCAL=PEER", from an address of this host to one of the peer, such as
 * "192.0.2.1=192.0.2.2". Omitted parts, including ports, are those of the first path: "=" is a
 * path from another port. The peer must allow as many paths (ZL_OPTION_PATHS) and listen at
 * that address. If a path cannot be opened, the connection keeps the others.
 *
 * "ether:IFACE=ether:IFACE/MAC" is a path over raw Ethernet, from an interface of this host to
 * a hardware address of the peer on its segment. It needs CAP_NET_RAW, and a peer with
 * ZL_OPTION_ETHERNET_PATHS or ZL_LANE_ETHERNET. ZL_ERROR_ARGUMENT if the interface does not
 * exist. A path over UDP of a connection over raw Ethernet names the peer's address, and the
 * peer must have ZL_OPTION_UDP_PATHS.
 *
 * Threads: any.
 */
zl_status zl_options_add_path(struct zl_options *options, const char *path);

/**
 * Adds a path to an open connection: see zl_options_add_path. ZL_ERROR_ARGUMENT if the
 * connection's lane is neither UDP nor raw Ethernet, or neither ZL_OPTION_PATHS nor
 * zl_options_add_path asked for several paths. zl_paths_read shows its state.
 *
 * Threads: one at a time.
 */
zl_status zl_add_path(const struct zl_connection *connection, const char *path);

/**
 * Stops using path `index`. Its payload in flight is sent over other paths. ZL_ERROR_ARGUMENT
 * if `index` is 0; a path that does not exist does nothing.
 *
 * Threads: one at a time.
 */
zl_status zl_remove_path(const struct zl_connection *connection, uint32_t index);

/**
 * State of a path.
 */
enum zl_path_life
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : uint32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
    /**
     * The path is being probed for the first time.
     */
    ZL_PATH_JOINING = 1,
    /**
     * The path answers, and its datagram size is being probed.
     */
    ZL_PATH_SIZING = 2,
    /**
     * The path carries payload.
     */
    ZL_PATH_USABLE = 3,
    /**
     * The path does not answer.
     */
    ZL_PATH_SUSPECT = 4,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum zl_path_life zl_path_life;
#else
typedef uint32_t zl_path_life;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

/**
 * State and counters of a path. Later versions may add fields in place of `reserved`.
 */
typedef struct zl_path {
    /**
     * The path's number; 0 is the first path.
     */
    uint32_t index;
    /**
     * A value of enum zl_path_life.
     */
    uint32_t life;
    /**
     * Smoothed round-trip time in microseconds; 0: not measured.
     */
    uint64_t rtt_us;
    /**
     * Payload bytes sent, repeats included.
     */
    uint64_t bytes_sent;
    /**
     * Payload bytes lost, as the receiver reported.
     */
    uint64_t bytes_lost;
    /**
     * Payload bytes that it brought for the first time. Counted if both ends allow several
     * paths.
     */
    uint64_t bytes_received;
    /**
     * Sending rate of payload in bytes per second; 0: unlimited.
     */
    uint64_t pace;
    /**
     * 0.
     */
    uint64_t reserved[4];
} zl_path;

/**
 * Writes up to `capacity` of the connection's paths, at most 8 in all, and their number to
 * `count`.
 *
 * Threads: one at a time.
 */
zl_status zl_paths_read(const struct zl_connection *connection,
                        struct zl_path *paths,
                        size_t capacity,
                        size_t *count);

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif  /* ZEROLANE_H */
