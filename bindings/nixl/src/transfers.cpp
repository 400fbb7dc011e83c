// Registers memory, and moves it: posts transfers and ends them.

#include "agent.h"

#include "log.h"
#include "text.h"

#include <algorithm>
#include <cstring>

namespace {

constexpr uint32_t export_numbers = 1 << 24;
// As many as one connection has: a later one would end.
constexpr size_t max_exports = 65536;
constexpr uint32_t rights = ZL_RIGHT_READ | ZL_RIGHT_WRITE;

// What NIXL is told of a request that failed.
abi::Status failure_of(zl_status status) {
    switch (status) {
    case ZL_ERROR_OUT_OF_BOUNDS:
        return abi::Status::invalid_param;
    case ZL_ERROR_DENIED:
        return abi::Status::not_allowed;
    case ZL_ERROR_UNKNOWN:
    case ZL_ERROR_REVOKED:
        return abi::Status::not_found;
    case ZL_ERROR_CANCELLED:
        return abi::Status::canceled;
    case ZL_ERROR_CLOSED:
    case ZL_ERROR_PEER_DEAD:
    case ZL_ERROR_CONNECT_TIMEOUT:
    case ZL_ERROR_REJECTED:
    case ZL_ERROR_UNTRUSTED:
        return abi::Status::remote_disconnect;
    default:
        return abi::Status::backend;
    }
}

} // namespace

abi::Status Agent::add_memory(uintptr_t base, size_t length, std::shared_ptr<Block> &out) {
    auto block = std::make_shared<Block>();
    block->base = base;
    block->length = length;
    if (zl_region_wrap(reinterpret_cast<void *>(base), length, nullptr, nullptr, &block->region) < 0) {
        logging::error(std::string("memory cannot be registered: ") + zl_last_error());
        return abi::Status::invalid_param;
    }
    count_call();
    const Visit visit(*this);
    if (base % 8 == 0 && length > 0) {
        if (exports_ >= max_exports) {
            logging::error("an agent registers at most 65,536 pieces of memory: register larger ones");
            return abi::Status::not_allowed;
        }
        if (zl_exported_new(block->region, 0, length, &block->exported) < 0) {
            logging::error(std::string("memory cannot be exported: ") + zl_last_error());
            return abi::Status::backend;
        }
        // Numbers that were used long ago may still be used.
        constexpr uint32_t tries = 1 << 16;
        zl_status status = ZL_ERROR_ARGUMENT;
        for (uint32_t i = 0; i < tries && status == ZL_ERROR_ARGUMENT; ++i) {
            block->number = next_number_;
            next_number_ = next_number_ + 1 < export_numbers ? next_number_ + 1 : 1;
            status = zl_worker_export_numbered(worker_, block->number, block->exported, rights);
        }
        if (status < 0) {
            logging::error(std::string("memory cannot be exported: ") + zl_last_error());
            return abi::Status::backend;
        }
        ++exports_;
    }
    out = std::move(block);
    return abi::Status::success;
}

void Agent::remove_memory(const std::shared_ptr<Block> &block) {
    count_call();
    const Visit visit(*this);
    block->is_registered = false;
    if (block->number != 0) {
        zl_worker_revoke_number(worker_, block->number);
        --exports_;
    }
    if (block->users == 0)
        return;
    // A copy, because a transfer that is over leaves the list.
    const std::vector<Transfer *> active = active_;
    for (Transfer *const it : active)
        if (std::find(it->blocks.begin(), it->blocks.end(), block) != it->blocks.end())
            cancel(*it);
    const auto end = Clock::now() + patience;
    while (block->users > 0 && Clock::now() < end) {
        zl_worker_wait(worker_, 10);
        take_events();
    }
    if (block->users > 0)
        logging::error("memory was deregistered while a transfer still uses it");
}

void Agent::on_batch(Batch &batch, zl_status status) {
    Transfer &transfer = *batch.transfer;
    batch.connection = nullptr;
    --transfer.in_flight;
    if (status < 0 && transfer.failure == abi::Status::success) {
        transfer.failure = failure_of(status);
        if (status != ZL_ERROR_CANCELLED)
            logging::error("a transfer with agent " + transfer.agent + " failed: " + zl_status_text(status));
    }
    if (transfer.failure != abi::Status::success)
        transfer.next = transfer.batches.size();
    if (transfer.in_flight == 0 && transfer.next == transfer.batches.size() && !transfer.is_queued)
        end_post(transfer);
}

// Posts what waits, as long as there is room.
void Agent::pump(Peer &peer) {
    while (peer.connection && !peer.queue.empty()) {
        Waiting &first = peer.queue.front();
        if (Transfer *const transfer = first.transfer) {
            if (!post_batches(peer, *transfer))
                return;
            transfer->is_queued = false;
            peer.queue.pop_front();
            if (transfer->in_flight == 0)
                end_post(*transfer);
        } else {
            if (!post_text(peer, *first.text))
                return;
            peer.queue.pop_front();
        }
    }
}

// Posts the rest of a transfer. False if there is no room for it yet.
bool Agent::post_batches(Peer &peer, Transfer &transfer) {
    const bool puts = transfer.operation == abi::Operation::write;
    for (; transfer.next < transfer.batches.size(); ++transfer.next) {
        Batch &batch = transfer.batches[transfer.next];
        zl_work work{};
        work.context = reinterpret_cast<uint64_t>(&batch);
        const zl_piece &first = batch.pieces.front();
        const size_t count = batch.pieces.size();
        zl_status status;
        if (count > 1)
            status = (puts ? zl_post_put_vectored : zl_post_get_vectored)(peer.connection, &batch.key, batch.pieces.data(),
                                                                         count, &work, &batch.id);
        else
            status = (puts ? zl_post_put : zl_post_get)(peer.connection, &batch.key, first.remote_offset, first.region,
                                                        first.offset, first.length, &work, &batch.id);
        if (status == ZL_ERROR_TOO_MANY)
            return false;
        if (status < 0) {
            logging::error("a transfer with agent " + peer.name + " failed: " + zl_last_error());
            transfer.failure = failure_of(status);
            transfer.next = transfer.batches.size();
            return true;
        }
        batch.connection = peer.connection;
        ++transfer.in_flight;
    }
    return true;
}

void Agent::begin_post(Transfer &transfer) {
    transfer.next = 0;
    transfer.failure = abi::Status::success;
    transfer.status.store(abi::Status::in_progress, std::memory_order_relaxed);
    for (const auto &it : transfer.blocks)
        ++it->users;
    transfer.place = active_.size();
    active_.push_back(&transfer);
    transfer.is_active = true;
}

// Ends a post: all its requests are over.
void Agent::end_post(Transfer &transfer) {
    active_.back()->place = transfer.place;
    std::swap(active_[transfer.place], active_.back());
    active_.pop_back();
    transfer.is_active = false;
    for (const auto &it : transfer.blocks)
        --it->users;
    if (transfer.is_released) {
        delete &transfer;
        return;
    }
    abi::Status status = transfer.failure;
    if (status == abi::Status::success && transfer.notifies) {
        if (Peer *const peer = find(transfer.agent))
            say(*peer, type_notification, transfer.notification);
        else
            status = abi::Status::remote_disconnect;
    }
    // From here on another thread may post or release it.
    transfer.status.store(status, std::memory_order_release);
}

abi::Status Agent::post(Transfer &transfer, const abi::Arguments *arguments) {
    count_call();
    const Visit visit(*this);
    if (transfer.is_active)
        return abi::Status::repost_active;
    for (const auto &it : transfer.blocks) {
        if (!it->is_registered) {
            logging::error("a transfer with agent " + transfer.agent + " uses memory that was deregistered");
            return abi::Status::invalid_param;
        }
    }
    transfer.notifies = arguments && arguments->notifies;
    if (transfer.notifies && arguments->notification.size() > max_text) {
        logging::error("a notification has at most 64 MiB");
        return abi::Status::invalid_param;
    }
    if (transfer.notifies)
        transfer.notification = arguments->notification;
    if (transfer.is_local) {
        for (const Copy &it : transfer.copies)
            std::memmove(it.to, it.from, it.length);
        if (transfer.notifies)
            keep(name_, transfer.notification);
        transfer.status.store(abi::Status::success, std::memory_order_release);
        return abi::Status::success;
    }
    Peer *const peer = find(transfer.agent);
    if (!peer)
        return abi::Status::not_found;
    begin_post(transfer);
    if (peer->connection && peer->queue.empty() && post_batches(*peer, transfer)) {
        if (transfer.in_flight == 0)
            end_post(transfer);
    } else {
        transfer.is_queued = true;
        peer->queue.push_back({&transfer, nullptr});
        begin_to_connect(*peer);
    }
    // The first packets leave now, whatever the driver does.
    advance();
    return transfer.status.load(std::memory_order_relaxed);
}

abi::Status Agent::check(Transfer &transfer) {
    const abi::Status status = transfer.status.load(std::memory_order_acquire);
    if (status != abi::Status::in_progress)
        return status;
    poll();
    return transfer.status.load(std::memory_order_acquire);
}

// Cancels what is in progress of a transfer.
void Agent::cancel(Transfer &transfer) {
    if (transfer.failure == abi::Status::success)
        transfer.failure = abi::Status::canceled;
    transfer.next = transfer.batches.size();
    if (transfer.is_queued) {
        transfer.is_queued = false;
        if (Peer *const peer = find(transfer.agent))
            std::erase_if(peer->queue, [&](const Waiting &it) { return it.transfer == &transfer; });
    }
    for (const Batch &it : transfer.batches)
        if (it.connection)
            zl_cancel(it.connection, it.id);
    if (transfer.in_flight == 0 && transfer.is_active)
        end_post(transfer);
}

void Agent::release(Transfer *transfer) {
    const Visit visit(*this);
    if (!transfer->is_active) {
        delete transfer;
        return;
    }
    transfer->is_released = true;
    cancel(*transfer);
}
