/* A job of MPI: messages of all lengths around a ring, collectives, and memory of ranks that compute. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define THAT(condition)                                                                        \
    do {                                                                                       \
        if (!(condition)) {                                                                    \
            fprintf(stderr, "rank %d, line %d: not %s\n", rank, __LINE__, #condition);         \
            MPI_Abort(MPI_COMM_WORLD, 1);                                                      \
        }                                                                                      \
    } while (0)

static int rank, ranks;

static unsigned char byte_of(int from, size_t at) {
    return (unsigned char)(from * 31 + at * 7 + at / 253);
}

static void ring(void) {
    static const int lengths[] = {0, 1, 100, 4096, 16384, 20000, 65536, 1 << 20, 5 << 20};
    unsigned char *out = malloc(5 << 20), *in = malloc(5 << 20);
    int next = (rank + 1) % ranks, before = (rank + ranks - 1) % ranks;
    for (size_t which = 0; which < sizeof lengths / sizeof *lengths; which++) {
        int length = lengths[which];
        for (int at = 0; at < length; at++)
            out[at] = byte_of(rank, at);
        memset(in, 0, length);
        for (int round = 0; round < 5; round++) {
            MPI_Status status;
            int got;
            MPI_Sendrecv(out, length, MPI_BYTE, next, round, in, length, MPI_BYTE, before, round,
                         MPI_COMM_WORLD, &status);
            MPI_Get_count(&status, MPI_BYTE, &got);
            THAT(got == length);
        }
        for (int at = 0; at < length; at++)
            THAT(in[at] == byte_of(before, at));
    }
    /* Many at once, received in another order. */
    enum { MANY = 100 };
    MPI_Request requests[2 * MANY];
    int sent[MANY], got[MANY];
    for (int at = 0; at < MANY; at++) {
        sent[at] = rank * 1000 + at;
        MPI_Isend(&sent[at], 1, MPI_INT, next, at, MPI_COMM_WORLD, &requests[at]);
        MPI_Irecv(&got[at], 1, MPI_INT, before, at, MPI_COMM_WORLD, &requests[MANY + at]);
    }
    MPI_Waitall(2 * MANY, requests, MPI_STATUSES_IGNORE);
    for (int at = 0; at < MANY; at++)
        THAT(got[at] == before * 1000 + at);
    free(out);
    free(in);
}

static void collectives(void) {
    enum { COUNT = 100000 };
    int *mine = malloc(COUNT * sizeof(int)), *all = malloc(COUNT * sizeof(int));
    for (int at = 0; at < COUNT; at++)
        mine[at] = rank + at;
    MPI_Allreduce(mine, all, COUNT, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    for (int at = 0; at < COUNT; at++)
        THAT(all[at] == ranks * (ranks - 1) / 2 + ranks * at);
    int part = COUNT / ranks;
    MPI_Alltoall(mine, part, MPI_INT, all, part, MPI_INT, MPI_COMM_WORLD);
    for (int at = 0; at < part * ranks; at++)
        THAT(all[at] == at / part + rank * part + at % part);
    MPI_Bcast(mine, COUNT, MPI_INT, ranks - 1, MPI_COMM_WORLD);
    THAT(mine[5] == ranks - 1 + 5);
    free(mine);
    free(all);
}

static void windows(void) {
    enum { COUNT = 10000 };
    long *memory;
    MPI_Win window;
    MPI_Win_allocate(COUNT * sizeof(long), sizeof(long), MPI_INFO_NULL, MPI_COMM_WORLD, &memory,
                     &window);
    memset(memory, 0, COUNT * sizeof(long));
    MPI_Barrier(MPI_COMM_WORLD);
    long *mine = malloc(COUNT * sizeof(long));
    for (int at = 0; at < COUNT; at++)
        mine[at] = rank * 100000 + at;
    int next = (rank + 1) % ranks;
    MPI_Win_lock_all(0, window);
    MPI_Put(mine + 1, COUNT - 1, MPI_LONG, next, 1, COUNT - 1, MPI_LONG, window);
    MPI_Win_flush_all(window);
    long one = 1, before;
    for (int target = 0; target < ranks; target++)
        MPI_Fetch_and_op(&one, &before, MPI_LONG, target, 0, MPI_SUM, window);
    MPI_Win_flush_all(window);
    MPI_Barrier(MPI_COMM_WORLD);
    long *theirs = calloc(COUNT, sizeof(long));
    MPI_Get(theirs, COUNT, MPI_LONG, next, 0, COUNT, MPI_LONG, window);
    MPI_Win_flush_all(window);
    MPI_Win_unlock_all(window);
    THAT(theirs[0] == ranks);
    for (int at = 1; at < COUNT; at++)
        THAT(theirs[at] == mine[at]);
    free(mine);
    free(theirs);
    MPI_Win_free(&window);
}

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    ring();
    collectives();
    windows();
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0)
        printf("%d ranks agree\n", ranks);
    MPI_Finalize();
    return 0;
}
