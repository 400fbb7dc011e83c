/* Tests contexts, unsignalled requests and timeouts; completions in batches; opening regions by name without waiting;
   and the layout of the structures. Run by tests/install.rs. */
#define _POSIX_C_SOURCE 200809L

#include "pair.h"
#include <pthread.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <zerolane.h>

/* Programs compiled against this header count on it. */
_Static_assert(sizeof(zl_work) == 24 && offsetof(zl_work, context) == 16, "zl_work");
_Static_assert(sizeof(zl_key) == ZL_KEY_LENGTH, "zl_key");
_Static_assert(sizeof(zl_completion) == 208, "zl_completion");
_Static_assert(offsetof(zl_completion, status) == 12, "zl_completion.status");
_Static_assert(offsetof(zl_completion, context) == 24, "zl_completion.context");
_Static_assert(offsetof(zl_completion, length) == 40, "zl_completion.length");
_Static_assert(offsetof(zl_completion, control_length) == 20, "zl_completion.control_length");
_Static_assert(offsetof(zl_completion, region) == 56, "zl_completion.region");
_Static_assert(offsetof(zl_completion, control) == 80, "zl_completion.control");
_Static_assert(sizeof(zl_piece) == 32, "zl_piece");
_Static_assert(sizeof(zl_account) == 16 * 8, "zl_account");

enum { LENGTH = 5000, TRIES = 20000, COUNT = 6 };

/* Takes completions of `ours` while `peers` moves too, until there are `count`, or one end has waited long. */
static size_t gather(zl_connection *ours, zl_connection *peers, zl_completion *into, size_t count)
{
    zl_completion other;
    size_t there = 0, more;

    for (int tries = 0; tries < TRIES && there < count; tries++) {
        zl_status status = zl_poll_batch(ours, into + there, count - there, &more);
        EXPECT(status == (more > 0 ? ZL_OK : ZL_TIMEOUT));
        there += more;
        EXPECT(zl_wait(peers, 1, &other) >= 0);
    }
    return there;
}

static void contexts(zl_connection *ours, zl_connection *peers)
{
    zl_region *from, *to;
    zl_completion completion[COUNT];
    zl_work how = {.context = UINT64_MAX};
    size_t count;
    uint64_t id;

    EXPECT(zl_region_new(LENGTH, &from) == ZL_OK && zl_region_new(COUNT * LENGTH, &to) == ZL_OK);
    memset(zl_region_data(from), 7, LENGTH);
    how.reserved = 1;
    EXPECT(zl_post_send(ours, from, 0, LENGTH, &how, &id) == ZL_ERROR_ARGUMENT);
    how.reserved = 0;
    how.flags = ZL_WORK_FENCE;
    EXPECT(zl_post_send(ours, from, 0, LENGTH, &how, &id) == ZL_ERROR_ARGUMENT);
    EXPECT(strstr(zl_last_error(), "no meaning") != NULL);
    EXPECT(zl_post_message_recv(ours, NULL, 0, 0, &how, &id) == ZL_ERROR_ARGUMENT);
    how = (zl_work){.delivery = ZL_DELIVERY_SILENT};
    EXPECT(zl_post_recv(peers, to, 0, LENGTH, &how, &id) == ZL_ERROR_ARGUMENT);
    EXPECT(strstr(zl_last_error(), "delivery") != NULL);
    how = (zl_work){.context = UINT64_MAX};
    EXPECT(zl_poll_batch(ours, completion, 0, &count) == ZL_ERROR_ARGUMENT);
    EXPECT(zl_poll_batch(ours, NULL, 1, &count) == ZL_ERROR_ARGUMENT);
    EXPECT(zl_poll_batch(ours, completion, SIZE_MAX, &count) == ZL_ERROR_ARGUMENT);

    /* Every other send, and receive, is unsignalled: what completes are the others, each with its context. */
    for (uint64_t n = 0; n < COUNT; n++) {
        how.flags = n % 2 == 0 ? ZL_WORK_UNSIGNALLED : 0;
        how.context = n << 40;
        EXPECT(zl_post_recv(peers, to, n * LENGTH, LENGTH, &how, &id) == ZL_OK);
    }
    for (uint64_t n = 0; n < COUNT; n++) {
        how.flags = n % 2 == 0 ? ZL_WORK_UNSIGNALLED : 0;
        how.context = ~n;
        EXPECT(zl_post_send(ours, from, 0, LENGTH, &how, &id) == ZL_OK);
    }
    /* Those of the peers stay with them, because this end alone is asked. */
    size_t there = 0, theirs = 0;
    zl_completion received[COUNT];
    for (int tries = 0; tries < TRIES && (there < COUNT / 2 || theirs < COUNT / 2); tries++) {
        if (zl_poll_batch(ours, completion + there, COUNT - there, &count) == ZL_OK)
            there += count;
        if (zl_poll_batch(peers, received + theirs, COUNT - theirs, &count) == ZL_OK)
            theirs += count;
    }
    EXPECT(there == COUNT / 2 && theirs == COUNT / 2);
    for (uint64_t n = 0; n < COUNT / 2; n++) {
        EXPECT(completion[n].status == ZL_OK && completion[n].context == ~(2 * n + 1));
        EXPECT(received[n].status == ZL_OK && received[n].context == (2 * n + 1) << 40);
        EXPECT(received[n].length == LENGTH);
    }
    for (int n = 0; n < COUNT; n++)
        EXPECT(memcmp((char *)zl_region_data(to) + n * LENGTH, zl_region_data(from), LENGTH) == 0);

    /* Messages have one, too. */
    how = (zl_work){.context = 0x1234567890abcdef};
    EXPECT(zl_post_message_recv(peers, NULL, 0, 0, &how, &id) == ZL_OK);
    how.context = 99;
    EXPECT(zl_post_message(ours, "hi", 2, NULL, 0, 0, &how, &id) == ZL_OK);
    for (there = theirs = 0; there + theirs < 2;) {
        there += zl_poll(ours, completion) == ZL_OK;
        theirs += zl_poll(peers, received) == ZL_OK;
    }
    EXPECT(completion->kind == ZL_KIND_MESSAGE && completion->context == 99);
    EXPECT(received->kind == ZL_KIND_MESSAGE_RECEIVED);
    EXPECT(received->context == 0x1234567890abcdef && received->control_length == 2);

    /* The bytes are free at once. Those that are not signalled leave no completion. */
    char control[4], payload[ZL_INLINE_LENGTH];
    for (int n = 0; n < 3; n++) {
        memset(control, n, sizeof control);
        memset(payload, 10 + n, sizeof payload);
        how = (zl_work){.flags = n < 2 ? ZL_WORK_UNSIGNALLED : 0, .context = 50 + n};
        EXPECT(zl_post_message_inline(ours, control, sizeof control, payload, sizeof payload - n, &how, &id) == ZL_OK);
    }
    for (int n = 0; n < 3; n++) {
        EXPECT(zl_post_message_recv(peers, to, 0, LENGTH, NULL, &id) == ZL_OK);
        do
            there = zl_poll(ours, completion) == ZL_OK;
        while (zl_poll(peers, received) != ZL_OK);
        memset(control, n, sizeof control);
        memset(payload, 10 + n, sizeof payload);
        EXPECT(received->kind == ZL_KIND_MESSAGE_RECEIVED && received->length == sizeof payload - n);
        EXPECT(received->control_length == 4 && memcmp(received->control, control, sizeof control) == 0);
        EXPECT(memcmp(zl_region_data(to), payload, received->length) == 0);
    }
    while (there == 0)
        there = zl_poll(ours, completion) == ZL_OK;
    EXPECT(completion->id == 0 || (completion->kind == ZL_KIND_MESSAGE && completion->context == 52));
    EXPECT(zl_poll(ours, completion) == ZL_TIMEOUT);
    zl_region_free(from);
    zl_region_free(to);
}

static void regions_by_name(zl_connection *ours, zl_connection *peers)
{
    zl_region *theirs;
    zl_exported *exported;
    zl_completion completion;
    zl_work how = {.context = 5};
    zl_key key;
    uint64_t id, other;

    EXPECT(zl_region_new(4096, &theirs) == ZL_OK);
    EXPECT(zl_exported_new(theirs, 0, 4096, &exported) == ZL_OK);
    EXPECT(zl_export_named(peers, "shared", exported, ZL_RIGHT_WRITE, &key) == ZL_OK);
    EXPECT(zl_post_open_region(ours, "shared", ZL_RIGHT_WRITE, &how, &id) == ZL_OK);
    EXPECT(gather(ours, peers, &completion, 1) == 1);
    EXPECT(completion.id == id && completion.kind == ZL_KIND_OPEN && completion.context == 5);
    EXPECT(completion.status == ZL_OK && zl_key_length(&completion.region) == 4096);
    EXPECT(memcmp(&completion.region, &key, sizeof key) == 0);
    EXPECT(zl_post_put_inline(ours, &completion.region, 8, "placed", 6, NULL, &other) == ZL_OK);
    EXPECT(gather(ours, peers, &completion, 1) == 1);
    EXPECT(completion.id == other && completion.status == ZL_OK);
    EXPECT(memcmp((char *)zl_region_data(theirs) + 8, "placed", 6) == 0);

    /* An immediate says which memory, and how many bytes. */
    const zl_work tell = {.flags = ZL_WORK_IMMEDIATE | ZL_WORK_UNSIGNALLED, .immediate = 7};
    EXPECT(zl_post_put_inline(ours, &key, 100, "told", 5, &tell, &id) == ZL_OK);
    EXPECT(gather(peers, ours, &completion, 1) == 1);
    EXPECT(completion.kind == ZL_KIND_IMMEDIATE && completion.value == 7 && completion.length == 5);
    EXPECT(memcmp(&completion.region, &key, sizeof key) == 0);
    EXPECT(zl_key_to_u64(&completion.region, &id) != ZL_OK);
    EXPECT(zl_export_numbered(peers, 9, exported, ZL_RIGHT_WRITE, &key) == ZL_OK);
    EXPECT(zl_post_put_inline(ours, &key, 100, NULL, 0, &tell, &id) == ZL_OK);
    EXPECT(gather(peers, ours, &completion, 1) == 1 && completion.length == 0);
    EXPECT(zl_key_to_u64(&completion.region, &id) == ZL_OK && id >> 40 == 9);
    EXPECT(zl_post_open_region(ours, "none", ZL_RIGHT_WRITE, NULL, &id) == ZL_OK);
    EXPECT(gather(ours, peers, &completion, 1) == 1);
    EXPECT(completion.id == id && completion.status == ZL_ERROR_UNKNOWN);
    zl_exported_free(exported);
    zl_region_free(theirs);
}

static void times(zl_connection *ours)
{
    char buffer[8];
    size_t length;

    /* Nothing comes. */
    EXPECT(zl_set_timeout(ours, 5) == ZL_OK);
    EXPECT(zl_recv_into(ours, buffer, sizeof buffer, &length) == ZL_ERROR_TIMED_OUT);
    EXPECT(strstr(zl_last_error(), "5ms") != NULL);
    EXPECT(zl_set_timeout(ours, -1) == ZL_OK);
}

/* What has arrived of a receive in progress, until it is over. */
static void arrivals(zl_connection *ours)
{
    zl_region *region;
    zl_completion completion;
    uint64_t bytes = 99;
    uint64_t id;

    EXPECT(zl_region_new(100, &region) == ZL_OK);
    EXPECT(zl_post_recv(ours, region, 0, 100, NULL, &id) == ZL_OK);
    EXPECT(zl_arrived(ours, id + 1, &bytes) == ZL_ERROR_ARGUMENT);
    EXPECT(zl_wait_arrived(ours, id + 1, 0, 1, &bytes) == ZL_ERROR_ARGUMENT);
    EXPECT(zl_cancel(ours, id) == ZL_OK);
    EXPECT(zl_wait(ours, -1, &completion) == ZL_OK);
    EXPECT(completion.status == ZL_ERROR_CANCELLED);
    EXPECT(zl_wait_arrived(ours, id, 0, -1, &bytes) == ZL_ERROR_ARGUMENT);
    EXPECT(strstr(zl_last_error(), "nothing is being received") != NULL);
    zl_region_free(region);
}

/* Completions that are there already are taken together, as many as there is room for, and no more. */
static void batches(zl_connection *ours)
{
    zl_completion completion[COUNT];
    zl_work how = {0};
    uint64_t id[COUNT];
    size_t count;

    for (uint64_t n = 0; n < COUNT; n++) {
        how.context = n;
        EXPECT(zl_post_recv(ours, NULL, 0, 0, &how, &id[n]) == ZL_ERROR_ARGUMENT);
        EXPECT(zl_post_message_recv(ours, NULL, 0, 0, &how, &id[n]) == ZL_OK);
    }
    for (int n = 0; n < COUNT; n++)
        EXPECT(zl_cancel(ours, id[n]) == ZL_OK);
    EXPECT(zl_poll_batch(ours, completion, COUNT - 2, &count) == ZL_OK && count == COUNT - 2);
    EXPECT(zl_poll_batch(ours, completion + count, 2, &count) == ZL_OK && count == 2);
    for (uint64_t n = 0; n < COUNT; n++) {
        EXPECT(completion[n].id == id[n] && completion[n].context == n);
        EXPECT(completion[n].status == ZL_ERROR_CANCELLED);
    }
    EXPECT(zl_poll_batch(ours, completion, COUNT, &count) == ZL_TIMEOUT && count == 0);
}

/* How often memory was given back, and which. */
struct given_back {
    int times;
    void *memory;
};

static void give_back(void *memory, void *context)
{
    struct given_back *it = context;

    it->times++;
    it->memory = memory;
}

/* `memory` in a region of its own. */
static zl_region *wrapped(struct given_back *back, char memory[64])
{
    zl_region *region;

    *back = (struct given_back){0};
    EXPECT(zl_region_wrap(memory, 64, give_back, back, &region) == ZL_OK);
    return region;
}

/* Memory of the program comes back once, when the last of its users is gone. */
static void wrapped_memory(zl_connection *ours, zl_connection *peers)
{
    static char memory[64];
    struct given_back back;
    zl_completion completion;
    zl_connection *short_lived, *others;
    zl_exported *exported;
    zl_queue *queue;
    zl_region *region, *place;
    zl_key key;
    uint64_t id;

    /* A receive, until its completion. */
    region = wrapped(&back, memory);
    EXPECT(zl_post_recv(ours, region, 8, 8, NULL, &id) == ZL_OK);
    zl_region_free(region);
    EXPECT(back.times == 0);
    EXPECT(zl_cancel(ours, id) == ZL_OK && zl_wait(ours, -1, &completion) == ZL_OK);
    EXPECT(completion.status == ZL_ERROR_CANCELLED);
    EXPECT(back.times == 1 && back.memory == memory);

    /* A send, until the peer has it. */
    region = wrapped(&back, memory);
    EXPECT(zl_region_new(64, &place) == ZL_OK);
    EXPECT(zl_post_recv(peers, place, 0, 64, NULL, &id) == ZL_OK);
    EXPECT(zl_post_send(ours, region, 0, 64, NULL, &id) == ZL_OK);
    zl_region_free(region);
    EXPECT(back.times == 0);
    EXPECT(gather(ours, peers, &completion, 1) == 1 && completion.id == id);
    EXPECT(back.times == 1);
    zl_region_free(place);

    /* An export, until it is revoked. */
    region = wrapped(&back, memory);
    EXPECT(zl_exported_new(region, 0, 64, &exported) == ZL_OK);
    zl_region_free(region);
    EXPECT(zl_export(ours, exported, ZL_RIGHT_READ, &key) == ZL_OK);
    EXPECT(back.times == 0);
    EXPECT(zl_exported_revoke(exported) == ZL_OK && zl_poll(ours, &completion) == ZL_TIMEOUT);
    zl_exported_free(exported);
    EXPECT(back.times == 1);

    /* A connection that ends with a receive. */
    connect_pair(&short_lived, &others);
    region = wrapped(&back, memory);
    EXPECT(zl_post_recv(short_lived, region, 0, 64, NULL, &id) == ZL_OK);
    zl_region_free(region);
    EXPECT(back.times == 0);
    zl_connection_free(short_lived);
    EXPECT(back.times == 1);

    /* One whose completions, not taken, are in a queue. */
    EXPECT(zl_queue_new(4, &queue) == ZL_OK);
    EXPECT(zl_set_completion_queue(others, queue, 0) == ZL_OK);
    region = wrapped(&back, memory);
    EXPECT(zl_post_recv(others, region, 0, 64, NULL, &id) == ZL_OK);
    zl_region_free(region);
    EXPECT(zl_cancel(others, id) == ZL_OK);
    zl_connection_free(others);
    zl_queue_free(queue);
    EXPECT(back.times == 1);
}

/* One end sends no more; the other does. */
static void end_of_sending(zl_connection *ours, zl_connection *peers)
{
    zl_region *region;
    zl_completion completion;
    uint64_t id;

    EXPECT(zl_region_new(8, &region) == ZL_OK);
    EXPECT(zl_post_recv(peers, region, 0, 8, NULL, &id) == ZL_OK);
    EXPECT(zl_finish(ours) == ZL_OK && zl_finish(ours) == ZL_OK);
    EXPECT(zl_send(ours, "more", 4) == ZL_ERROR_FINISHED);
    EXPECT(gather(peers, ours, &completion, 1) == 1);
    EXPECT(completion.id == id && completion.status == ZL_ERROR_FINISHED);
    EXPECT(zl_post_send(peers, region, 0, 8, NULL, &id) == ZL_OK);
    EXPECT(zl_post_recv(ours, region, 0, 8, NULL, &id) == ZL_OK);
    EXPECT(gather(peers, ours, &completion, 1) == 1);
    EXPECT(completion.status == ZL_OK);
    zl_region_free(region);
}

static void addresses(zl_connection *ours, zl_connection *peers)
{
    char local[ZL_ADDRESS_LENGTH], seen[ZL_ADDRESS_LENGTH];

    EXPECT(zl_local_addr(ours, local, sizeof local) == ZL_OK);
    EXPECT(zl_peer_addr(peers, seen, sizeof seen) == ZL_OK);
    EXPECT(strcmp(local, seen) == 0);
    EXPECT(zl_local_addr(ours, local, 3) == ZL_ERROR_ARGUMENT);
}

int main(void)
{
    zl_connection *ours, *peers;

    connect_pair(&ours, &peers);
    addresses(ours, peers);
    contexts(ours, peers);
    regions_by_name(ours, peers);
    times(ours);
    batches(ours);
    arrivals(ours);
    wrapped_memory(ours, peers);
    end_of_sending(ours, peers);
    zl_connection_free(peers);
    zl_connection_free(ours);
    return EXIT_SUCCESS;
}
