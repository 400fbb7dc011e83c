// Plans transfers from NIXL's lists of descriptors.

#include "memory.h"

#include <algorithm>

namespace {

struct Planned {
    uint32_t number;
    zl_piece piece;
};

bool comes_before(const Planned &a, const Planned &b) {
    return a.number != b.number ? a.number < b.number : a.piece.remote_offset < b.piece.remote_offset;
}

bool continues(const Planned &before, const Planned &it) {
    return before.number == it.number && before.piece.region == it.piece.region &&
           before.piece.offset + before.piece.length == it.piece.offset &&
           before.piece.remote_offset + before.piece.length == it.piece.remote_offset;
}

void use(Transfer &transfer, const std::shared_ptr<Block> &block) {
    // Mostly the same one many times in a row.
    if (transfer.blocks.empty() || transfer.blocks.back() != block)
        transfer.blocks.push_back(block);
}

bool is_within(const metadata::Remote &remote, const abi::Extent &it) {
    return it.address >= remote.base && it.length <= remote.length &&
           it.address - remote.base <= remote.length - it.length;
}

std::string place(size_t index) { return " of descriptor " + std::to_string(index); }

} // namespace

std::unique_ptr<Transfer> plan(abi::Operation operation, const abi::Descriptors &local, const abi::Descriptors &remote,
                               const std::string &agent, bool is_local, std::string &why) {
    if (local.segment != abi::Segment::dram || remote.segment != abi::Segment::dram) {
        why = "only memory of the host can be transferred (DRAM): in vLLM set kv_buffer_device=cpu";
        return nullptr;
    }
    if (local.items.size() != remote.items.size()) {
        why = "the lists have " + std::to_string(local.items.size()) + " and " + std::to_string(remote.items.size()) +
              " descriptors";
        return nullptr;
    }
    auto transfer = std::make_unique<Transfer>();
    transfer->operation = operation;
    transfer->agent = agent;
    transfer->is_local = is_local;
    std::vector<Planned> pieces;
    pieces.reserve(local.items.size());
    for (size_t i = 0; i < local.items.size(); ++i) {
        const abi::Descriptor &here = local.items[i], &there = remote.items[i];
        const auto *const near = static_cast<const LocalMemory *>(here.metadata);
        if (here.length != there.length) {
            why = "the two lengths" + place(i) + " differ";
            return nullptr;
        }
        if (!near || !there.metadata || !near->block->has(here.address, here.length)) {
            why = "the local part" + place(i) + " is outside of registered memory";
            return nullptr;
        }
        use(*transfer, near->block);
        if (is_local) {
            const auto &far = static_cast<const LocalMemory *>(there.metadata)->block;
            if (!far->has(there.address, there.length)) {
                why = "the remote part" + place(i) + " is outside of registered memory";
                return nullptr;
            }
            use(*transfer, far);
            auto *const from = reinterpret_cast<void *>(operation == abi::Operation::write ? here.address : there.address);
            auto *const to = reinterpret_cast<void *>(operation == abi::Operation::write ? there.address : here.address);
            transfer->copies.push_back({to, from, here.length});
            continue;
        }
        const auto &far = *static_cast<const RemoteMemory *>(there.metadata);
        if (far.agent != agent || !is_within(far.remote, there)) {
            why = "the remote part" + place(i) + " is outside of what agent " + agent + " registered";
            return nullptr;
        }
        if (far.remote.number == 0) {
            why = "the remote part" + place(i) + " is in memory that does not begin at a multiple of 8";
            return nullptr;
        }
        const zl_piece piece{there.address - far.remote.base, near->block->region, here.address - near->block->base,
                             here.length};
        if (piece.length > 0)
            pieces.push_back({far.remote.number, piece});
    }
    auto &blocks = transfer->blocks;
    std::sort(blocks.begin(), blocks.end());
    blocks.erase(std::unique(blocks.begin(), blocks.end()), blocks.end());
    if (!std::is_sorted(pieces.begin(), pieces.end(), comes_before))
        std::stable_sort(pieces.begin(), pieces.end(), comes_before);
    for (size_t i = 0; i < pieces.size(); ++i) {
        if (i == 0 || pieces[i - 1].number != pieces[i].number) {
            zl_key key;
            if (zl_key_numbered(pieces[i].number, 0, &key) != ZL_OK) {
                why = zl_last_error();
                return nullptr;
            }
            transfer->batches.push_back({transfer.get(), key, {}, 0, nullptr});
        } else if (continues(pieces[i - 1], pieces[i])) {
            auto &last = transfer->batches.back().pieces.back();
            last.length += pieces[i].piece.length;
            continue;
        }
        transfer->batches.back().pieces.push_back(pieces[i].piece);
    }
    return transfer;
}
