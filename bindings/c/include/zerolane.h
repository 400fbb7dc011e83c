/*
 * Zerolane: memory moved between machines over ordinary Ethernet.
 * Made from bindings/c/src by cbindgen; do not edit. See docs/guide/c.md.
 */

#ifndef ZEROLANE_H
#define ZEROLANE_H

#include <stddef.h>
#include <stdint.h>

/* A name that goes with the next release. */
#if defined(__GNUC__)
#define ZL_DEPRECATED(use) __attribute__((deprecated(use)))
#else
#define ZL_DEPRECATED(use)
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* ================================================================================================
 * Connect, send, receive, close
 * One end listens, the other connects. One send is one receive, of any length. Functions return a
 * code; the text of a failure is kept for each thread. Each function says which threads may call
 * it. Any: at any time. One at a time: a call while another thread is in one with the same handle
 * returns ZL_ERROR_BUSY and does nothing.
 */

/**
 * Version of the binary interface. It grows when programs compiled against an older header would not
 * work any more. While it is 0, any release may break them.
 */
#define ZL_ABI_VERSION 0

/**
 * Version of the binary interface of the library in use; compare with ZL_ABI_VERSION, that of the
 * header.
 *
 * Threads: any.
 */
uint32_t zl_abi_version(void);

/**
 * Release of the library in use, as "1.2.3".
 *
 * Threads: any.
 */
const char *zl_version(void);

/**
 * What a function returns, and how a request ended. Negative: it failed, and zl_last_error has the
 * text. After ZL_ERROR_ARGUMENT, ZL_ERROR_BUSY, ZL_ERROR_TOO_MANY and the failures of a single
 * request (ZL_ERROR_CANCELLED to ZL_ERROR_UNKNOWN, ZL_ERROR_TIMED_OUT, ZL_ERROR_FINISHED) the connection
 * goes on. More codes may be added.
 */
enum zl_status
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : int32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
    /**
     * Done.
     */
    ZL_OK = 0,
    /**
     * Nothing happened in the time given, or zl_wake was called. Not a failure.
     */
    ZL_TIMEOUT = 1,
    /**
     * There is something to do at once: do not sleep. Not a failure.
     */
    ZL_READY = 2,
    /**
     * A null pointer, a value out of range, a text that is not UTF-8.
     */
    ZL_ERROR_ARGUMENT = -1,
    /**
     * Another thread is using the handle, or what was asked of it is not over (zl_handle_release).
     */
    ZL_ERROR_BUSY = -2,
    /**
     * The operating system refused.
     */
    ZL_ERROR_SYSTEM = -3,
    /**
     * The host is not known, or has no address.
     */
    ZL_ERROR_NO_ADDRESS = -4,
    /**
     * No answer came within the connect timeout.
     */
    ZL_ERROR_CONNECT_TIMEOUT = -5,
    /**
     * The connection was rejected.
     */
    ZL_ERROR_REJECTED = -6,
    /**
     * The connection was closed, by this end or the peer; or what was used belongs to the process that this one was forked
     * from.
     */
    ZL_ERROR_CLOSED = -7,
    /**
     * The peer does not answer any more, or nothing listens there.
     */
    ZL_ERROR_PEER_DEAD = -8,
    /**
     * The peer broke the protocol.
     */
    ZL_ERROR_PROTOCOL = -9,
    /**
     * Strict mode: payload would have had to be copied in user space.
     */
    ZL_ERROR_STRICT = -10,
    /**
     * As many requests as a connection takes are in flight, or as many regions exported.
     */
    ZL_ERROR_TOO_MANY = -11,
    /**
     * The request was cancelled at this end.
     */
    ZL_ERROR_CANCELLED = -12,
    /**
     * The message is larger than the receive it met.
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
     * The request names bytes outside the peer's memory.
     */
    ZL_ERROR_OUT_OF_BOUNDS = -16,
    /**
     * The peer's memory was exported without the right for that.
     */
    ZL_ERROR_DENIED = -17,
    /**
     * The memory was revoked by its owner.
     */
    ZL_ERROR_REVOKED = -18,
    /**
     * The peer exports nothing of that name or key, on this connection.
     */
    ZL_ERROR_UNKNOWN = -19,
    /**
     * The peer is not one of those to be spoken to (zl_options_trust).
     */
    ZL_ERROR_UNTRUSTED = -20,
    /**
     * The call took longer than zl_set_timeout allows. Its request was cancelled; whether the peer saw it
     * is not known.
     */
    ZL_ERROR_TIMED_OUT = -21,
    /**
     * The peer finished sending, and nothing more comes; or this end did, and nothing more can be sent.
     */
    ZL_ERROR_FINISHED = -22,
    /**
     * A fault of this library. The handle cannot be used any more, only freed.
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
 * What `status` means, in a few words; never null. The text is static.
 *
 * Threads: any.
 */
const char *zl_status_text(int32_t status);

/**
 * The reason of the last failure of a call of this thread, as a sentence with details; empty if no call
 * failed. Valid until the next call of this thread fails.
 *
 * Threads: any; each has its own.
 */
const char *zl_last_error(void);

/**
 * Settings of connections. The defaults suit a local network, encrypt, and trust any peer.
 */
typedef struct zl_options zl_options;

/**
 * Bytes that hold any address of this library as a text, with the zero at its end.
 */
#define ZL_ADDRESS_LENGTH 64

/**
 * A listening UDP port. After fork it belongs to the parent, which alone accepts: a server of several processes binds an
 * endpoint in each, at a port of its own. The child may free its copy.
 */
typedef struct zl_endpoint zl_endpoint;

/**
 * A connection. It makes progress only inside its functions, in the calling thread: a peer that
 * calls none for the idle timeout, while this end waits for it, counts as dead. A zl_worker moves many, and
 * can do so in a thread of its own. After fork it belongs to the parent: calls in the child fail with ZL_ERROR_CLOSED. The
 * child may free its copy; the peer is not told.
 */
typedef struct zl_connection zl_connection;

/**
 * Listens on `address`, "host:port" (port 0: any that is free), with `options`, or the defaults if null. A link-local IPv6
 * address has its interface, as in "[fe80::1%eth0]:9181". Free the endpoint with zl_endpoint_free.
 *
 * Threads: any.
 */
zl_status zl_endpoint_bind(const char *address,
                           const struct zl_options *options,
                           struct zl_endpoint **endpoint);

/**
 * Writes the address listened on to `buffer`, as "host:port" and a zero. ZL_ADDRESS_LENGTH bytes are
 * enough.
 *
 * Threads: one at a time.
 */
zl_status zl_endpoint_local_addr(const struct zl_endpoint *endpoint,
                                 char *buffer,
                                 size_t capacity);

/**
 * Waits `timeout_ms` milliseconds (negative: no limit) for the next connection. It may be given to
 * another thread. Free it with zl_close or zl_connection_free.
 *
 * Threads: one at a time.
 */
zl_status zl_endpoint_accept(struct zl_endpoint *endpoint,
                             int64_t timeout_ms,
                             struct zl_connection **connection);

/**
 * Stops listening. Null does nothing. Connections it accepted go on.
 *
 * Threads: the last that uses it.
 */
void zl_endpoint_free(struct zl_endpoint *endpoint);

/**
 * Connects to `address`, "host:port", with `options`, or the defaults if null. A link-local IPv6 address has its interface, as in
 * "[fe80::1%eth0]:9181". End the connection with zl_close, or zl_connection_free.
 *
 * Threads: any.
 */
zl_status zl_connect(const char *address,
                     const struct zl_options *options,
                     struct zl_connection **connection);

/**
 * Writes the peer's address to `buffer`, as "host:port" and a zero. ZL_ADDRESS_LENGTH bytes are
 * enough.
 *
 * Threads: one at a time.
 */
zl_status zl_peer_addr(const struct zl_connection *connection, char *buffer, size_t capacity);

/**
 * Writes this end's address at present to `buffer`, as "host:port" and a zero; an empty text while there is
 * no way to the peer. ZL_ADDRESS_LENGTH bytes are enough.
 *
 * Threads: one at a time.
 */
zl_status zl_local_addr(const struct zl_connection *connection,
                        char *buffer,
                        size_t capacity);

/**
 * Sends `len` bytes at `data` as one Transfer; returns when the peer has all of it.
 *
 * Threads: one at a time.
 */
zl_status zl_send(struct zl_connection *connection, const void *data, size_t len);

/**
 * Waits `timeout_ms` milliseconds (negative: no limit) until the peer announces a Transfer that no
 * posted receive takes, and tells its length, so that memory of that length can be made.
 *
 * Threads: one at a time.
 */
zl_status zl_announced(struct zl_connection *connection, int64_t timeout_ms, uint64_t *len);

/**
 * Receives the next Transfer into `buffer`, and its length into `len`. If it is larger than
 * `capacity`, both ends get ZL_ERROR_TOO_LARGE, nothing is written, and the next one can be
 * received.
 *
 * Threads: one at a time.
 */
zl_status zl_recv_into(struct zl_connection *connection,
                       void *buffer,
                       size_t capacity,
                       size_t *len);

/**
 * Sets how long a call that waits for the end of a request may take, in milliseconds (negative: no limit, as
 * without this call): zl_send, zl_recv_into, zl_put and so on. What takes longer is cancelled, and the call
 * returns ZL_ERROR_TIMED_OUT.
 *
 * Threads: one at a time.
 */
zl_status zl_set_timeout(struct zl_connection *connection,
                         int64_t timeout_ms);

/**
 * Finishes sending: what was posted is delivered; sends and messages after it return ZL_ERROR_FINISHED, and the
 * peer's receives that none of it meets end with that, now and later. The other direction goes on, and so does all
 * that names memory. While messages wait for receives that the peer does not post, it may not learn of it.
 *
 * Threads: one at a time.
 */
zl_status zl_finish(struct zl_connection *connection);

/**
 * Waits until the peer has all that was sent, or takes nothing of it for the idle timeout, disconnects, and frees the
 * connection, also if it fails. Requests that are not done end; their memory is not touched any more. Null is refused, and so is a
 * connection of a worker: zl_worker_close.
 *
 * Threads: the last that uses it.
 */
zl_status zl_close(struct zl_connection *connection);

/**
 * Ends the connection at once, tells the peer if possible, and frees it. Null does nothing, nor does a
 * connection of a worker. Memory of its requests is not touched any more.
 *
 * Threads: the last that uses it.
 */
void zl_connection_free(struct zl_connection *connection);

/* ================================================================================================
 * Many requests in flight
 * Memory is named as a region. Requests on parts of it are posted, and complete later: until then
 * the memory belongs to the library. A request may carry a context, a number that comes back in
 * its completion. Completions of many connections may go to one queue.
 */

/**
 * Memory, for requests to name parts of. Freeing the region while a request uses it is safe: memory
 * of zl_region_new and zl_region_map_file stays until that request is done.
 */
typedef struct zl_region zl_region;

/**
 * Allocates a region of `len` zero bytes: page-aligned, in huge pages where the system has them and `len` is at least
 * 1 MiB. A region of less than 2 MiB takes the whole of one.
 *
 * Threads: any.
 */
zl_status zl_region_new(size_t len,
                        struct zl_region **region);

/**
 * Names `len` bytes at `memory`, which must stay where they are until the region is freed and every
 * request that uses it is done (or its connection freed).
 *
 * Threads: any.
 */
zl_status zl_region_wrap(void *memory, size_t len, struct zl_region **region);

/**
 * The use of a mapped file.
 */
enum zl_access
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : uint32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
    /**
     * To be sent: writing the region does not change the file.
     */
    ZL_ACCESS_READ = 1,
    /**
     * To be received into: what is written reaches the file.
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
 * Maps `len` bytes of the file open as `fd`, from `offset` on. `access` is a value of enum zl_access.
 * The descriptor may be closed afterwards. Requests survive a truncation of the file; other accesses to
 * missing pages raise SIGBUS, as with every mapping.
 *
 * Threads: any.
 */
zl_status zl_region_map_file(int fd,
                             uint64_t offset,
                             size_t len,
                             uint32_t access,
                             struct zl_region **region);

/**
 * Where the region's bytes are; null if `region` is null. While a request receives into them, or a
 * peer may write them, their content is undefined or changes during a read.
 *
 * Threads: any.
 */
void *zl_region_data(const struct zl_region *region);

/**
 * Length of the region in bytes; 0 if `region` is null.
 *
 * Threads: any.
 */
size_t zl_region_length(const struct zl_region *region);

/**
 * Frees the region. Null does nothing. Memory that a request still uses is freed with that request.
 *
 * Threads: the last that uses it.
 */
void zl_region_free(struct zl_region *region);

/**
 * How the sender asks for the arrival of a Transfer to be delivered. Completions come in order in all
 * modes, and a call that waits for one request in particular (zl_recv_into) returns at its end in all
 * modes. These wake in all modes: failures, the end of the connection, a Transfer that finds no
 * receive posted, and one of no bytes.
 */
enum zl_delivery
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : uint32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
    /**
     * Delivered, and wakes a receiver that waits.
     */
    ZL_DELIVERY_INTERRUPT = 0,
    /**
     * Delivered to a receiver that polls: zl_poll, zl_queue_poll, and waiting with a timeout of 0. It
     * does not wake a receiver that waits: that one gets it with the next completion that wakes.
     */
    ZL_DELIVERY_POLLED = 1,
    /**
     * No event and no wake-up of its own. The completion is held back, and delivered with the next of
     * the connection that is not silent, or when the receiver asks for it with zl_notify.
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
 * It completes only if it fails.
 */
#define ZL_WORK_UNSIGNALLED 1

/**
 * It begins when all earlier requests of the connection are complete. For requests on the peer's memory,
 * and messages.
 */
#define ZL_WORK_FENCE 2

/**
 * The peer is told, with `immediate`: it gets a completion of kind ZL_KIND_IMMEDIATE. For puts.
 */
#define ZL_WORK_IMMEDIATE 4

/**
 * How a request is to be done. Where a pointer to it may be null, null means 0 in all fields.
 */
typedef struct zl_work {
    /**
     * An or of ZL_WORK_...
     */
    uint32_t flags;
    /**
     * With ZL_WORK_IMMEDIATE: the number.
     */
    uint32_t immediate;
    /**
     * A value of enum zl_delivery. For sends of Transfers; without effect on others.
     */
    uint32_t delivery;
    /**
     * 0.
     */
    uint32_t reserved;
    /**
     * A number of the program's own, which comes back in the completion: a pointer, an index.
     */
    uint64_t context;
} zl_work;

/**
 * Posts the send of `len` bytes of `region` from `offset` on; many may be in flight. `how` may be null: it
 * says how the arrival is delivered to the receiver, whether success is reported here, and the context.
 * `id` names the request.
 *
 * Threads: one at a time.
 */
zl_status zl_post_send(struct zl_connection *connection,
                       const struct zl_region *region,
                       size_t offset,
                       size_t len,
                       const struct zl_work *how,
                       uint32_t *id);

/**
 * A part of a region, one of several that are sent as if they were one piece of memory.
 */
typedef struct zl_part {
    /**
     * Where the part is.
     */
    const struct zl_region *region;
    /**
     * Bytes behind the region's start.
     */
    size_t offset;
    /**
     * Bytes.
     */
    size_t length;
} zl_part;

/**
 * Posts the send of `count` parts of regions, one behind the other, as one Transfer with one completion, gathered
 * where they lie. They may overlap; none is a Transfer of no bytes. `how` and `id` as with zl_post_send.
 *
 * Threads: one at a time.
 */
zl_status zl_post_send_vectored(struct zl_connection *connection,
                                const struct zl_part *parts,
                                size_t count,
                                const struct zl_work *how,
                                uint32_t *id);

/**
 * Posts a receive into `len` bytes of `region` from `offset` on: the n-th posted gets the n-th
 * Transfer the peer sends, if it fits. Receives complete as their Transfers do: where a datagram was lost, a
 * later one may be complete first. `how` may be null; ZL_WORK_UNSIGNALLED and its context alone have a
 * meaning here. `id` names the request.
 *
 * Threads: one at a time.
 */
zl_status zl_post_recv(struct zl_connection *connection,
                       const struct zl_region *region,
                       size_t offset,
                       size_t len,
                       const struct zl_work *how,
                       uint32_t *id);

/**
 * What is complete.
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
     * zl_post_message_recv.
     */
    ZL_KIND_MESSAGE_RECEIVED = 6,
    /**
     * Nothing posted here, id 0: a put of the peer's with an immediate number.
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
 * Names exported memory on one connection. Plain bytes: give them to the peer by any means.
 */
typedef struct zl_key {
    /**
     * Opaque.
     */
    uint8_t bytes[ZL_KEY_LENGTH];
} zl_key;

/**
 * A request that is done: its memory is the program's again.
 */
typedef struct zl_completion {
    /**
     * The number that the function which posted it gave.
     */
    uint32_t id;
    /**
     * A value of enum zl_kind.
     */
    uint32_t kind;
    /**
     * How it ended.
     */
    zl_status status;
    /**
     * A value of enum zl_delivery.
     */
    uint32_t delivery;
    /**
     * What the request was given in `context` of its zl_work.
     */
    uint64_t context;
    /**
     * From a queue: the connection's tag.
     */
    uint64_t tag;
    /**
     * Bytes moved.
     */
    uint64_t length;
    /**
     * ZL_KIND_FETCH: what the word was before. ZL_KIND_IMMEDIATE: the number.
     */
    uint64_t value;
    /**
     * ZL_KIND_MESSAGE_RECEIVED: bytes of `control`.
     */
    uint32_t control_length;
    /**
     * 0.
     */
    uint32_t reserved;
    /**
     * ZL_KIND_OPEN: the key; zeros otherwise.
     */
    struct zl_key region;
    /**
     * ZL_KIND_MESSAGE_RECEIVED: what was sent with the payload.
     */
    uint8_t control[ZL_CONTROL_LENGTH];
} zl_completion;

/**
 * Waits `timeout_ms` milliseconds (negative: no limit) for a completion that wakes, and takes it, or
 * the first of those before it. 0 polls, as zl_poll does. See enum zl_delivery.
 *
 * Threads: one at a time; zl_wake of another ends it.
 */
zl_status zl_wait(struct zl_connection *connection,
                  int64_t timeout_ms,
                  struct zl_completion *completion);

/**
 * Makes progress without sleeping, and takes a completion if there is one, else
 * returns ZL_TIMEOUT. It finds ZL_DELIVERY_POLLED completions, too.
 *
 * Threads: one at a time.
 */
zl_status zl_poll(struct zl_connection *connection, struct zl_completion *completion);

/**
 * As zl_poll, for up to `capacity` completions, at least 1: one turn of progress for all of them. `count` says
 * how many there were, ZL_TIMEOUT that there were none.
 *
 * Threads: one at a time.
 */
zl_status zl_poll_batch(struct zl_connection *connection,
                        struct zl_completion *completions,
                        size_t capacity,
                        size_t *count);

/**
 * Ends a zl_wait or zl_announced of another thread, or the next one if none is in progress: it
 * returns ZL_TIMEOUT. Ends no request: calls that wait for the end of one go on. Of a connection of a
 * worker: as zl_worker_wake.
 *
 * Threads: any, also while another uses the connection.
 */
zl_status zl_wake(const struct zl_connection *connection);

/**
 * Asks to be told of the end of a request, however its sender wants it delivered: zl_wait returns for
 * it, also if it is over and held back. ZL_ERROR_ARGUMENT if there is no such request, or its
 * completion was taken.
 *
 * Threads: one at a time.
 */
zl_status zl_notify(struct zl_connection *connection,
                    uint32_t id);

/**
 * Tells how many bytes at the start of what request `id` receives or gets are verified and in place, long before
 * all of it is: they may be read, and passed on. It never becomes less. What is behind them is undefined.
 * ZL_ERROR_ARGUMENT if no such request is in progress.
 *
 * Threads: one at a time.
 */
zl_status zl_arrived(const struct zl_connection *connection,
                     uint32_t id,
                     uint64_t *bytes);

/**
 * Waits `timeout_ms` milliseconds (negative: no limit) until more than `beyond` bytes of request `id` have arrived,
 * and tells how many. ZL_TIMEOUT if they did not, or if zl_wake was called; ZL_ERROR_ARGUMENT if the request is
 * over: its completion tells the rest.
 *
 * Threads: one at a time; zl_wake of another ends it.
 */
zl_status zl_wait_arrived(struct zl_connection *connection,
                          uint32_t id,
                          uint64_t beyond,
                          int64_t timeout_ms,
                          uint64_t *bytes);

/**
 * Cancels a request, which then ends with ZL_ERROR_CANCELLED and whose memory is not touched any
 * more. ZL_ERROR_ARGUMENT if it is over already.
 *
 * Threads: one at a time.
 */
zl_status zl_cancel(struct zl_connection *connection, uint32_t id);

/**
 * What an event loop needs: the connection's socket, the events of it to wait for (POLLIN, and POLLOUT
 * when its send buffer was full), and the time in milliseconds (-1: none). When there is such an event,
 * or the time is over, call zl_wait with a timeout of 0, which makes one turn of progress, and then ask
 * again: a time of 0 says that there may be more. Do not read the socket.
 *
 * Threads: one at a time.
 */
zl_status zl_watch(struct zl_connection *connection,
                   int *fd,
                   short *events,
                   int64_t *timeout_ms);

/**
 * A queue for the completions of many connections. After fork it belongs to the parent.
 */
typedef struct zl_queue zl_queue;

/**
 * Makes a queue for `capacity` completions, and takes the memory for all of them: ZL_ERROR_SYSTEM if there is not as
 * much. When it is full, connections keep theirs, and take no more from their peers. Free it with zl_queue_free. A
 * queue drives nothing: it is for programs that drive each connection in a thread of its own, or one after the other. One that has many connections in one thread takes a zl_worker, whose
 * zl_worker_wait drives all of them, and whose events have the completions.
 *
 * Threads: any.
 */
zl_status zl_queue_new(size_t capacity,
                       struct zl_queue **queue);

/**
 * Sends the completions of a connection to `queue` from now on, with `tag`. The connection still
 * makes progress only inside its functions: call zl_wait, here or in a thread for it.
 *
 * Threads: one at a time.
 */
zl_status zl_set_completion_queue(struct zl_connection *connection,
                                  const struct zl_queue *queue,
                                  uint64_t tag);

/**
 * Takes a completion if there is one, whether it wakes or not, else returns ZL_TIMEOUT. Its `tag` is that
 * of its connection.
 *
 * Threads: any.
 */
zl_status zl_queue_poll(const struct zl_queue *queue,
                        struct zl_completion *completion);

/**
 * As zl_queue_poll, for up to `capacity` completions, at least 1. `count` says how many there were, ZL_TIMEOUT that
 * there were none.
 *
 * Threads: any.
 */
zl_status zl_queue_poll_batch(const struct zl_queue *queue,
                              struct zl_completion *completions,
                              size_t capacity,
                              size_t *count);

/**
 * Waits `timeout_ms` milliseconds (negative: no limit) for a completion that wakes, while other threads
 * drive the connections, and takes it or the first of those before it. 0 polls, as zl_queue_poll
 * does.
 *
 * Threads: any.
 */
zl_status zl_queue_wait(const struct zl_queue *queue,
                        int64_t timeout_ms,
                        struct zl_completion *completion);

/**
 * A descriptor that is readable while there is something in the queue that wakes; -1 if `queue` is null.
 * Do not read it.
 *
 * Threads: any.
 */
int zl_queue_fd(const struct zl_queue *queue);

/**
 * Frees the handle. Null does nothing. The queue itself is freed with the last connection that uses it.
 *
 * Threads: the last that uses it.
 */
void zl_queue_free(struct zl_queue *queue);

/* ================================================================================================
 * Remote memory
 * One end exports memory, with rights; the other puts, gets, and changes words of 8 bytes
 * atomically. Memory is served while its owner computes, or sleeps, if a worker's thread has the
 * endpoint: zl_worker_spawn, then zl_endpoint_handle_export. Otherwise a put takes effect in the
 * owner's calls alone.
 */

/**
 * May be read by the peer: zl_get.
 */
#define ZL_RIGHT_READ 1

/**
 * May be written by the peer: zl_put.
 */
#define ZL_RIGHT_WRITE 2

/**
 * May be changed by the peer's zl_fetch_op.
 */
#define ZL_RIGHT_ATOMIC 4

/**
 * Memory that peers may read and write, while this program uses it too. Words of 8 bytes that both
 * change are to be changed by atomics, as of C11's stdatomic.h. After fork it belongs to the parent, which alone can export
 * and revoke it.
 */
typedef struct zl_exported zl_exported;

/**
 * Makes `len` bytes of `region` from `offset` on, which must be a multiple of 8 in memory, ready to be
 * exported on connections. Free it with zl_exported_free.
 *
 * Threads: any.
 */
zl_status zl_exported_new(const struct zl_region *region,
                          size_t offset,
                          size_t len,
                          struct zl_exported **exported);

/**
 * Makes `len` zero bytes, page-aligned, ready to be exported on connections: memory of its own, of which a peer on this
 * host that is connected through shared memory (ZL_LANE_SHARED_MEMORY) has a mapping. With rights to read, it gets, and with
 * rights to write as well, puts and does atomic operations, there itself: no call of this program is needed for it. For other peers it
 * is exported memory as any. All of it is taken from the system at once: ZL_ERROR_SYSTEM if the machine, or a control group
 * of this process, has less, and ZL_ERROR_ARGUMENT for no bytes. zl_exported_data says where it is, until
 * it is revoked. Free it with zl_exported_free.
 *
 * Threads: any.
 */
zl_status zl_exported_memfd(size_t len,
                            struct zl_exported **exported);

/**
 * Where the exported bytes are; null if `exported` is null, once it was revoked, and in a child of fork: the memory of
 * zl_exported_memfd is not there then.
 *
 * Threads: any.
 */
void *zl_exported_data(const struct zl_exported *exported);

/**
 * Exports memory to the peer of `connection`, with `rights`, an or of ZL_RIGHT_...; `key` names it
 * there.
 *
 * Threads: one at a time.
 */
zl_status zl_export(struct zl_connection *connection,
                    const struct zl_exported *exported,
                    uint32_t rights,
                    struct zl_key *key);

/**
 * As zl_export, and the peer may ask for it by `name`, at most 32 bytes of UTF-8.
 *
 * Threads: one at a time.
 */
zl_status zl_export_named(struct zl_connection *connection,
                          const char *name,
                          const struct zl_exported *exported,
                          uint32_t rights,
                          struct zl_key *key);

/**
 * Takes memory back from the peer of this connection, at once. ZL_ERROR_ARGUMENT if `key` names
 * nothing exported here.
 *
 * Threads: one at a time.
 */
zl_status zl_revoke(struct zl_connection *connection, const struct zl_key *key);

/**
 * The same for all exports of `exported` on this connection, by whatever key and name, also those that zl_worker_export
 * and zl_endpoint_handle_export made: for this peer alone. ZL_ERROR_ARGUMENT if there is none.
 *
 * Threads: one at a time.
 */
zl_status zl_revoke_region(struct zl_connection *connection,
                           const struct zl_exported *exported);

/**
 * Takes the memory back from all peers, at once: after this returns, no operation of a peer reads or
 * writes it, however late it comes.
 *
 * Threads: any.
 */
zl_status zl_exported_revoke(const struct zl_exported *exported);

/**
 * Frees the handle. Null does nothing. What was exported stays exported, and its memory in use, until it
 * is revoked or its connections end.
 *
 * Threads: the last that uses it.
 */
void zl_exported_free(struct zl_exported *exported);

/**
 * Asks the peer for the key of the memory it exports as `name`, with `rights`. ZL_ERROR_UNKNOWN if
 * there is none of that name, ZL_ERROR_DENIED if it is exported without one of the rights.
 *
 * Threads: one at a time.
 */
zl_status zl_open_region(struct zl_connection *connection,
                         const char *name,
                         uint32_t rights,
                         struct zl_key *key);

/**
 * Length of the memory that `key` names, bytes; 0 if `key` is null or invalid.
 *
 * Threads: any.
 */
uint64_t zl_key_length(const struct zl_key *key);

/**
 * Writes `len` bytes at `data` to the peer's memory, `offset` bytes behind its start; returns when
 * they are placed and visible there.
 *
 * Threads: one at a time.
 */
zl_status zl_put(struct zl_connection *connection,
                 const struct zl_key *to,
                 uint64_t offset,
                 const void *data,
                 size_t len);

/**
 * As zl_put, and the peer gets a completion of kind ZL_KIND_IMMEDIATE with the number `immediate` when the
 * bytes are placed.
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
 * Reads `len` bytes of the peer's memory, `offset` bytes behind its start, into `buffer`.
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
     * Adds one, wrapping.
     */
    ZL_FETCH_INCREMENT = 1,
    /**
     * Subtracts one, wrapping.
     */
    ZL_FETCH_DECREMENT = 2,
    /**
     * Stores zero.
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
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum zl_fetch_op_kind zl_fetch_op_kind;
#else
typedef uint32_t zl_fetch_op_kind;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

/**
 * Does `op`, a value of enum zl_fetch_op_kind, to the aligned 8-byte word at `offset` of the peer's memory,
 * atomically and exactly once, and writes what it was before to `before`, if that is not null.
 * `operand` and `expected` are for those operations that name them.
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
 * Posts a zl_open_region: its completion, of kind ZL_KIND_OPEN, has the key as `region`. `how` may be null; its
 * context alone has a meaning here.
 *
 * Threads: one at a time.
 */
zl_status zl_post_open_region(struct zl_connection *connection,
                              const char *name,
                              uint32_t rights,
                              const struct zl_work *how,
                              uint32_t *id);

/**
 * Posts a put of `len` bytes of `region` from `region_offset` on to the peer's memory, `offset` bytes
 * behind its start. It completes when they are placed and visible there. `how` may be null.
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
                      uint32_t *id);

/**
 * Most bytes of a zl_post_put_inline.
 */
#define ZL_INLINE_LENGTH 256

/**
 * Posts a put of `len` bytes at `data`, at most ZL_INLINE_LENGTH, which are copied before this returns.
 * `how` may be null.
 *
 * Threads: one at a time.
 */
zl_status zl_post_put_inline(struct zl_connection *connection,
                             const struct zl_key *to,
                             uint64_t offset,
                             const void *data,
                             size_t len,
                             const struct zl_work *how,
                             uint32_t *id);

/**
 * Posts a get of `len` bytes of the peer's memory, `offset` bytes behind its start, into `region` from
 * `region_offset` on. `how` may be null.
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
                      uint32_t *id);

/**
 * A piece of local memory and its place in the peer's.
 */
typedef struct zl_piece {
    /**
     * Bytes behind the start of the peer's memory.
     */
    uint64_t remote_offset;
    /**
     * Where the piece is.
     */
    const struct zl_region *region;
    /**
     * Bytes behind the region's start.
     */
    size_t offset;
    /**
     * Bytes.
     */
    size_t length;
} zl_piece;

/**
 * Posts one put of several pieces, 4096 at most, gathered here and scattered there. `how` may be null.
 *
 * Threads: one at a time.
 */
zl_status zl_post_put_vectored(struct zl_connection *connection,
                               const struct zl_key *to,
                               const struct zl_piece *pieces,
                               size_t count,
                               const struct zl_work *how,
                               uint32_t *id);

/**
 * Posts one get of several pieces, 4096 at most, gathered there and scattered here. `how` may be null.
 *
 * Threads: one at a time.
 */
zl_status zl_post_get_vectored(struct zl_connection *connection,
                               const struct zl_key *from,
                               const struct zl_piece *pieces,
                               size_t count,
                               const struct zl_work *how,
                               uint32_t *id);

/**
 * Posts a zl_fetch_op: its completion has what the word was before as `value`. `how` may be null.
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
                           uint32_t *id);

/* ================================================================================================
 * Messages
 * Up to 128 bytes of control, with or without a payload of any length. The n-th receive gets the
 * n-th message; one that finds no receive waits.
 */

/**
 * Sends a message of `control_len` bytes, at most ZL_CONTROL_LENGTH, and with it, if `payload` is not
 * null, `len` bytes; returns when the peer has it in a receive.
 *
 * Threads: one at a time.
 */
zl_status zl_send_message(struct zl_connection *connection,
                          const void *control,
                          size_t control_len,
                          const void *payload,
                          size_t len);

/**
 * Receives the next message: its control to `control`, ZL_CONTROL_LENGTH bytes, and their number to
 * `control_len`; its payload to `payload`, `capacity` bytes, or none if that is null, and the
 * payload's length to `len`.
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
 * Posts a zl_send_message, whose payload is `len` bytes of `region` from `offset` on; none if `region`
 * is null. The control is copied before this returns. `how` may be null.
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
                          uint32_t *id);

/**
 * Posts a zl_send_message, whose payload is `count` parts of regions, one behind the other, gathered where they lie.
 * They may overlap; none is a message without payload. The control is copied before this returns. `how` may be null.
 *
 * Threads: one at a time.
 */
zl_status zl_post_message_vectored(struct zl_connection *connection,
                                   const void *control,
                                   size_t control_len,
                                   const struct zl_part *parts,
                                   size_t count,
                                   const struct zl_work *how,
                                   uint32_t *id);

/**
 * Posts a receive of a message, whose payload goes to `len` bytes of `region` from `offset` on; null if
 * none is expected. The n-th posted gets the peer's n-th message; its completion has the control. `how` may
 * be null; its context alone has a meaning here.
 *
 * Threads: one at a time.
 */
zl_status zl_post_message_recv(struct zl_connection *connection,
                               const struct zl_region *region,
                               size_t offset,
                               size_t len,
                               const struct zl_work *how,
                               uint32_t *id);

/* ================================================================================================
 * Workers: many connections in one loop
 * A worker owns endpoints and connections, which it names by numbers, and tells by events what
 * happened to them. The program calls it: zl_worker_wait, then zl_worker_events; or, in an event
 * loop of its own, zl_worker_progress after it slept on the descriptor.
 */

/**
 * Owns endpoints and connections, and moves all of them: one descriptor and one timer for a thousand
 * sockets. They make progress in zl_worker_progress and zl_worker_wait, or, after zl_worker_spawn, in a
 * thread of its own. After fork it belongs to the parent, with all that it owns: calls in the child fail with
 * ZL_ERROR_CLOSED. The child may free its copies; peers are not told.
 */
typedef struct zl_worker zl_worker;

/**
 * Makes a worker that owns nothing yet. Free it with zl_worker_free.
 *
 * Threads: any.
 */
zl_status zl_worker_new(struct zl_worker **worker);

/**
 * Sets how many microseconds zl_worker_wait, and a thread of its own, look for more before they sleep: 50
 * unless set. The time adapts to the success of looking.
 *
 * Threads: one at a time.
 */
zl_status zl_worker_set_spin(struct zl_worker *worker,
                             uint32_t spin_us);

/**
 * Listens on `address`, "host:port" (port 0: any that is free), with `options`, or the defaults if null.
 * `endpoint` names it. Connections accepted are the worker's; each is told by ZL_EVENT_ACCEPTED.
 *
 * Threads: one at a time.
 */
zl_status zl_worker_listen(struct zl_worker *worker,
                           const char *address,
                           const struct zl_options *options,
                           uint64_t *endpoint);

/**
 * Writes the address that `endpoint` listens on to `buffer`, as "host:port" and a zero. ZL_ADDRESS_LENGTH
 * bytes are enough.
 *
 * Threads: one at a time.
 */
zl_status zl_worker_local_addr(struct zl_worker *worker,
                               uint64_t endpoint,
                               char *buffer,
                               size_t capacity);

/**
 * Lets every client of `endpoint` that connects from now on use the memory with `rights`, an or of
 * ZL_RIGHT_..., by `name`: registered once, for any number of peers. zl_exported_revoke ends it for all.
 *
 * Threads: one at a time.
 */
zl_status zl_worker_export(struct zl_worker *worker,
                           uint64_t endpoint,
                           const char *name,
                           const struct zl_exported *exported,
                           uint32_t rights);

/**
 * Stops listening. Connections that were accepted go on. ZL_ERROR_CLOSED if it was closed already.
 *
 * Threads: one at a time.
 */
zl_status zl_worker_close_endpoint(struct zl_worker *worker, uint64_t endpoint);

/**
 * Begins to connect to `address`, "host:port", with `options`, or the defaults if null, and returns at once
 * (the name of a host is looked up first, and its first address taken). `connection` names it. ZL_EVENT_CONNECTED or ZL_EVENT_CLOSED tells
 * what came of it; what is posted before waits.
 *
 * Threads: one at a time.
 */
zl_status zl_worker_connect(struct zl_worker *worker,
                            const char *address,
                            const struct zl_options *options,
                            uint64_t *connection);

/**
 * Takes over a connection: an endpoint's, another worker's. Its handle is freed, also if this fails; only
 * one that is null or a worker's is left as it is.
 *
 * Threads: one at a time; the last that uses the connection's handle.
 */
zl_status zl_worker_adopt(struct zl_worker *worker,
                          struct zl_connection *connection,
                          uint64_t *id);

/**
 * Gives a connection out of the worker's hands: for the program to drive, or for another worker. Handles that
 * zl_worker_connection gave out for it are over. ZL_ERROR_CLOSED if it is none of this worker's, or is not connected.
 * Its events that were not taken stay here. End it with zl_close or zl_connection_free.
 *
 * Threads: one at a time.
 */
zl_status zl_worker_release(struct zl_worker *worker,
                            uint64_t id,
                            struct zl_connection **connection);

/**
 * A handle of connection `id`, for the functions that post, cancel, export, or tell something of a connection.
 * What it is asked begins with the next zl_worker_progress. The functions that wait for the end of a request,
 * zl_poll, zl_wait and zl_close refuse it: its completions are events of the worker.
 *
 * The handle is the worker's, and the same each time. It is valid until the call of zl_worker_events after the
 * one that told of its ZL_EVENT_CLOSED, until zl_worker_release, zl_worker_spawn or zl_worker_free. Between
 * the end of the connection and that, functions return ZL_ERROR_CLOSED. ZL_ERROR_CLOSED also here, if the
 * worker has no such connection.
 *
 * Threads: one at a time. Using the handle counts as using the worker: ZL_ERROR_BUSY while another thread
 * does.
 */
zl_status zl_worker_connection(struct zl_worker *worker,
                               uint64_t id,
                               struct zl_connection **connection);

/**
 * Writes the number of connections that are not over to `count`.
 *
 * Threads: one at a time.
 */
zl_status zl_worker_connections(struct zl_worker *worker, size_t *count);

/**
 * Begins to close a connection: what was posted to be sent is sent, as by zl_close, then the peer is
 * told. ZL_EVENT_CLOSED follows. ZL_ERROR_CLOSED if it is over already.
 *
 * Threads: one at a time.
 */
zl_status zl_worker_close(struct zl_worker *worker,
                          uint64_t connection);

/**
 * Makes progress until there is an event (ZL_OK), or zl_worker_wake was called, or `timeout_ms` milliseconds
 * (negative: no limit) are over (ZL_TIMEOUT).
 *
 * Threads: one at a time; zl_worker_wake of another ends it.
 */
zl_status zl_worker_wait(struct zl_worker *worker,
                         int64_t timeout_ms);

/**
 * What happened.
 */
enum zl_event_kind
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : uint32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
    /**
     * `endpoint` accepted `connection`.
     */
    ZL_EVENT_ACCEPTED = 1,
    /**
     * The socket of `endpoint` failed, as `status` says; it is closed.
     */
    ZL_EVENT_ENDPOINT_FAILED = 2,
    /**
     * `connection`, which zl_worker_connect began, stands. Requests posted before begin now.
     */
    ZL_EVENT_CONNECTED = 3,
    /**
     * A request of `connection` is over, or a number of the peer's came: `completion`.
     */
    ZL_EVENT_COMPLETED = 4,
    /**
     * The peer of `connection` announced a Transfer of `length` bytes that no posted receive takes. Told once
     * until one does.
     */
    ZL_EVENT_ANNOUNCED = 5,
    /**
     * `connection` is over, or could not be made, as `status` says. Its last event: all its requests have
     * completed.
     */
    ZL_EVENT_CLOSED = 6,
    /**
     * Something that this version does not know.
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
     * A value of enum zl_event_kind. More may be added.
     */
    uint32_t kind;
    /**
     * Why: ZL_EVENT_ENDPOINT_FAILED, ZL_EVENT_CLOSED. ZL_OK otherwise.
     */
    zl_status status;
    /**
     * Of which endpoint, as zl_worker_listen named it; 0 if of none.
     */
    uint64_t endpoint;
    /**
     * Of which connection; 0 if of none.
     */
    uint64_t connection;
    /**
     * ZL_EVENT_ANNOUNCED: bytes.
     */
    uint64_t length;
    /**
     * 0.
     */
    uint64_t reserved;
    /**
     * ZL_EVENT_COMPLETED: how, with the connection as its tag.
     */
    struct zl_completion completion;
} zl_event;

/**
 * Takes up to `capacity` events, at least 1; `count` says how many there were, ZL_TIMEOUT that there were none. It
 * makes no progress. Handles of connections whose end the call before told of are over (zl_worker_connection).
 *
 * Threads: one at a time.
 */
zl_status zl_worker_events(struct zl_worker *worker,
                           struct zl_event *events,
                           size_t capacity,
                           size_t *count);

/**
 * Ends a zl_worker_wait of another thread, or the next one if none is in progress, and makes the descriptor
 * readable after zl_worker_arm.
 *
 * Threads: any, also while another uses the worker.
 */
zl_status zl_worker_wake(const struct zl_worker *worker);

/**
 * Moves what can be moved, a bounded amount of work, and returns: ZL_READY if there may be more to do at once,
 * ZL_OK if not.
 *
 * Threads: one at a time.
 */
zl_status zl_worker_progress(struct zl_worker *worker);

/**
 * To be called before the program sleeps on zl_worker_fd by its own means: the descriptor becomes readable when
 * something arrives, a timer expires or zl_worker_wake is called. ZL_READY if there is something to do
 * already: then the program must not sleep, but call zl_worker_progress, which it does in any case after it slept.
 *
 * Threads: one at a time.
 */
zl_status zl_worker_arm(struct zl_worker *worker);

/**
 * The descriptor to watch for POLLIN after zl_worker_arm; -1 if `worker` is null. Do not read it.
 *
 * Threads: any.
 */
int zl_worker_fd(const struct zl_worker *worker);

/**
 * Writes to `timeout_ms` how many milliseconds zl_worker_progress has nothing to do unless the descriptor becomes
 * readable; -1 if no timer runs. The descriptor, after zl_worker_arm, tells of that, too.
 *
 * Threads: one at a time.
 */
zl_status zl_worker_next_timeout(struct zl_worker *worker,
                                 int64_t *timeout_ms);

/**
 * Ends all it owns at once, tells the peers if possible, and frees it. Null does nothing. Memory of requests is
 * not touched any more.
 *
 * Threads: the last that uses it.
 */
void zl_worker_free(struct zl_worker *worker);

/* ================================================================================================
 * Workers in a thread of their own
 * Peers are served while the program does something else: exported memory is read and written,
 * keep-alives are answered. Any thread uses the handles; a request is waited for by its
 * zl_pending.
 */

/**
 * A worker that runs in a thread of its own: peers are served whatever the program does. Keep-alives are
 * answered, exported memory is read and written.
 */
typedef struct zl_worker_thread zl_worker_thread;

/**
 * An endpoint of a worker's thread.
 */
typedef struct zl_endpoint_handle zl_endpoint_handle;

/**
 * A connection of a worker's thread. Requests are posted by any thread, and begun in the order in which one
 * thread asks for them; what finds no room waits in order. Each is waited for by its zl_pending.
 */
typedef struct zl_handle zl_handle;

/**
 * A request of a zl_handle that was not waited for yet.
 */
typedef struct zl_pending zl_pending;

/**
 * Runs `worker` in a thread of its own until it is stopped. The worker's handle is freed, also if this fails; only
 * null is refused. Its endpoints and connections go on, but there is no handle for them, and no events: what its
 * endpoints export is served. End it with zl_worker_stop or zl_worker_thread_free.
 *
 * Threads: the last that uses `worker`.
 */
zl_status zl_worker_spawn(struct zl_worker *worker,
                          struct zl_worker_thread **thread);

/**
 * Has the worker close everything, waits until what was posted is sent, as by zl_close, and frees it, also if it fails:
 * the thread ended before, because the system refused something. Null is refused.
 *
 * Threads: the last that uses it.
 */
zl_status zl_worker_stop(struct zl_worker_thread *thread);

/**
 * Ends the thread and all it owns at once, tells the peers if possible, and frees it. Null does nothing. Handles
 * that are left are refused what they ask for, and are to be freed all the same.
 *
 * Threads: the last that uses it.
 */
void zl_worker_thread_free(struct zl_worker_thread *thread);

/**
 * Listens on `address`, "host:port" (port 0: any that is free), with `options`, or the defaults if null.
 *
 * Threads: any.
 */
zl_status zl_worker_thread_listen(const struct zl_worker_thread *thread,
                                  const char *address,
                                  const struct zl_options *options,
                                  struct zl_endpoint_handle **endpoint);

/**
 * Connects to `address`, "host:port", with `options`, or the defaults if null; returns when it is connected, or
 * the connect timeout is over. End the connection with zl_handle_close or zl_handle_free.
 *
 * Threads: any.
 */
zl_status zl_worker_thread_connect(const struct zl_worker_thread *thread,
                                   const char *address,
                                   const struct zl_options *options,
                                   struct zl_handle **connection);

/**
 * Gives the worker's thread a connection. Its own handle is freed, also if this fails; only one that is null or a
 * worker's is left as it is.
 *
 * Threads: any; the last that uses the connection's own handle.
 */
zl_status zl_worker_thread_adopt(const struct zl_worker_thread *thread,
                                 struct zl_connection *connection,
                                 struct zl_handle **adopted);

/**
 * Writes the address listened on to `buffer`, as "host:port" and a zero. ZL_ADDRESS_LENGTH bytes are
 * enough.
 *
 * Threads: any.
 */
zl_status zl_endpoint_handle_local_addr(const struct zl_endpoint_handle *endpoint,
                                        char *buffer,
                                        size_t capacity);

/**
 * Lets every client that connects from now on use the memory with `rights`, an or of ZL_RIGHT_..., by `name`:
 * registered once, for any number of peers, and served while the program does something else.
 * zl_exported_revoke ends it for all.
 *
 * Threads: any.
 */
zl_status zl_endpoint_handle_export(const struct zl_endpoint_handle *endpoint,
                                    const char *name,
                                    const struct zl_exported *exported,
                                    uint32_t rights);

/**
 * Waits `timeout_ms` milliseconds (negative: no limit) for the next connection. Those that are not asked for are
 * served all the same: what the endpoint exports is theirs to use. End it with zl_handle_close or
 * zl_handle_free.
 *
 * Threads: any.
 */
zl_status zl_endpoint_handle_accept(const struct zl_endpoint_handle *endpoint,
                                    int64_t timeout_ms,
                                    struct zl_handle **connection);

/**
 * Stops listening, and frees the handle. Null does nothing. Connections that were taken by
 * zl_endpoint_handle_accept go on.
 *
 * Threads: the last that uses it.
 */
void zl_endpoint_handle_free(struct zl_endpoint_handle *endpoint);

/**
 * Sends `len` bytes of `region` from `offset` on as one Transfer. `how` may be null; it is always signalled.
 * `pending` is to be waited for, and to be freed with zl_pending_free, as that of every request.
 *
 * Threads: any.
 */
zl_status zl_handle_send(const struct zl_handle *connection,
                         const struct zl_region *region,
                         size_t offset,
                         size_t len,
                         const struct zl_work *how,
                         struct zl_pending **pending);

/**
 * Sends `count` parts of regions, one behind the other, as one Transfer, as zl_post_send_vectored does. `how` may be
 * null; it is always signalled.
 *
 * Threads: any.
 */
zl_status zl_handle_send_vectored(const struct zl_handle *connection,
                                  const struct zl_part *parts,
                                  size_t count,
                                  const struct zl_work *how,
                                  struct zl_pending **pending);

/**
 * Receives the next Transfer into `len` bytes of `region` from `offset` on.
 *
 * Threads: any.
 */
zl_status zl_handle_recv(const struct zl_handle *connection,
                         const struct zl_region *region,
                         size_t offset,
                         size_t len,
                         struct zl_pending **pending);

/**
 * Sends a message of `control_len` bytes, at most ZL_CONTROL_LENGTH, which are copied before this returns, and with
 * it, if `region` is not null, `len` bytes of that from `offset` on.
 *
 * Threads: any.
 */
zl_status zl_handle_send_message(const struct zl_handle *connection,
                                 const void *control,
                                 size_t control_len,
                                 const struct zl_region *region,
                                 size_t offset,
                                 size_t len,
                                 struct zl_pending **pending);

/**
 * Sends a message whose payload is `count` parts of regions, one behind the other, as zl_post_message_vectored does.
 *
 * Threads: any.
 */
zl_status zl_handle_send_message_vectored(const struct zl_handle *connection,
                                          const void *control,
                                          size_t control_len,
                                          const struct zl_part *parts,
                                          size_t count,
                                          struct zl_pending **pending);

/**
 * Receives the next message, whose payload goes to `len` bytes of `region` from `offset` on; null if none is
 * expected. The completion has the control.
 *
 * Threads: any.
 */
zl_status zl_handle_recv_message(const struct zl_handle *connection,
                                 const struct zl_region *region,
                                 size_t offset,
                                 size_t len,
                                 struct zl_pending **pending);

/**
 * Puts `len` bytes of `region` from `region_offset` on into the peer's memory, `offset` bytes behind its start, as
 * zl_post_put does. `how` may be null; it is always signalled.
 *
 * Threads: any.
 */
zl_status zl_handle_put(const struct zl_handle *connection,
                        const struct zl_key *to,
                        uint64_t offset,
                        const struct zl_region *region,
                        size_t region_offset,
                        size_t len,
                        const struct zl_work *how,
                        struct zl_pending **pending);

/**
 * Gets `len` bytes of the peer's memory, `offset` bytes behind its start, into `region` from `region_offset` on, as
 * zl_post_get does. `how` may be null; it is always signalled.
 *
 * Threads: any.
 */
zl_status zl_handle_get(const struct zl_handle *connection,
                        const struct zl_key *from,
                        uint64_t offset,
                        const struct zl_region *region,
                        size_t region_offset,
                        size_t len,
                        const struct zl_work *how,
                        struct zl_pending **pending);

/**
 * Puts several pieces, gathered here and scattered there, as zl_post_put_vectored does. `how` may be null; it is always
 * signalled.
 *
 * Threads: any.
 */
zl_status zl_handle_put_vectored(const struct zl_handle *connection,
                                 const struct zl_key *to,
                                 const struct zl_piece *pieces,
                                 size_t count,
                                 const struct zl_work *how,
                                 struct zl_pending **pending);

/**
 * Gets several pieces, gathered there and scattered here, as zl_post_get_vectored does. `how` may be null; it is always
 * signalled.
 *
 * Threads: any.
 */
zl_status zl_handle_get_vectored(const struct zl_handle *connection,
                                 const struct zl_key *from,
                                 const struct zl_piece *pieces,
                                 size_t count,
                                 const struct zl_work *how,
                                 struct zl_pending **pending);

/**
 * Does what zl_fetch_op does; the completion has what the word was before as `value`.
 *
 * Threads: any.
 */
zl_status zl_handle_fetch_op(const struct zl_handle *connection,
                             const struct zl_key *on,
                             uint64_t offset,
                             uint32_t op,
                             uint64_t operand,
                             uint64_t expected,
                             struct zl_pending **pending);

/**
 * Asks for the peer's memory by name, as zl_post_open_region does; the completion has the key as `region`.
 *
 * Threads: any.
 */
zl_status zl_handle_open_region(const struct zl_handle *connection,
                                const char *name,
                                uint32_t rights,
                                struct zl_pending **pending);

/**
 * Exports memory to the peer, as zl_export does.
 *
 * Threads: any.
 */
zl_status zl_handle_export(const struct zl_handle *connection,
                           const struct zl_exported *exported,
                           uint32_t rights,
                           struct zl_key *key);

/**
 * The same by `name`, as zl_export_named does.
 *
 * Threads: any.
 */
zl_status zl_handle_export_named(const struct zl_handle *connection,
                                 const char *name,
                                 const struct zl_exported *exported,
                                 uint32_t rights,
                                 struct zl_key *key);

/**
 * Takes memory back from the peer, at once, as zl_revoke does.
 *
 * Threads: any.
 */
zl_status zl_handle_revoke(const struct zl_handle *connection, const struct zl_key *key);

/**
 * Takes all that is exported of `exported` back from this peer alone, as zl_revoke_region does.
 *
 * Threads: any.
 */
zl_status zl_handle_revoke_region(const struct zl_handle *connection,
                                  const struct zl_exported *exported);

/**
 * Waits `timeout_ms` milliseconds (negative: no limit) for the next number that the peer put with its bytes
 * (ZL_WORK_IMMEDIATE, zl_put_with_immediate); ZL_TIMEOUT if none came. Numbers that came before the end of the
 * connection are told after it, too.
 *
 * Threads: any.
 */
zl_status zl_handle_immediate(const struct zl_handle *connection,
                              int64_t timeout_ms,
                              uint32_t *immediate);

/**
 * Waits `timeout_ms` milliseconds (negative: no limit) until the peer announces a Transfer that no receive takes, and
 * tells its length, as zl_announced does; ZL_TIMEOUT if there was none.
 *
 * Threads: any.
 */
zl_status zl_handle_announced(const struct zl_handle *connection,
                              int64_t timeout_ms,
                              uint64_t *len);

/**
 * Tells how many bytes at the start of what the request receives or gets are verified and in place, as zl_arrived
 * does; 0 while it waits for room. ZL_ERROR_ARGUMENT if it is over, or receives nothing, or is another connection's.
 *
 * Threads: any, also while another waits for the request.
 */
zl_status zl_handle_arrived(const struct zl_handle *connection,
                            const struct zl_pending *pending,
                            uint64_t *bytes);

/**
 * Waits `timeout_ms` milliseconds (negative: no limit) until more than `beyond` bytes of the request have arrived,
 * and tells how many. ZL_TIMEOUT if they did not; ZL_ERROR_ARGUMENT if the request is over: its completion tells the
 * rest.
 *
 * Threads: any, also while another waits for the request.
 */
zl_status zl_handle_wait_arrived(const struct zl_handle *connection,
                                 const struct zl_pending *pending,
                                 uint64_t beyond,
                                 int64_t timeout_ms,
                                 uint64_t *bytes);

/**
 * Writes the address that the peer had when the connection was made to `buffer`, as zl_peer_addr does.
 *
 * Threads: any.
 */
zl_status zl_handle_peer_addr(const struct zl_handle *connection,
                              char *buffer,
                              size_t capacity);

/**
 * Finishes sending behind what was asked for before, as zl_finish does.
 *
 * Threads: any.
 */
zl_status zl_handle_finish(const struct zl_handle *connection);

/**
 * Gives the connection out of the worker's hands, for the program to drive, or for another worker: one that accepts
 * hands connections to others so, which answer from the same port. ZL_ERROR_BUSY, and nothing happened, if requests
 * are not over, or what came was not asked for. The handle is over then, and still to be freed.
 *
 * Threads: any.
 */
zl_status zl_handle_release(const struct zl_handle *connection,
                            struct zl_connection **released);

/**
 * Waits until what was posted to be sent is sent, or nothing of it comes any further for the idle timeout, disconnects,
 * and frees the handle, also if it fails, as where something was not sent. Null is refused.
 *
 * Threads: the last that uses it.
 */
zl_status zl_handle_close(struct zl_handle *connection);

/**
 * Frees the handle; the connection closes in the background, when what was posted is sent. Null does nothing.
 *
 * Threads: the last that uses it.
 */
void zl_handle_free(struct zl_handle *connection);

/**
 * Waits `timeout_ms` milliseconds (negative: no limit) for the end of the request, and tells how it ended. After
 * ZL_TIMEOUT it goes on. After another status it is over, and is only to be freed: a failure says that the worker or
 * the connection refused it, or is no more; one of the request itself is in `status` of the completion, whose id
 * and tag are the worker's and without a meaning here.
 *
 * Threads: one at a time.
 */
zl_status zl_pending_wait(struct zl_pending *pending,
                          int64_t timeout_ms,
                          struct zl_completion *completion);

/**
 * Frees it. Null does nothing. A request that is not over is cancelled, in the background: memory of
 * zl_region_new and zl_region_map_file stays until then, but that of zl_region_wrap must stay until zl_pending_wait
 * told the end, or the worker's thread has ended. A Transfer or message that came by then is the next one's.
 *
 * Threads: the last that uses it.
 */
void zl_pending_free(struct zl_pending *pending);

/* ================================================================================================
 * Settings and security
 * Connections are encrypted with keys made for each connection or endpoint: no third party can
 * listen in, but the peer's identity is not known. Lasting keys are in files.
 */

/**
 * New settings, all at their defaults. Free them with zl_options_free.
 *
 * Threads: any.
 */
zl_status zl_options_new(struct zl_options **options);

/**
 * What can be set with zl_options_set.
 */
enum zl_option
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : uint32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
    /**
     * 1: fail instead of copying payload in user space. Default 0.
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
     * 1: checksum payload on top of what UDP does. Default 0.
     */
    ZL_OPTION_CHECKSUM = 4,
    /**
     * Receive socket buffer to ask for, bytes.
     */
    ZL_OPTION_RECEIVE_BUFFER = 5,
    /**
     * Most bytes granted to the peer ahead.
     */
    ZL_OPTION_MAX_IN_FLIGHT = 6,
    /**
     * Microseconds to poll for the next datagram before sleeping.
     */
    ZL_OPTION_SPIN_US = 7,
    /**
     * Milliseconds after which connecting fails.
     */
    ZL_OPTION_CONNECT_TIMEOUT_MS = 8,
    /**
     * Milliseconds without any answer after which the peer counts as dead.
     */
    ZL_OPTION_IDLE_TIMEOUT_MS = 9,
    /**
     * Transfers the peer may announce before the first is answered.
     */
    ZL_OPTION_SLOTS = 10,
    /**
     * 1: neither encrypt nor ask for the peer's key; the peer has to be told the same. A host on the
     * path can read and change everything. Default 0.
     */
    ZL_OPTION_PLAIN = 11,
    /**
     * 1: prove identities and protect all content from changes, but do not encrypt; the peer has to be
     * told the same. A host on the path can read everything. Default 0. Of this and ZL_OPTION_PLAIN, the one
     * set last counts.
     */
    ZL_OPTION_AUTHENTICATED = 12,
    /**
     * What carries the connection, a value of enum zl_lane. Default ZL_LANE_BEST.
     */
    ZL_OPTION_LANE = 13,
    /**
     * Paths that a connection over UDP or raw Ethernet may have at a time, 1 to 8; the lesser of both ends' counts. Default 1, and no
     * fewer than zl_options_add_path asks for. Not with zl_options_set_device.
     */
    ZL_OPTION_PATHS = 14,
    /**
     * 1: at this end, a thread for each path beside the first, so that one connection takes more than one core. Default 0.
     */
    ZL_OPTION_PATH_THREADS = 15,
    /**
     * 1: the peer may add paths over raw Ethernet to a connection over UDP that an endpoint accepts, at any interface, where
     * ZL_OPTION_PATHS is 2 at least. Needs CAP_NET_RAW, or zl_endpoint_bind fails and says so. Default 0. An endpoint of
     * ZL_LANE_ETHERNET takes such without it.
     */
    ZL_OPTION_ETHERNET_PATHS = 16,
    /**
     * 1: the peer may add paths over UDP to a connection over raw Ethernet that an endpoint accepts, at any address of the host, at
     * the UDP port with the number of the endpoint's, where ZL_OPTION_PATHS is 2 at least. Default 0.
     */
    ZL_OPTION_UDP_PATHS = 17,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum zl_option zl_option;
#else
typedef uint32_t zl_option;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

/**
 * What carries a connection.
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
     * Shared memory to processes of this host and user that listen with this value or the next; else UDP. Nothing is
     * encrypted in shared memory: the kernel keeps others out.
     */
    ZL_LANE_BEST = 1,
    /**
     * Shared memory, or connecting fails. An endpoint hears nobody else.
     */
    ZL_LANE_SHARED_MEMORY = 2,
    /**
     * Raw Ethernet between hosts of one segment, or it fails; needs CAP_NET_RAW. Addresses are
     * "ether:IFACE/MAC:PORT", and "ether:IFACE:PORT" to listen on. They stand for link-local IPv6 addresses with a scope, as
     * "[fe80::ff:fe00:1%2]:7411", which are what zl_peer_addr and its like say.
     */
    ZL_LANE_ETHERNET = 3,
    /**
     * IP protocol 118, without UDP, or it fails; needs CAP_NET_RAW. Ports are those of the protocol's header.
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
 * Sets one option, a value of enum zl_option, to `value`.
 *
 * Threads: any.
 */
zl_status zl_options_set(struct zl_options *options, uint32_t option, uint64_t value);

/**
 * Meets in shared memory under `name`, in place of the address, ends that have the same name: those of containers of one kernel
 * with networks of their own and one directory of the rendezvous, whose processes are of one user. `name` is 1 to 63
 * letters, digits, '-', '_' and '.', of which the first is a letter or a digit.
 *
 * Threads: any.
 */
zl_status zl_options_rendezvous(struct zl_options *options,
                                const char *name);

/**
 * An interface opened for raw Ethernet past the kernel's network stack (AF_XDP): once for each interface, for all of
 * its connections. docs/reference/lanes.md, "AF_XDP".
 */
typedef struct zl_device zl_device;

/**
 * Bits of zl_device_options.flags.
 */
enum zl_device_flag
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : uint32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
    /**
     * Refuse where the driver does not read and write the memory itself.
     */
    ZL_DEVICE_ZERO_COPY = 1,
    /**
     * Use packet sockets where something is refused; zl_device_refused says what. Else that is an error.
     */
    ZL_DEVICE_FALL_BACK = 2,
    /**
     * Drop frames of the protocol that are for none of its connections.
     */
    ZL_DEVICE_EXCLUSIVE = 4,
    /**
     * Frames come by packet sockets, and the driver drops what nobody granted.
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
 * How a device is used. All zero: as the default has it.
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
     * Connections that may use it at a time, 1 to 1024; 0: 8.
     */
    uint32_t max_connections;
    /**
     * Poll the driver for so many frames a call (SO_PREFER_BUSY_POLL), at most 65535; 0: not.
     */
    uint32_t busy_poll;
    /**
     * 0.
     */
    uint64_t reserved[4];
} zl_device_options;

/**
 * Opens the interface of that name, with `options`, or the defaults if null. Needs root, or CAP_BPF, CAP_NET_ADMIN,
 * CAP_PERFMON and CAP_NET_RAW. Give it to connections and endpoints by zl_options_set_device; free it with
 * zl_device_free.
 *
 * Threads: any.
 */
zl_status zl_device_open(const char *interface,
                         const struct zl_device_options *options,
                         struct zl_device **device);

/**
 * Connections and endpoints that are made with `options` from here on, over ZL_LANE_ETHERNET, are at `device`; null:
 * at none.
 *
 * Threads: any.
 */
zl_status zl_options_set_device(struct zl_options *options,
                                const struct zl_device *device);

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
    ZL_DEVICE_COPIES = 1,
    /**
     * By AF_XDP; the driver reads and writes the memory itself.
     */
    ZL_DEVICE_COPIES_NOTHING = 2,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum zl_device_mode zl_device_mode;
#else
typedef uint32_t zl_device_mode;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

/**
 * Tells how frames come and leave, a value of enum zl_device_mode.
 *
 * Threads: any.
 */
zl_status zl_device_get_mode(const struct zl_device *device, uint32_t *mode);

/**
 * Writes to `buffer`, with a zero behind it, why AF_XDP or the program in the driver is not used although it was asked
 * for; an empty text if it is. 512 bytes are enough.
 *
 * Threads: any.
 */
zl_status zl_device_refused(const struct zl_device *device,
                            char *buffer,
                            size_t capacity);

/**
 * Lets go of a device, which stays open as long as connections, endpoints or options have it. Null does nothing.
 *
 * Threads: the last that uses it.
 */
void zl_device_free(struct zl_device *device);

/**
 * Bytes that hold any public key as a text ("zl:" and 43 characters), with the zero at its end.
 */
#define ZL_PUBLIC_KEY_LENGTH 47

/**
 * Gives this end the key in `file` as its identity. The file is as `zerolane keygen` makes it, and is made
 * if there is none. Others must not be able to read it. Without this call, each connection and endpoint
 * has a key of its own.
 * Writes the public half to `buffer`, if that is not null, as a text and a zero:
 * ZL_PUBLIC_KEY_LENGTH bytes are enough.
 *
 * Threads: any.
 */
zl_status zl_options_identity(struct zl_options *options,
                              const char *file,
                              char *buffer,
                              size_t capacity);

/**
 * Speaks only to peers that prove to own `key` (a text, as `zerolane id` shows it), or another key
 * given in an earlier call. Without a call, to any peer: no third party can listen in, but the
 * peer's identity is not known.
 *
 * Threads: any.
 */
zl_status zl_options_trust(struct zl_options *options, const char *key);

/**
 * Frees settings. Null does nothing.
 *
 * Threads: the last that uses them.
 */
void zl_options_free(struct zl_options *options);

/**
 * Writes the key that the peer proved to own to `buffer`, as a text and a zero; an empty text if
 * the connection is plain. ZL_PUBLIC_KEY_LENGTH bytes are enough.
 *
 * Threads: one at a time.
 */
zl_status zl_peer_key(const struct zl_connection *connection, char *buffer, size_t capacity);

/**
 * Writes the key by which clients know this end to `buffer`, as a text and a zero; an
 * empty text if connections are plain. ZL_PUBLIC_KEY_LENGTH bytes are enough.
 *
 * Threads: one at a time.
 */
zl_status zl_endpoint_public_key(const struct zl_endpoint *endpoint, char *buffer, size_t capacity);

/**
 * Writes the key that the peer proved to own to `buffer`, as zl_peer_key does.
 *
 * Threads: any.
 */
zl_status zl_handle_peer_key(const struct zl_handle *connection, char *buffer, size_t capacity);

/* ================================================================================================
 * Counters
 * What a connection did: bytes placed and copied, datagrams, system calls.
 */

/**
 * What a connection did since it began. Fields may be added at the end, in place of `reserved`.
 */
typedef struct zl_account {
    /**
     * Payload bytes that came to where they belong without a copy in user space.
     */
    uint64_t bytes_placed;
    /**
     * Payload bytes copied again in user space.
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
     * Datagrams the kernel dropped because the receive buffer was full.
     */
    uint64_t dropped_socket_buffer;
    /**
     * System calls that sent.
     */
    uint64_t send_syscalls;
    /**
     * System calls that received, also if they found nothing.
     */
    uint64_t receive_syscalls;
    /**
     * Receive buffer the kernel granted, bytes.
     */
    uint64_t receive_buffer;
    /**
     * Of `bytes_sent`, those that the kernel sent from where they lay, without a copy of its own.
     */
    uint64_t bytes_given;
    /**
     * What carries the connection: ZL_LANE_UDP, ZL_LANE_SHARED_MEMORY, ZL_LANE_ETHERNET or ZL_LANE_IP118.
     */
    uint64_t lane;
    /**
     * 1: frames of raw Ethernet come and leave by AF_XDP (zl_device_open); else 0.
     */
    uint64_t bypass;
    /**
     * Puts, gets and atomic operations of this end done in the peer's memory as mapped here, without the peer's CPU
     * (zl_exported_memfd).
     */
    uint64_t direct_operations;
    /**
     * 0.
     */
    uint64_t reserved[3];
} zl_account;

/**
 * Tells what the connection did so far.
 *
 * Threads: one at a time.
 */
zl_status zl_account_read(const struct zl_connection *connection, struct zl_account *account);

/**
 * Tells what the connection did so far, as zl_account_read does.
 *
 * Threads: any.
 */
zl_status zl_handle_account(const struct zl_handle *connection, struct zl_account *account);

/* ================================================================================================
 * Paths
 * A connection over UDP may have several paths, from several interfaces: payload goes by all, and
 * one that dies loses nothing. docs/reference/lanes.md, "Several paths".
 */

/**
 * Adds a path to the connections that are opened with `options`, beside the first: `path` is "LOCAL=PEER", from this
 * address of this host to that one of the peer, such as "192.0.2.1=192.0.2.2". What is left out, a port as well, is as
 * for the first path: "=" is one from another port. The peer has to take as many (ZL_OPTION_PATHS), and to listen at
 * that address. A path that cannot be opened leaves the connection with the others. Each call adds one, up to 7.
 *
 * "ether:IFACE=ether:IFACE/MAC" is one over raw Ethernet, from this interface of this host to that hardware address of the
 * peer's on its segment; the peer has to take such (ZL_OPTION_ETHERNET_PATHS), and this end needs CAP_NET_RAW. An interface that
 * is not there is ZL_ERROR_ARGUMENT. Of a connection over raw Ethernet (ZL_LANE_ETHERNET) the peer takes such by itself; one over
 * UDP beside it names an address of the peer's, which has to take such (ZL_OPTION_UDP_PATHS).
 *
 * Threads: any.
 */
zl_status zl_options_add_path(struct zl_options *options,
                              const char *path);

/**
 * Adds a path to an open connection, as zl_options_add_path has it. ZL_ERROR_ARGUMENT if it can have none: what carries
 * it is neither UDP nor raw Ethernet, or neither ZL_OPTION_PATHS nor zl_options_add_path asked for several. zl_paths_read tells
 * what becomes of it.
 *
 * Threads: one at a time.
 */
zl_status zl_add_path(const struct zl_connection *connection,
                      const char *path);

/**
 * Uses path `index`, which is not 0, no more: what it had in flight goes by others. One that there is not is none.
 *
 * Threads: one at a time.
 */
zl_status zl_remove_path(const struct zl_connection *connection,
                         uint32_t index);

/**
 * Where a path stands.
 */
enum zl_path_life
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : uint32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
    /**
     * The peer is asked whether it is there.
     */
    ZL_PATH_JOINING = 1,
    /**
     * It is, and it is found out how large its datagrams may be.
     */
    ZL_PATH_SIZING = 2,
    /**
     * It carries payload.
     */
    ZL_PATH_USABLE = 3,
    /**
     * It does not answer.
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
 * A path of a connection, and what it did. Fields may be added at the end, in place of `reserved`.
 */
typedef struct zl_path {
    /**
     * Its number; that of the first is 0.
     */
    uint32_t index;
    /**
     * Where it stands, a value of enum zl_path_life.
     */
    uint32_t life;
    /**
     * Smoothed round-trip time, microseconds; 0: none was measured.
     */
    uint64_t rtt_us;
    /**
     * Payload bytes that left by it, repeats included.
     */
    uint64_t bytes_sent;
    /**
     * Payload bytes that it lost, as far as the receiver said so.
     */
    uint64_t bytes_lost;
    /**
     * Payload bytes that came by it for the first time. Counted where both ends take several paths.
     */
    uint64_t bytes_received;
    /**
     * Bytes a second at which payload leaves; 0: as fast as it can.
     */
    uint64_t pace;
    /**
     * 0.
     */
    uint64_t reserved[4];
} zl_path;

/**
 * Tells the paths of a connection, up to `capacity` of them (there are at most 8), and in `count` how many were told.
 *
 * Threads: one at a time.
 */
zl_status zl_paths_read(const struct zl_connection *connection,
                        struct zl_path *paths,
                        size_t capacity,
                        size_t *count);

/* ================================================================================================
 * Names of before
 * They go with the next release.
 */

/**
 * zl_recv_into.
 *
 * Threads: one at a time.
 */
ZL_DEPRECATED("use zl_recv_into")
zl_status zl_receive(struct zl_connection *connection,
                     void *buffer,
                     size_t capacity,
                     size_t *len);

/**
 * zl_post_recv with null for `how`.
 *
 * Threads: one at a time.
 */
ZL_DEPRECATED("use zl_post_recv")
zl_status zl_post_receive(struct zl_connection *connection,
                          const struct zl_region *region,
                          size_t offset,
                          size_t len,
                          uint32_t *id);

/**
 * zl_post_send with `delivery` in its zl_work.
 *
 * Threads: one at a time.
 */
ZL_DEPRECATED("use zl_post_send")
zl_status zl_post_send_with(struct zl_connection *connection,
                            const struct zl_region *region,
                            size_t offset,
                            size_t len,
                            uint32_t delivery,
                            uint32_t *id);

/**
 * zl_recv_message.
 *
 * Threads: one at a time.
 */
ZL_DEPRECATED("use zl_recv_message")
zl_status zl_receive_message(struct zl_connection *connection,
                             void *control,
                             size_t *control_len,
                             void *payload,
                             size_t capacity,
                             size_t *len);

/**
 * zl_post_message_recv with null for `how`.
 *
 * Threads: one at a time.
 */
ZL_DEPRECATED("use zl_post_message_recv")
zl_status zl_post_message_receive(struct zl_connection *connection,
                                  const struct zl_region *region,
                                  size_t offset,
                                  size_t len,
                                  uint32_t *id);

/**
 * zl_fetch_op.
 *
 * Threads: one at a time.
 */
ZL_DEPRECATED("use zl_fetch_op")
zl_status zl_fetch(struct zl_connection *connection,
                   const struct zl_key *on,
                   uint64_t offset,
                   uint32_t op,
                   uint64_t operand,
                   uint64_t expected,
                   uint64_t *before);

/**
 * zl_post_fetch_op.
 *
 * Threads: one at a time.
 */
ZL_DEPRECATED("use zl_post_fetch_op")
zl_status zl_post_fetch(struct zl_connection *connection,
                        const struct zl_key *on,
                        uint64_t offset,
                        uint32_t op,
                        uint64_t operand,
                        uint64_t expected,
                        const struct zl_work *how,
                        uint32_t *id);

/**
 * zl_post_put_vectored.
 *
 * Threads: one at a time.
 */
ZL_DEPRECATED("use zl_post_put_vectored")
zl_status zl_post_put_pieces(struct zl_connection *connection,
                             const struct zl_key *to,
                             const struct zl_piece *pieces,
                             size_t count,
                             const struct zl_work *how,
                             uint32_t *id);

/**
 * zl_post_get_vectored.
 *
 * Threads: one at a time.
 */
ZL_DEPRECATED("use zl_post_get_vectored")
zl_status zl_post_get_pieces(struct zl_connection *connection,
                             const struct zl_key *from,
                             const struct zl_piece *pieces,
                             size_t count,
                             const struct zl_work *how,
                             uint32_t *id);

/**
 * zl_open_region.
 *
 * Threads: one at a time.
 */
ZL_DEPRECATED("use zl_open_region")
zl_status zl_open(struct zl_connection *connection,
                  const char *name,
                  uint32_t rights,
                  struct zl_key *key);

/**
 * zl_peer_addr.
 *
 * Threads: one at a time.
 */
ZL_DEPRECATED("use zl_peer_addr")
zl_status zl_peer_address(const struct zl_connection *connection,
                          char *buffer,
                          size_t capacity);

/**
 * zl_endpoint_local_addr.
 *
 * Threads: one at a time.
 */
ZL_DEPRECATED("use zl_endpoint_local_addr")
zl_status zl_endpoint_address(const struct zl_endpoint *endpoint,
                              char *buffer,
                              size_t capacity);

/**
 * zl_endpoint_public_key.
 *
 * Threads: one at a time.
 */
ZL_DEPRECATED("use zl_endpoint_public_key")
zl_status zl_endpoint_key(const struct zl_endpoint *endpoint,
                          char *buffer,
                          size_t capacity);

/**
 * zl_set_completion_queue.
 *
 * Threads: one at a time.
 */
ZL_DEPRECATED("use zl_set_completion_queue")
zl_status zl_set_queue(struct zl_connection *connection,
                       const struct zl_queue *queue,
                       uint64_t tag);

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif  /* ZEROLANE_H */
