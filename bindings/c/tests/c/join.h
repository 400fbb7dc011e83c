/* Waits for a thread and makes progress meanwhile. */
#ifndef JOIN_H
#define JOIN_H

#include "expect.h"
#include <pthread.h>

/*
 * Joins `thread`, which has the other end of `connection`: an acknowledgment that was lost is sent again by calls of this
 * thread alone. Needs _GNU_SOURCE.
 */
static void join_serving(pthread_t thread, zl_connection *connection)
{
    zl_completion completion;

    while (pthread_tryjoin_np(thread, NULL) != 0)
        zl_wait(connection, 1, &completion);
}

#endif
