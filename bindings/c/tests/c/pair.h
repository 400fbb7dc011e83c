/* Makes two connections joined on loopback. */
#ifndef PAIR_H
#define PAIR_H

#include "expect.h"
#include <pthread.h>

/* A thread that connects to `address`; what it returns is the connection. */
static void *connect_to(void *address)
{
    static zl_connection *connection;

    EXPECT(zl_connect(address, NULL, &connection) == ZL_OK);
    return connection;
}

static void connect_pair(zl_connection **ours, zl_connection **peers)
{
    zl_endpoint *endpoint;
    char address[ZL_ADDRESS_LENGTH];
    pthread_t thread;
    void *connected;

    EXPECT(zl_endpoint_bind("127.0.0.1:0", NULL, &endpoint) == ZL_OK);
    EXPECT(zl_endpoint_local_addr(endpoint, address, sizeof address) == ZL_OK);
    EXPECT(pthread_create(&thread, NULL, connect_to, address) == 0);
    EXPECT(zl_endpoint_accept(endpoint, 10000, peers) == ZL_OK);
    EXPECT(pthread_join(thread, &connected) == 0);
    *ours = connected;
    zl_endpoint_free(endpoint);
}

#endif
