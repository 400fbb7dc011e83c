// Memory of this agent and of others, and transfers between the two.

#pragma once

#include "abi.h"
#include "metadata.h"

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>
#include <zerolane.h>

// Registered memory. The library keeps it while a transfer uses it.
struct Block {
    uintptr_t base = 0;
    size_t length = 0;
    zl_region *region = nullptr;
    zl_exported *exported = nullptr;
    // Of the export; 0 if there is none.
    uint32_t number = 0;
    // Transfers in progress that read or write it.
    unsigned users = 0;
    bool is_registered = true;

    Block() = default;
    ~Block() {
        zl_exported_free(exported);
        zl_region_free(region);
    }
    Block(const Block &) = delete;
    Block &operator=(const Block &) = delete;

    bool has(uintptr_t address, size_t bytes) const {
        return address >= base && bytes <= length && address - base <= length - bytes;
    }
};

// What NIXL gets for registered memory, as the near and as the far end of a transfer.
struct LocalMemory final : abi::Metadata {
    explicit LocalMemory(std::shared_ptr<Block> of) : Metadata(true), block(std::move(of)) {}
    std::shared_ptr<Block> block;
};

// What NIXL gets for memory of another agent.
struct RemoteMemory final : abi::Metadata {
    RemoteMemory(std::string of, const metadata::Remote &it) : Metadata(false), agent(std::move(of)), remote(it) {}
    std::string agent;
    metadata::Remote remote;
};

struct Transfer;

// The part of a transfer that one post does: all pieces in one exported region of the other agent.
struct Batch {
    Transfer *transfer;
    zl_key key;
    std::vector<zl_piece> pieces;
    uint64_t id;
    // Where it is posted; null while it is not.
    zl_connection *connection;
};

// A piece of a transfer of an agent with itself.
struct Copy {
    void *to;
    const void *from;
    size_t length;
};

// A transfer that can be posted again and again.
struct Transfer final : abi::Request {
    abi::Operation operation{};
    std::string agent;
    std::vector<std::shared_ptr<Block>> blocks;
    std::vector<Batch> batches;
    std::vector<Copy> copies;
    bool is_local = false;

    // The rest is of the post in progress, or of the last one.
    std::atomic<abi::Status> status{abi::Status::not_posted};
    abi::Status failure = abi::Status::success;
    size_t next = 0;
    size_t in_flight = 0;
    bool is_queued = false;
    bool is_active = false;
    // Its place among the agent's posts in progress.
    size_t place = 0;
    bool is_released = false;
    bool notifies = false;
    std::string notification;
};

// Plans a transfer: sorts and joins the descriptors. Null, with the reason in `why`, if one is wrong.
std::unique_ptr<Transfer> plan(abi::Operation operation, const abi::Descriptors &local, const abi::Descriptors &remote,
                               const std::string &agent, bool is_local, std::string &why);
