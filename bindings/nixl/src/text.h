// A text on its way to another agent, and the memory for those that come.

#pragma once

#include "agent.h"

#include <stdexcept>

// How long the end of an agent waits for its notifications to arrive, and the end of memory for its transfers.
constexpr std::chrono::seconds patience{2};

// Memory for messages that arrive: pieces of the longest payload that needs no grant, in less than a huge page.
constexpr size_t piece_length = 16 << 10;
constexpr size_t pieces = 56;

// The types of texts: the sender's name, which comes first, and notifications.
constexpr uint8_t type_name = 1, type_notification = 2;
constexpr size_t max_text = 64 << 20;

struct Agent::Text {
    uint8_t type;
    std::shared_ptr<std::string> bytes;
    size_t sent = 0;
    // Of `bytes`, once they are too long for a copy.
    zl_region *region = nullptr;

    Text(uint8_t type, std::string text) : type(type), bytes(std::make_shared<std::string>(std::move(text))) {}
    ~Text() { zl_region_free(region); }
    Text(const Text &) = delete;
    Text &operator=(const Text &) = delete;

    zl_status make_region() {
        auto *const keep = new std::shared_ptr<std::string>(bytes);
        const auto release = [](void *, void *it) { delete static_cast<std::shared_ptr<std::string> *>(it); };
        const zl_status status = zl_region_wrap(bytes->data(), bytes->size(), release, keep, &region);
        if (status < 0)
            delete keep;
        return status;
    }
};

// Throws the library's reason if a call failed.
inline void require(zl_status status) {
    if (status < 0)
        throw std::runtime_error(zl_last_error());
}
