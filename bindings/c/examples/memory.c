/*
 * One process writes the memory of another: it claims rows of a table with a counter and puts them, as for a
 * parameter server.
 *
 *   cc -std=c11 memory.c $(pkg-config --cflags --libs zerolane) -o memory && ./memory
 */
#define _POSIX_C_SOURCE 200809L

#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>
#include <zerolane.h>

enum { ROWS = 16, COLUMNS = 100000 };

/* The layout that both ends know: a counter, then the table. */
struct shared {
    uint64_t next_row;
    uint64_t table[ROWS][COLUMNS];
};

/* Ends the process with the library's error text if a call failed. */
static void check(zl_status status, const char *call)
{
    if (status != ZL_OK) {
        fprintf(stderr, "%s: %s: %s\n", call, zl_status_text(status), zl_last_error());
        exit(EXIT_FAILURE);
    }
}

/* Claims and fills rows until none are left. */
static void worker(const char *address)
{
    static uint64_t row[COLUMNS];
    const struct zl_work tell = {.flags = ZL_WORK_IMMEDIATE};
    zl_connection *connection;
    zl_completion completion;
    zl_region *region;
    zl_key shared;
    uint64_t claimed;

    check(zl_connect(address, NULL, &connection), "connect");
    check(zl_open_region(connection, "shared", ZL_RIGHT_WRITE | ZL_RIGHT_ATOMIC, &shared), "open");
    check(zl_region_wrap(row, sizeof row, NULL, NULL, &region), "wrap");
    for (;;) {
        const uint64_t counter = offsetof(struct shared, next_row);
        check(zl_fetch_op(connection, &shared, counter, ZL_FETCH_INCREMENT, 0, 0, &claimed), "claim");
        if (claimed >= ROWS)
            break;
        for (size_t i = 0; i < COLUMNS; i++)
            row[i] = claimed * COLUMNS + i;
        struct zl_work how = tell;
        how.immediate = (uint32_t)claimed;
        const uint64_t place = offsetof(struct shared, table) + claimed * sizeof row;
        check(zl_post_put(connection, &shared, place, region, 0, sizeof row, &how, NULL), "put");
        check(zl_wait(connection, -1, &completion), "wait");
        check(completion.status, "put");
    }
    zl_region_free(region);
    check(zl_close(connection), "close");
}

/* Adds up each row when its number arrives. */
static uint64_t reduce(zl_connection *connection)
{
    zl_region *region;
    zl_exported *exported;
    zl_key key;
    zl_completion completion;
    uint64_t sum = 0;

    check(zl_region_new(sizeof(struct shared), &region), "allocate");
    const struct shared *shared = zl_region_data(region);
    check(zl_exported_new(region, 0, sizeof *shared, &exported), "export");
    check(zl_export_named(connection, "shared", exported, ZL_RIGHT_WRITE | ZL_RIGHT_ATOMIC, &key), "export");
    for (int rows = 0; rows < ROWS; rows++) {
        check(zl_wait(connection, 10000, &completion), "wait");
        if (completion.kind != ZL_KIND_IMMEDIATE || completion.value >= ROWS) {
            fprintf(stderr, "unexpected completion\n");
            exit(EXIT_FAILURE);
        }
        const uint64_t *row = shared->table[completion.value];
        for (size_t i = 0; i < COLUMNS; i++)
            sum += row[i];
    }
    /* The worker claims one more row, then closes. */
    while (zl_wait(connection, 10000, &completion) == ZL_OK)
        ;
    check(zl_exported_revoke(exported), "revoke");
    zl_exported_free(exported);
    zl_region_free(region);
    zl_connection_free(connection);
    return sum;
}

int main(void)
{
    zl_endpoint *endpoint;
    zl_connection *connection;
    char address[ZL_ADDRESS_LENGTH];

    check(zl_endpoint_bind("127.0.0.1:0", NULL, &endpoint), "listen");
    check(zl_endpoint_local_addr(endpoint, address, sizeof address), "address");
    pid_t child = fork();
    if (child < 0) {
        perror("fork");
        return EXIT_FAILURE;
    }
    if (child == 0) {
        worker(address);
        _exit(EXIT_SUCCESS);
    }
    check(zl_endpoint_accept(endpoint, 10000, &connection), "accept");
    const uint64_t count = (uint64_t)ROWS * COLUMNS, sum = reduce(connection);
    zl_endpoint_free(endpoint);
    int status;
    if (waitpid(child, &status, 0) != child || status != 0 || sum != count * (count - 1) / 2) {
        fprintf(stderr, "the worker failed, or the sum %llu is wrong\n", (unsigned long long)sum);
        return EXIT_FAILURE;
    }
    printf("%d rows put and added up, all right\n", ROWS);
    return EXIT_SUCCESS;
}
