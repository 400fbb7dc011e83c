/* Tests deprecated names, which the next release removes: each still works. Run by tests/install.rs. */
#include <stdlib.h>
#include <string.h>
#include <zerolane.h>

#define EXPECT(condition)                                                                          \
    do {                                                                                           \
        if (!(condition))                                                                          \
            return __LINE__ % 251 + 1;                                                             \
    } while (0)

int main(void)
{
    zl_endpoint *endpoint;
    zl_region *region;
    char text[ZL_ADDRESS_LENGTH];
    zl_key key = {{0}};
    size_t length;
    uint64_t before;
    uint64_t id;

    EXPECT(zl_endpoint_bind("127.0.0.1:0", NULL, &endpoint) == ZL_OK);
    EXPECT(zl_endpoint_address(endpoint, text, sizeof text) == ZL_OK && strchr(text, ':') != NULL);
    EXPECT(zl_endpoint_key(endpoint, text, sizeof text) == ZL_OK && strncmp(text, "zl:", 3) == 0);
    zl_endpoint_free(endpoint);
    EXPECT(zl_region_new(8, &region) == ZL_OK);
    EXPECT(zl_receive(NULL, text, 1, &length) == ZL_ERROR_ARGUMENT);
    EXPECT(zl_post_receive(NULL, region, 0, 8, &id) == ZL_ERROR_ARGUMENT);
    EXPECT(zl_post_send_with(NULL, region, 0, 8, ZL_DELIVERY_POLLED, &id) == ZL_ERROR_ARGUMENT);
    EXPECT(zl_receive_message(NULL, text, &length, NULL, 0, &length) == ZL_ERROR_ARGUMENT);
    EXPECT(zl_post_message_receive(NULL, region, 0, 8, &id) == ZL_ERROR_ARGUMENT);
    EXPECT(zl_fetch(NULL, &key, 0, ZL_FETCH_ADD, 1, 0, &before) == ZL_ERROR_ARGUMENT);
    EXPECT(zl_post_fetch(NULL, &key, 0, ZL_FETCH_ADD, 1, 0, NULL, &id) == ZL_ERROR_ARGUMENT);
    EXPECT(zl_post_put_pieces(NULL, &key, NULL, 0, NULL, &id) == ZL_ERROR_ARGUMENT);
    EXPECT(zl_post_get_pieces(NULL, &key, NULL, 0, NULL, &id) == ZL_ERROR_ARGUMENT);
    EXPECT(zl_open(NULL, "name", ZL_RIGHT_READ, &key) == ZL_ERROR_ARGUMENT);
    EXPECT(zl_peer_address(NULL, text, sizeof text) == ZL_ERROR_ARGUMENT);
    EXPECT(zl_set_queue(NULL, NULL, 0) == ZL_ERROR_ARGUMENT);
    zl_region_free(region);
    return EXIT_SUCCESS;
}
