/* Tests sends and messages from several pieces of memory, byte by byte, and completions of a queue in
   batches. Run by tests/install.rs. */
#define _DEFAULT_SOURCE

#include "pair.h"
#include <poll.h>
#include <pthread.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <zerolane.h>

_Static_assert(sizeof(zl_part) == 24 && offsetof(zl_part, length) == 16, "zl_part");

#define REFUSED(call) EXPECT((call) == ZL_ERROR_ARGUMENT)

enum { TRIES = 20000, LENGTH = 100000, SHAPES = 4, MOST = 3000, TOTAL = 4 * LENGTH };

/* Parts, and what they are together. */
struct gathered {
    zl_part parts[MOST];
    size_t count, length;
    unsigned char whole[TOTAL];
};

static void fill(zl_region *region, unsigned char seed)
{
    unsigned char *bytes = zl_region_data(region);

    for (size_t i = 0; i < zl_region_length(region); i++)
        bytes[i] = (unsigned char)(seed + i * 2654435761u / 16777216);
}

static void add(struct gathered *to, const zl_region *region, size_t offset, size_t length)
{
    EXPECT(to->count < MOST && to->length + length <= TOTAL);
    to->parts[to->count++] = (zl_part){.region = region, .offset = offset, .length = length};
    memcpy(to->whole + to->length, (const unsigned char *)zl_region_data(region) + offset, length);
    to->length += length;
}

/* None; short ones, which are copied; many of one byte; long ones that overlap, with an empty one between. */
static void shape(struct gathered *to, int which, const zl_region *head, const zl_region *body)
{
    to->count = to->length = 0;
    if (which == 1) {
        add(to, head, 8, 32);
        add(to, body, 5, 100);
    } else if (which == 2) {
        for (size_t n = 0; n < MOST; n++)
            add(to, n % 2 ? head : body, n % 40, 1);
    } else if (which == 3) {
        add(to, head, 0, 40);
        add(to, body, 1, LENGTH - 1);
        add(to, body, 500, 0);
        add(to, body, 500, LENGTH - 500);
        add(to, head, 39, 1);
    }
}

/* The next completion of each end. Both move until then: what is over at one may be the other's to be told. */
static void both(zl_connection *ours, zl_connection *peers, zl_completion *here, zl_completion *there)
{
    zl_status a = ZL_TIMEOUT, b = ZL_TIMEOUT;
    zl_completion none;

    for (int tries = 0; tries < TRIES && (a != ZL_OK || b != ZL_OK); tries++) {
        if (a != ZL_OK)
            a = zl_wait(ours, 1, here);
        else
            EXPECT(zl_wait(ours, 0, &none) == ZL_TIMEOUT);
        if (b != ZL_OK)
            b = zl_wait(peers, 1, there);
        else
            EXPECT(zl_wait(peers, 0, &none) == ZL_TIMEOUT);
    }
    EXPECT(a == ZL_OK && b == ZL_OK);
}

static void content(zl_connection *ours, zl_connection *peers)
{
    static struct gathered from;
    zl_region *head, *body, *to;
    zl_completion sent, received;
    zl_work how = {0};
    uint64_t id, other;

    EXPECT(zl_region_new(TOTAL, &to) == ZL_OK);
    for (int which = 0; which < SHAPES; which++) {
        EXPECT(zl_region_new(40, &head) == ZL_OK && zl_region_new(LENGTH, &body) == ZL_OK);
        fill(head, 3);
        fill(body, 77);
        shape(&from, which, head, body);
        how.context = (uint64_t)which << 33;
        memset(zl_region_data(to), 0, TOTAL);
        EXPECT(zl_post_recv(peers, to, 0, TOTAL, NULL, &other) == ZL_OK);
        EXPECT(zl_post_send_vectored(ours, from.parts, from.count, &how, &id) == ZL_OK);
        both(ours, peers, &sent, &received);
        EXPECT(sent.id == id && sent.kind == ZL_KIND_SEND && sent.status == ZL_OK);
        EXPECT(sent.context == how.context && sent.length == from.length);
        EXPECT(received.id == other && received.status == ZL_OK && received.length == from.length);
        EXPECT(memcmp(zl_region_data(to), from.whole, from.length) == 0);

        memset(zl_region_data(to), 0, TOTAL);
        EXPECT(zl_post_message_recv(peers, to, 0, TOTAL, NULL, &other) == ZL_OK);
        EXPECT(zl_post_message_vectored(ours, "parts", 5, from.parts, from.count, &how, &id) == ZL_OK);
        /* It keeps what it needs of them. */
        zl_region_free(head);
        zl_region_free(body);
        both(ours, peers, &sent, &received);
        EXPECT(sent.id == id && sent.kind == ZL_KIND_MESSAGE && sent.context == how.context);
        EXPECT(sent.status == ZL_OK && sent.length == from.length);
        EXPECT(received.control_length == 5 && memcmp(received.control, "parts", 5) == 0);
        EXPECT(received.status == ZL_OK && received.length == from.length);
        EXPECT(memcmp(zl_region_data(to), from.whole, from.length) == 0);
    }
    zl_region_free(to);
}

static void refused(zl_connection *ours)
{
    /* Address space alone: nothing of it can be read. */
    const size_t huge = (size_t)1 << 46, times = (size_t)1 << 17;
    zl_region *region, *space;
    zl_part part = {.region = NULL, .offset = 0, .length = 1}, *many;
    zl_work how = {.flags = 1u << 20};
    uint64_t id;

    EXPECT(zl_region_new(100, &region) == ZL_OK);
    REFUSED(zl_post_send_vectored(NULL, &part, 1, NULL, &id));
    REFUSED(zl_post_message_vectored(NULL, "text", 4, &part, 1, NULL, &id));
    REFUSED(zl_post_send_vectored(ours, NULL, 2, NULL, &id));
    REFUSED(zl_post_send_vectored(ours, &part, SIZE_MAX / 8, NULL, &id));
    EXPECT(strstr(zl_last_error(), "parts") != NULL);
    REFUSED(zl_post_send_vectored(ours, &part, 1, NULL, &id));
    EXPECT(strstr(zl_last_error(), "region") != NULL);
    part = (zl_part){.region = region, .offset = 90, .length = 11};
    REFUSED(zl_post_send_vectored(ours, &part, 1, NULL, &id));
    EXPECT(strstr(zl_last_error(), "11 bytes at 90 of a region of 100") != NULL);
    REFUSED(zl_post_message_vectored(ours, "text", 4, &part, 1, NULL, &id));
    part.length = 10;
    REFUSED(zl_post_send_vectored(ours, &part, 1, &how, &id));
    REFUSED(zl_post_message_vectored(ours, NULL, 4, &part, 1, NULL, &id));
    REFUSED(zl_post_message_vectored(ours, "text", ZL_CONTROL_LENGTH + 1, &part, 1, NULL, &id));

    void *mapped = mmap(NULL, huge, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    EXPECT(mapped != MAP_FAILED);
    EXPECT(zl_region_wrap(mapped, huge, NULL, NULL, &space) == ZL_OK);
    many = calloc(2 * times + 1, sizeof *many);
    EXPECT(many != NULL);
    for (size_t n = 0; n <= 2 * times; n++)
        many[n] = (zl_part){.region = space, .offset = 0, .length = huge};
    many[2 * times] = part;
    /* 2^63 bytes, and 2^64 and ten, which a machine word has not. */
    REFUSED(zl_post_send_vectored(ours, many, times, NULL, &id));
    EXPECT(strstr(zl_last_error(), "2^63") != NULL);
    REFUSED(zl_post_send_vectored(ours, many, 2 * times + 1, NULL, &id));
    REFUSED(zl_post_message_vectored(ours, "text", 4, many, 2 * times + 1, NULL, &id));
    EXPECT(strstr(zl_last_error(), "2^63") != NULL);
    free(many);
    zl_region_free(space);
    EXPECT(munmap(mapped, huge) == 0);
    zl_region_free(region);
}

/* What is there is taken together, as much as there is room for; the descriptor is readable while there is more. */
static void batches(zl_connection *ours)
{
    enum { COUNT = 6 };
    zl_queue *queue;
    zl_completion completion[COUNT];
    zl_work how = {0};
    uint64_t id[COUNT];
    size_t count = 99;

    EXPECT(zl_queue_new(COUNT, &queue) == ZL_OK);
    struct pollfd readable = {.fd = zl_queue_fd(queue), .events = POLLIN};
    REFUSED(zl_queue_poll_batch(NULL, completion, COUNT, &count));
    REFUSED(zl_queue_poll_batch(queue, NULL, COUNT, &count));
    REFUSED(zl_queue_poll_batch(queue, completion, 0, &count));
    REFUSED(zl_queue_poll_batch(queue, completion, SIZE_MAX, &count));
    REFUSED(zl_queue_poll_batch(queue, completion, COUNT, NULL));
    EXPECT(zl_queue_poll_batch(queue, completion, COUNT, &count) == ZL_TIMEOUT && count == 0);
    EXPECT(zl_set_completion_queue(ours, queue, 42) == ZL_OK);
    for (uint64_t n = 0; n < COUNT; n++) {
        how.context = n + 7;
        EXPECT(zl_post_message_recv(ours, NULL, 0, 0, &how, &id[n]) == ZL_OK);
    }
    for (int n = 0; n < COUNT; n++)
        EXPECT(zl_cancel(ours, id[n]) == ZL_OK);
    EXPECT(zl_wait(ours, 0, completion) == ZL_WOKEN);
    EXPECT(zl_queue_poll_batch(queue, completion, COUNT - 2, &count) == ZL_OK && count == COUNT - 2);
    EXPECT(poll(&readable, 1, 0) == 1);
    EXPECT(zl_queue_poll_batch(queue, completion + COUNT - 2, 2, &count) == ZL_OK && count == 2);
    EXPECT(poll(&readable, 1, 0) == 0);
    for (uint64_t n = 0; n < COUNT; n++) {
        EXPECT(completion[n].id == id[n] && completion[n].tag == 42 && completion[n].context == n + 7);
        EXPECT(completion[n].status == ZL_ERROR_CANCELLED);
    }
    EXPECT(zl_queue_poll_batch(queue, completion, COUNT, &count) == ZL_TIMEOUT && count == 0);
    zl_queue_free(queue);
}

int main(void)
{
    zl_connection *ours, *peers;

    connect_pair(&ours, &peers);
    refused(ours);
    content(ours, peers);
    batches(ours);
    zl_connection_free(peers);
    zl_connection_free(ours);
    return EXIT_SUCCESS;
}
