// Writes and reads what agents tell each other by NIXL's metadata: how to connect, and which memory is registered.

#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace metadata {

// Proves to an agent that a client has its metadata.
using Token = std::array<uint8_t, 16>;

// How to reach an agent.
struct Contact {
    // The agent's public key; empty if its connections are plain.
    std::string key;
    Token token{};
    // The kernel and its network namespace: equal for agents that can use shared memory.
    std::string host;
    // "host:port", the most useful first.
    std::vector<std::string> addresses;

    bool operator==(const Contact &) const = default;
};

// Memory of another agent.
struct Remote {
    uint64_t base;
    uint64_t length;
    // The number of its export; 0 if it is not exported.
    uint32_t number;
};

std::string write(const Contact &contact);
// Nothing, with the reason in `why`, unless `text` is a whole contact of this version.
std::optional<Contact> read_contact(std::string_view text, std::string &why);

std::string write(const Remote &remote);
std::optional<Remote> read_remote(std::string_view text, std::string &why);

// Addresses of one agent that another one tries at most.
constexpr size_t max_addresses = 16;

} // namespace metadata
