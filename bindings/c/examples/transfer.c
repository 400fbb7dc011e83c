/*
 * Sends 16 MiB from one process to another, four pieces in flight at once, and checks the content.
 *
 *   cc -std=c11 transfer.c $(pkg-config --cflags --libs zerolane) -o transfer && ./transfer
 */
#define _POSIX_C_SOURCE 200809L

#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>
#include <zerolane.h>

enum { PIECES = 4, PIECE = 4 << 20 };

/* Ends the process with the library's error text if a call failed. */
static void check(zl_status status, const char *call)
{
    if (status != ZL_OK) {
        fprintf(stderr, "%s: %s: %s\n", call, zl_status_text(status), zl_last_error());
        exit(EXIT_FAILURE);
    }
}

static unsigned char expected(size_t index)
{
    return (unsigned char)(index * 2654435761u >> 24);
}

static void send_pieces(const char *address)
{
    zl_connection *connection;
    zl_region *region;

    check(zl_connect(address, NULL, &connection), "connect");
    check(zl_region_new((size_t)PIECES * PIECE, &region), "allocate");
    unsigned char *bytes = zl_region_data(region);
    for (size_t i = 0; i < zl_region_length(region); i++)
        bytes[i] = expected(i);
    for (size_t piece = 0; piece < PIECES; piece++)
        check(zl_post_send(connection, region, piece * PIECE, PIECE, NULL, NULL), "post a send");
    zl_region_free(region); /* its memory stays until the sends are done */
    check(zl_close(connection), "close"); /* waits for them */
}

static void receive_pieces(zl_connection *connection)
{
    zl_region *region;
    zl_completion completion;

    check(zl_region_new((size_t)PIECES * PIECE, &region), "allocate");
    for (size_t piece = 0; piece < PIECES; piece++)
        check(zl_post_recv(connection, region, piece * PIECE, PIECE, NULL, NULL), "post a receive");
    for (size_t piece = 0; piece < PIECES; piece++) {
        check(zl_wait(connection, -1, &completion), "wait");
        check(completion.status, "receive");
    }
    const unsigned char *bytes = zl_region_data(region);
    for (size_t i = 0; i < zl_region_length(region); i++) {
        if (bytes[i] != expected(i)) {
            fprintf(stderr, "byte %zu is wrong\n", i);
            exit(EXIT_FAILURE);
        }
    }
    zl_region_free(region);
    check(zl_close(connection), "close");
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
        send_pieces(address);
        _exit(EXIT_SUCCESS);
    }
    check(zl_endpoint_accept(endpoint, 10000, &connection), "accept");
    receive_pieces(connection);
    zl_endpoint_free(endpoint);
    int status;
    if (waitpid(child, &status, 0) != child || status != 0) {
        fprintf(stderr, "the sender failed\n");
        return EXIT_FAILURE;
    }
    printf("16 MiB received, all right (zerolane %s)\n", zl_version());
    return EXIT_SUCCESS;
}
