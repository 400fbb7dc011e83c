/* Null and bad arguments give codes and text, everywhere; run by tests/install.rs. */
#define _POSIX_C_SOURCE 200809L

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <zerolane.h>

#define EXPECT(condition)                                                                          \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "%s:%d: not so: %s (last error: %s)\n", __FILE__, __LINE__,            \
                    #condition, zl_last_error());                                                  \
            exit(EXIT_FAILURE);                                                                    \
        }                                                                                          \
    } while (0)
#define REFUSED(call) EXPECT((call) == ZL_ERROR_ARGUMENT && zl_last_error()[0] != '\0')

static void versions(void)
{
    EXPECT(zl_abi_version() == ZL_ABI_VERSION);
    EXPECT(strchr(zl_version(), '.') != NULL);
    EXPECT(strcmp(zl_last_error(), "") == 0);
    EXPECT(strcmp(zl_status_text(ZL_OK), "done") == 0);
    EXPECT(zl_status_text(123456) != NULL);
}

static void nulls(void)
{
    char text[ZL_ADDRESS_LENGTH];
    uint32_t id;
    size_t length;
    uint64_t announced;
    zl_completion completion;
    zl_account account;
    zl_connection *connection;

    REFUSED(zl_options_new(NULL));
    REFUSED(zl_options_set(NULL, ZL_OPTION_STRICT, 1));
    REFUSED(zl_endpoint_bind(NULL, NULL, NULL));
    REFUSED(zl_endpoint_bind("127.0.0.1:0", NULL, NULL));
    REFUSED(zl_endpoint_address(NULL, text, sizeof text));
    REFUSED(zl_endpoint_accept(NULL, 0, &connection));
    REFUSED(zl_connect(NULL, NULL, &connection));
    REFUSED(zl_connect("127.0.0.1:1", NULL, NULL));
    REFUSED(zl_peer_address(NULL, text, sizeof text));
    REFUSED(zl_wake(NULL));
    REFUSED(zl_account_read(NULL, &account));
    REFUSED(zl_close(NULL));
    REFUSED(zl_send(NULL, text, 1));
    REFUSED(zl_receive(NULL, text, 1, &length));
    REFUSED(zl_announced(NULL, 0, &announced));
    REFUSED(zl_post_send(NULL, NULL, 0, 0, &id));
    REFUSED(zl_post_receive(NULL, NULL, 0, 0, &id));
    REFUSED(zl_poll(NULL, &completion));
    REFUSED(zl_wait(NULL, 0, &completion));
    REFUSED(zl_cancel(NULL, 1));
    REFUSED(zl_region_new(1, NULL));
    REFUSED(zl_region_wrap(text, 1, NULL));
    REFUSED(zl_region_map_file(0, 0, 1, ZL_ACCESS_READ, NULL));
    EXPECT(zl_region_data(NULL) == NULL && zl_region_length(NULL) == 0);
    zl_options_free(NULL);
    zl_endpoint_free(NULL);
    zl_connection_free(NULL);
    zl_region_free(NULL);
}

static void options(void)
{
    zl_options *options;

    EXPECT(zl_options_new(&options) == ZL_OK);
    EXPECT(zl_options_set(options, ZL_OPTION_STRICT, 1) == ZL_OK);
    REFUSED(zl_options_set(options, ZL_OPTION_STRICT, 2));
    REFUSED(zl_options_set(options, 9999, 0));
    REFUSED(zl_options_set(options, ZL_OPTION_SLOTS, 1u << 20));
    REFUSED(zl_options_set(options, ZL_OPTION_IDLE_TIMEOUT_MS, 0));
    EXPECT(strstr(zl_last_error(), "0 ms") != NULL);
    zl_options_free(options);
}

static void addresses(void)
{
    zl_options *options;
    zl_endpoint *endpoint;
    zl_connection *connection;
    char text[ZL_ADDRESS_LENGTH];

    EXPECT(zl_endpoint_bind("no port here", NULL, &endpoint) == ZL_ERROR_SYSTEM);
    REFUSED(zl_connect("\xff\xfe:1", NULL, &connection));
    EXPECT(zl_endpoint_bind("127.0.0.1:0", NULL, &endpoint) == ZL_OK);
    REFUSED(zl_endpoint_address(endpoint, text, 3));
    REFUSED(zl_endpoint_address(endpoint, NULL, sizeof text));
    EXPECT(zl_endpoint_address(endpoint, text, sizeof text) == ZL_OK);
    EXPECT(zl_endpoint_accept(endpoint, 1, &connection) == ZL_TIMEOUT);
    zl_endpoint_free(endpoint);
    /* Nobody is there any more. */
    EXPECT(zl_options_new(&options) == ZL_OK);
    EXPECT(zl_options_set(options, ZL_OPTION_CONNECT_TIMEOUT_MS, 200) == ZL_OK);
    zl_status status = zl_connect(text, options, &connection);
    EXPECT(status == ZL_ERROR_CONNECT_TIMEOUT || status == ZL_ERROR_PEER_DEAD);
    zl_options_free(options);
}

static void regions(void)
{
    zl_region *region;
    char memory[16];

    REFUSED(zl_region_new(SIZE_MAX, &region));
    REFUSED(zl_region_wrap(memory, SIZE_MAX, &region));
    REFUSED(zl_region_wrap(NULL, 1, &region));
    REFUSED(zl_region_map_file(-1, 0, 1, ZL_ACCESS_READ, &region));
    REFUSED(zl_region_map_file(0, 0, 1, 77, &region));
    EXPECT(zl_region_map_file(9999, 0, 1, ZL_ACCESS_READ, &region) == ZL_ERROR_SYSTEM);
    EXPECT(zl_region_wrap(NULL, 0, &region) == ZL_OK);
    zl_region_free(region);
    EXPECT(zl_region_wrap(memory, sizeof memory, &region) == ZL_OK);
    EXPECT(zl_region_data(region) == memory && zl_region_length(region) == sizeof memory);
    zl_region_free(region);
}

static void *wait_for_ever(void *connection)
{
    zl_completion completion;
    static zl_status status;

    /* Until the main thread, which tries the same, is not just in it. */
    do
        status = zl_wait(connection, -1, &completion);
    while (status == ZL_ERROR_BUSY);
    return &status;
}

/* Connecting needs an accepting end at the same time. */
static void *connect_to(void *address)
{
    static zl_connection *connection;

    EXPECT(zl_connect(address, NULL, &connection) == ZL_OK);
    return connection;
}

static void connections(void)
{
    zl_endpoint *endpoint;
    zl_connection *ours, *peers;
    zl_region *region;
    zl_completion completion;
    char address[ZL_ADDRESS_LENGTH];
    char small[4];
    uint32_t id;
    pthread_t thread;
    void *waited, *connected;

    EXPECT(zl_endpoint_bind("127.0.0.1:0", NULL, &endpoint) == ZL_OK);
    EXPECT(zl_endpoint_address(endpoint, address, sizeof address) == ZL_OK);
    EXPECT(pthread_create(&thread, NULL, connect_to, address) == 0);
    EXPECT(zl_endpoint_accept(endpoint, 10000, &peers) == ZL_OK);
    EXPECT(pthread_join(thread, &connected) == 0);
    ours = connected;
    EXPECT(zl_region_new(64, &region) == ZL_OK);

    REFUSED(zl_send(ours, NULL, 1));
    REFUSED(zl_post_send(ours, region, 0, 65, &id));
    REFUSED(zl_post_send(ours, region, 1, SIZE_MAX, &id));
    REFUSED(zl_post_send(ours, NULL, 0, 1, &id));
    REFUSED(zl_post_send(ours, region, 0, 1, NULL));
    REFUSED(zl_receive(ours, small, sizeof small, NULL));
    REFUSED(zl_cancel(ours, 4711));
    EXPECT(zl_poll(ours, &completion) == ZL_TIMEOUT);

    /* A receive that is too small, then cancelled ones. */
    memset(zl_region_data(region), 7, 64);
    EXPECT(zl_post_receive(peers, region, 0, 4, &id) == ZL_OK);
    EXPECT(zl_cancel(peers, id) == ZL_OK);
    EXPECT(zl_wait(peers, 10000, &completion) == ZL_OK);
    EXPECT(completion.id == id && completion.status == ZL_ERROR_CANCELLED);

    /* One thread at a time: the second is told so, and may wake the first. */
    EXPECT(pthread_create(&thread, NULL, wait_for_ever, peers) == 0);
    zl_status second = ZL_TIMEOUT;
    for (int tries = 0; tries < 10000 && second == ZL_TIMEOUT; tries++) {
        const struct timespec millisecond = {.tv_nsec = 1000000};
        nanosleep(&millisecond, NULL);
        second = zl_poll(peers, &completion);
    }
    EXPECT(second == ZL_ERROR_BUSY);
    EXPECT(zl_wake(peers) == ZL_OK);
    EXPECT(pthread_join(thread, &waited) == 0);
    EXPECT(*(zl_status *)waited == ZL_TIMEOUT);

    /* Freeing with a request under way gives its memory back; the peer is told. */
    EXPECT(zl_post_receive(peers, region, 0, 64, &id) == ZL_OK);
    zl_connection_free(peers);
    zl_region_free(region);
    EXPECT(zl_wait(ours, 10000, &completion) == ZL_ERROR_CLOSED);
    zl_connection_free(ours);
    zl_endpoint_free(endpoint);
}

int main(void)
{
    versions();
    nulls();
    options();
    addresses();
    regions();
    connections();
    return EXIT_SUCCESS;
}
