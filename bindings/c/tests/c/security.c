/* Tests keys, trust and plain connections. Run by tests/install.rs with its own directory. */
#define _POSIX_C_SOURCE 200809L

#include "expect.h"
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zerolane.h>

struct client {
    char address[ZL_ADDRESS_LENGTH];
    zl_options *options;
    zl_connection *connection;
    zl_status status;
    atomic_int done;
};

static void *join(void *argument)
{
    struct client *client = argument;

    client->status = zl_connect(client->address, client->options, &client->connection);
    atomic_store(&client->done, 1);
    return NULL;
}

/* Connects with `theirs` to an endpoint with `ours`; returns what came of it. */
static zl_status meet(zl_options *ours, zl_options *theirs, char *their_view, char *our_view)
{
    struct client client = {.options = theirs};
    zl_endpoint *endpoint;
    zl_connection *accepted;
    zl_status accept;
    pthread_t thread;

    EXPECT(zl_endpoint_bind("127.0.0.1:0", ours, &endpoint) == ZL_OK);
    EXPECT(zl_endpoint_local_addr(endpoint, client.address, sizeof client.address) == ZL_OK);
    EXPECT(pthread_create(&thread, NULL, join, &client) == 0);
    /* A client that is refused is not waited for. */
    do
        accept = zl_endpoint_accept(endpoint, 20, &accepted);
    while (accept == ZL_TIMEOUT && !atomic_load(&client.done));
    if (accept == ZL_TIMEOUT && client.status == ZL_OK)
        accept = zl_endpoint_accept(endpoint, 10000, &accepted);
    if (accept == ZL_OK) {
        EXPECT(zl_peer_key(accepted, our_view, ZL_PUBLIC_KEY_LENGTH) == ZL_OK);
        zl_connection_free(accepted);
    }
    EXPECT(pthread_join(thread, NULL) == 0);
    zl_endpoint_free(endpoint);
    if (client.status == ZL_OK) {
        EXPECT(zl_peer_key(client.connection, their_view, ZL_PUBLIC_KEY_LENGTH) == ZL_OK);
        zl_connection_free(client.connection);
    }
    return client.status;
}

int main(int count, char **arguments)
{
    zl_options *server, *client, *plain, *authenticated;
    char file[4096], key[ZL_PUBLIC_KEY_LENGTH], again[ZL_PUBLIC_KEY_LENGTH];
    char seen[ZL_PUBLIC_KEY_LENGTH], ours[ZL_PUBLIC_KEY_LENGTH];

    EXPECT(count == 2);
    snprintf(file, sizeof file, "%s/identity", arguments[1]);
    EXPECT(zl_options_new(&server) == ZL_OK && zl_options_new(&client) == ZL_OK);
    EXPECT(zl_options_new(&plain) == ZL_OK);
    EXPECT(zl_options_set(plain, ZL_OPTION_PLAIN, 1) == ZL_OK);
    EXPECT(zl_options_new(&authenticated) == ZL_OK);
    EXPECT(zl_options_set(authenticated, ZL_OPTION_AUTHENTICATED, 1) == ZL_OK);

    /* Protected by default, by keys made for the connection. */
    EXPECT(meet(NULL, NULL, seen, ours) == ZL_OK);
    EXPECT(strlen(seen) == ZL_PUBLIC_KEY_LENGTH - 1 && strcmp(seen, ours) != 0);

    /* Plain only if both ask for it. */
    EXPECT(meet(plain, plain, seen, ours) == ZL_OK && seen[0] == 0 && ours[0] == 0);
    EXPECT(meet(plain, NULL, seen, ours) == ZL_ERROR_REJECTED);
    EXPECT(meet(NULL, plain, seen, ours) == ZL_ERROR_REJECTED);

    /* Nor authenticated alone, which proves keys all the same. */
    EXPECT(meet(authenticated, authenticated, seen, ours) == ZL_OK && strcmp(seen, ours) != 0);
    EXPECT(meet(authenticated, NULL, seen, ours) == ZL_ERROR_REJECTED);
    EXPECT(meet(NULL, authenticated, seen, ours) == ZL_ERROR_REJECTED);

    /* A key is made once, kept, and shown to the peer. */
    EXPECT(zl_options_identity(server, file, key, sizeof key) == ZL_OK);
    EXPECT(zl_options_identity(server, file, again, sizeof again) == ZL_OK);
    EXPECT(strncmp(key, "zl:", 3) == 0 && strcmp(key, again) == 0);
    EXPECT(zl_options_trust(client, "zl:nonsense") == ZL_ERROR_ARGUMENT);
    EXPECT(zl_options_trust(client, key) == ZL_OK);
    EXPECT(meet(server, client, seen, ours) == ZL_OK && strcmp(seen, key) == 0);

    /* No other peer is spoken to. */
    EXPECT(meet(NULL, client, seen, ours) == ZL_ERROR_UNTRUSTED);
    EXPECT(meet(client, NULL, seen, ours) == ZL_ERROR_REJECTED);

    /* Plain connections prove no key. */
    EXPECT(zl_options_set(client, ZL_OPTION_PLAIN, 1) == ZL_OK);
    EXPECT(meet(server, server, seen, ours) == ZL_OK && strcmp(ours, key) == 0);
    zl_connection *connection;
    EXPECT(zl_connect("127.0.0.1:1", client, &connection) == ZL_ERROR_ARGUMENT);

    zl_options_free(server);
    zl_options_free(client);
    zl_options_free(plain);
    zl_options_free(authenticated);
    return 0;
}
