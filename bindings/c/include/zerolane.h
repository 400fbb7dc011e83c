/*
 * Zerolane: memory moved between machines over ordinary Ethernet.
 * Made from bindings/c/src by cbindgen; do not edit. See docs/c.md.
 */

#ifndef ZEROLANE_H
#define ZEROLANE_H

#include <stddef.h>
#include <stdint.h>

/**
 * Bytes that hold any address of this library as a text, with the zero at its end.
 */
#define ZL_ADDRESS_LENGTH 64

/**
 * Version of the binary interface. It grows when something that was compiled against an older
 * header would not work any more; while it is 0, with any release.
 */
#define ZL_ABI_VERSION 0

/**
 * What a function returns, and how a request ended. Negative: it failed, and zl_last_error has the
 * text. After ZL_ERROR_ARGUMENT, ZL_ERROR_BUSY, ZL_ERROR_TOO_MANY and the failures of a single
 * request (ZL_ERROR_CANCELLED to ZL_ERROR_MEMORY) the connection goes on. More codes may be added.
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
     * A null pointer, a value out of range, a text that is not UTF-8.
     */
    ZL_ERROR_ARGUMENT = -1,
    /**
     * Another thread is using the handle.
     */
    ZL_ERROR_BUSY = -2,
    /**
     * The operating system refused.
     */
    ZL_ERROR_SYSTEM = -3,
    /**
     * The name has no address.
     */
    ZL_ERROR_NO_ADDRESS = -4,
    /**
     * Nobody answered within the connect timeout.
     */
    ZL_ERROR_CONNECT_TIMEOUT = -5,
    /**
     * The connection was rejected.
     */
    ZL_ERROR_REJECTED = -6,
    /**
     * The connection was closed, by this end or the peer.
     */
    ZL_ERROR_CLOSED = -7,
    /**
     * The peer does not answer any more, or nobody is there.
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
     * As many requests as a connection takes are under way.
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
     * 0: do without UDP segmentation offload. Default 1.
     */
    ZL_OPTION_GSO = 2,
    /**
     * 0: do without UDP receive offload. Default 1.
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
     * Microseconds to look for the next datagram before sleeping.
     */
    ZL_OPTION_SPIN_US = 7,
    /**
     * Milliseconds after which connecting is given up.
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
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum zl_option zl_option;
#else
typedef uint32_t zl_option;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

/**
 * What a mapped file is for.
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
 * How the sender asked for the arrival to be delivered.
 */
enum zl_delivery
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : uint32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
    /**
     * Not reported in particular.
     */
    ZL_DELIVERY_SILENT = 0,
    /**
     * Reported to who polls.
     */
    ZL_DELIVERY_POLLED = 1,
    /**
     * Reported, and wakes who waits.
     */
    ZL_DELIVERY_INTERRUPT = 2,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum zl_delivery zl_delivery;
#else
typedef uint32_t zl_delivery;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

/**
 * A connection. It makes progress only inside its functions, in the calling thread: a peer that
 * calls none for the idle timeout, while this end waits for it, counts as dead.
 */
typedef struct zl_connection zl_connection;

/**
 * A listening UDP port.
 */
typedef struct zl_endpoint zl_endpoint;

/**
 * Settings of connections. The defaults suit a local network.
 */
typedef struct zl_options zl_options;

/**
 * Memory, for requests to name parts of. Freeing the region while a request uses it is safe: memory
 * of zl_region_new and zl_region_map_file stays until that request is done.
 */
typedef struct zl_region zl_region;

/**
 * What a connection did since it began. Fields may be added at the end, in place of `reserved`.
 */
typedef struct zl_account {
    /**
     * Payload bytes the kernel placed where they belong, without a copy in user space.
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
     * 0.
     */
    uint64_t reserved[7];
} zl_account;

/**
 * A request that is done: its memory is the program's again.
 */
typedef struct zl_completion {
    /**
     * Which, as the function that posted it said.
     */
    uint32_t id;
    /**
     * How it ended.
     */
    zl_status status;
    /**
     * Bytes moved.
     */
    uint64_t length;
    /**
     * A value of enum zl_delivery.
     */
    uint32_t delivery;
    /**
     * 0.
     */
    uint32_t reserved;
} zl_completion;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/**
 * Connects to `address`, "host:port", with `options`, or the defaults if null. End the connection
 * with zl_close, or zl_connection_free.
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
zl_status zl_peer_address(const struct zl_connection *connection, char *buffer, size_t capacity);

/**
 * Ends a zl_wait or zl_announced of another thread, or the next one if none is under way: it
 * returns ZL_TIMEOUT.
 *
 * Threads: any, also while another uses the connection.
 */
zl_status zl_wake(const struct zl_connection *connection);

/**
 * Tells what the connection did so far.
 *
 * Threads: one at a time.
 */
zl_status zl_account_read(const struct zl_connection *connection, struct zl_account *account);

/**
 * Waits until the peer has all that was sent, disconnects, and frees the connection, also if it
 * fails. Requests that are not done end; their memory is not touched any more. Null is refused.
 *
 * Threads: the last that uses it.
 */
zl_status zl_close(struct zl_connection *connection);

/**
 * Ends the connection at once, telling the peer if it can be told, and frees it; null is nothing.
 * Memory of its requests is not touched any more.
 *
 * Threads: the last that uses it.
 */
void zl_connection_free(struct zl_connection *connection);

/**
 * Listens on `address`, "host:port" (port 0: any that is free), with `options`, or the defaults if
 * null. Free the endpoint with zl_endpoint_free.
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
zl_status zl_endpoint_address(const struct zl_endpoint *endpoint,
                              char *buffer,
                              size_t capacity);

/**
 * Waits `timeout_ms` milliseconds (negative: for ever) for the next connection. It may be given to
 * another thread. Free it with zl_close or zl_connection_free.
 *
 * Threads: one at a time.
 */
zl_status zl_endpoint_accept(struct zl_endpoint *endpoint,
                             int64_t timeout_ms,
                             struct zl_connection **connection);

/**
 * Stops listening; null is nothing. Connections it accepted go on.
 *
 * Threads: the last that uses it.
 */
void zl_endpoint_free(struct zl_endpoint *endpoint);

/**
 * New settings, all at their defaults. Free them with zl_options_free.
 *
 * Threads: any.
 */
zl_status zl_options_new(struct zl_options **options);

/**
 * Sets one option, a value of enum zl_option, to `value`.
 *
 * Threads: any.
 */
zl_status zl_options_set(struct zl_options *options, uint32_t option, uint64_t value);

/**
 * Frees settings; null is nothing.
 *
 * Threads: the last that uses them.
 */
void zl_options_free(struct zl_options *options);

/**
 * Allocates a region of `len` zero bytes: page-aligned, in huge pages where the system has them.
 *
 * Threads: any.
 */
zl_status zl_region_new(size_t len, struct zl_region **region);

/**
 * Names `len` bytes at `memory`, which must stay where they are until the region is freed and every
 * request that uses it is done (or its connection freed).
 *
 * Threads: any.
 */
zl_status zl_region_wrap(void *memory, size_t len, struct zl_region **region);

/**
 * Maps `len` bytes of the file open as `fd`, from `offset` on. `access` is a value of enum zl_access.
 * The descriptor may be closed afterwards. Requests survive the file being cut; other access to what
 * is gone raises SIGBUS, as with every mapping.
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
 * peer may write them, their content is undefined or changes under the reader's eyes.
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
 * Frees the region; null is nothing. Memory that a request still uses goes with that request.
 *
 * Threads: the last that uses it.
 */
void zl_region_free(struct zl_region *region);

/**
 * Why the last call of this thread that failed did so, as a sentence with its particulars; empty if
 * none did. Valid until the next call of this thread fails.
 *
 * Threads: any; each has its own.
 */
const char *zl_last_error(void);

/**
 * What `status` means, in a few words; never null. The text is static.
 *
 * Threads: any.
 */
const char *zl_status_text(int32_t status);

/**
 * Sends `len` bytes at `data` as one Transfer; returns when the peer has all of it.
 *
 * Threads: one at a time.
 */
zl_status zl_send(struct zl_connection *connection, const void *data, size_t len);

/**
 * Receives the next Transfer into `buffer`, and its length into `len`. If it is larger than
 * `capacity`, both ends get ZL_ERROR_TOO_LARGE, nothing is written, and the next one can be
 * received.
 *
 * Threads: one at a time.
 */
zl_status zl_receive(struct zl_connection *connection, void *buffer, size_t capacity, size_t *len);

/**
 * Waits `timeout_ms` milliseconds (negative: for ever) until the peer announces a Transfer that no
 * posted receive takes, and tells its length, so that memory can be made to measure.
 *
 * Threads: one at a time.
 */
zl_status zl_announced(struct zl_connection *connection, int64_t timeout_ms, uint64_t *len);

/**
 * Posts the send of `len` bytes of `region` from `offset` on; many may be under way. `id` names it.
 *
 * Threads: one at a time.
 */
zl_status zl_post_send(struct zl_connection *connection,
                       const struct zl_region *region,
                       size_t offset,
                       size_t len,
                       uint32_t *id);

/**
 * Posts a receive into `len` bytes of `region` from `offset` on: the n-th posted gets the n-th
 * Transfer the peer sends, if it fits. `id` names it.
 *
 * Threads: one at a time.
 */
zl_status zl_post_receive(struct zl_connection *connection,
                          const struct zl_region *region,
                          size_t offset,
                          size_t len,
                          uint32_t *id);

/**
 * Makes what progress there is without sleeping, and takes a completion if there is one, else
 * returns ZL_TIMEOUT.
 *
 * Threads: one at a time.
 */
zl_status zl_poll(struct zl_connection *connection, struct zl_completion *completion);

/**
 * Waits `timeout_ms` milliseconds (negative: for ever) for a completion, and takes it.
 *
 * Threads: one at a time; zl_wake of another ends it.
 */
zl_status zl_wait(struct zl_connection *connection,
                  int64_t timeout_ms,
                  struct zl_completion *completion);

/**
 * Cancels a request, which then ends with ZL_ERROR_CANCELLED and whose memory is not touched any
 * more. ZL_ERROR_ARGUMENT if it is over already.
 *
 * Threads: one at a time.
 */
zl_status zl_cancel(struct zl_connection *connection, uint32_t id);

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

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* ZEROLANE_H */
