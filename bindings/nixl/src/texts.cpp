// Sends and receives notifications: texts of any length, in order, in messages.

#include "agent.h"

#include "log.h"
#include "text.h"

#include <algorithm>
#include <cstring>

namespace {

// The start of a message's control: type, whether more of the text follows, and the message's number.
constexpr size_t header_length = 16;
constexpr size_t header_number = 8;
constexpr size_t data_in_control = ZL_CONTROL_LENGTH - header_length;

// Bounds of what a client makes this agent keep.
constexpr size_t max_early = 4 << 20;
constexpr size_t max_notifications = 256 << 20;

} // namespace

void Agent::on_message(zl_connection *connection, const zl_completion &completion) {
    const size_t piece = completion.context;
    const auto found = links_.find(connection);
    const size_t length = std::min<size_t>(completion.length, piece_length);
    if (completion.status != ZL_OK || found == links_.end() || !found->second.client)
        return give_back(piece);
    const uint8_t *const control = completion.control;
    const auto *const payload = static_cast<const char *>(zl_region_data(pool_memory_)) + piece * piece_length;
    std::string data;
    uint64_t number = 0;
    const bool is_whole = completion.control_length >= header_length;
    if (is_whole) {
        for (size_t i = 0; i < sizeof number; ++i)
            number |= static_cast<uint64_t>(control[header_number + i]) << (8 * i);
        data.reserve(completion.control_length - header_length + length);
        data.assign(reinterpret_cast<const char *>(control) + header_length, completion.control_length - header_length);
        data.append(payload, length);
    }
    give_back(piece);
    Client &client = *found->second.client;
    // The lowest bit of the type says that more of the text follows.
    const uint8_t type = is_whole ? control[0] : 0;
    if (!is_whole || number < client.next_message || client.early_bytes + data.size() > max_early) {
        logging::error("a client of agent " + name_ + " broke the rules: disconnected");
        return abandon(connection);
    }
    // Of two messages, the one without payload may complete first.
    client.early_bytes += data.size() + sizeof(Early);
    client.early.emplace(number, Early{type, std::move(data)});
    for (auto next = client.early.begin();
         next != client.early.end() && next->first == client.next_message && found->second.client;
         next = client.early.begin()) {
        Early early = std::move(next->second);
        client.early.erase(next);
        client.early_bytes -= early.data.size() + sizeof(Early);
        ++client.next_message;
        on_data(connection, client, early.type, std::move(early.data));
        if (!links_[connection].client)
            return;
    }
}

void Agent::on_data(zl_connection *connection, Client &client, uint8_t type, std::string data) {
    if (client.partial.size() + data.size() > max_text) {
        logging::error("a client of agent " + name_ + " sent too long a notification: disconnected");
        return abandon(connection);
    }
    client.partial += data;
    if (type & 1)
        return;
    std::string text;
    text.swap(client.partial);
    if (type >> 1 == type_name)
        client.name = std::move(text);
    else if (type >> 1 == type_notification)
        keep(client.name, std::move(text));
}

// Adds memory for a message to the pool.
void Agent::give_back(size_t piece) {
    if (notification_bytes_ > max_notifications) {
        kept_back_.push_back(piece);
        return;
    }
    if (zl_pool_add(pool_, pool_memory_, piece * piece_length, piece_length, piece) < 0)
        logging::error(std::string("agent ") + name_ + " lost memory for notifications: " + zl_last_error());
}

void Agent::keep(std::string sender, std::string text) {
    notification_bytes_ += sender.size() + text.size() + sizeof(abi::Notifications::value_type);
    notifications_.emplace_back(std::move(sender), std::move(text));
    has_notifications_.store(true, std::memory_order_release);
}

// Posts the rest of a text, in messages. False if there is no room for it yet.
bool Agent::post_text(Peer &peer, Text &text) {
    const size_t length = text.bytes->size();
    do {
        const size_t left = length - text.sent;
        const size_t in_control = std::min(left, data_in_control);
        const size_t in_payload = std::min(left - in_control, piece_length);
        const bool continues = in_control + in_payload < left;
        uint8_t control[ZL_CONTROL_LENGTH] = {};
        control[0] = static_cast<uint8_t>(text.type << 1 | continues);
        for (size_t i = 0; i < sizeof peer.messages_sent; ++i)
            control[header_number + i] = static_cast<uint8_t>(peer.messages_sent >> (8 * i));
        std::memcpy(control + header_length, text.bytes->data() + text.sent, in_control);
        const size_t control_length = header_length + in_control, payload = text.sent + in_control;
        zl_status status = ZL_OK;
        if (in_payload <= ZL_INLINE_LENGTH) {
            status = zl_post_message_inline(peer.connection, control, control_length, text.bytes->data() + payload,
                                            in_payload, nullptr, nullptr);
        } else {
            if (!text.region)
                status = text.make_region();
            if (status == ZL_OK)
                status = zl_post_message(peer.connection, control, control_length, text.region, payload, in_payload,
                                         nullptr, nullptr);
        }
        if (status == ZL_ERROR_TOO_MANY)
            return false;
        if (status < 0) {
            logging::error("a notification to agent " + peer.name + " was lost: " + zl_last_error());
            return true;
        }
        text.sent += in_control + in_payload;
        ++peer.messages_sent;
        ++links_[peer.connection].unconfirmed;
    } while (text.sent < length);
    return true;
}

// Sends a text, behind all that waits.
void Agent::say(Peer &peer, uint8_t type, std::string text) {
    peer.queue.push_back({nullptr, std::make_unique<Text>(type, std::move(text))});
    begin_to_connect(peer);
    pump(peer);
}

abi::Status Agent::notify(const std::string &name, const std::string &text) {
    if (text.size() > max_text) {
        logging::error("a notification has at most 64 MiB");
        return abi::Status::invalid_param;
    }
    count_call();
    const Visit visit(*this);
    if (name == name_) {
        keep(name_, text);
        return abi::Status::success;
    }
    Peer *const peer = find(name);
    if (!peer)
        return abi::Status::not_found;
    say(*peer, type_notification, text);
    advance();
    return abi::Status::success;
}

void Agent::take_notifications(abi::Notifications &out) {
    poll();
    if (!has_notifications_.load(std::memory_order_acquire))
        return;
    const Visit visit(*this);
    out.insert(out.end(), std::make_move_iterator(notifications_.begin()), std::make_move_iterator(notifications_.end()));
    notifications_.clear();
    notification_bytes_ = 0;
    has_notifications_.store(false, std::memory_order_relaxed);
    const std::vector<size_t> back = std::move(kept_back_);
    kept_back_.clear();
    for (const size_t piece : back)
        give_back(piece);
}

bool Agent::has_unsent() const {
    for (const auto &[connection, link] : links_)
        if (link.unconfirmed > 0)
            return true;
    for (const auto &[name, peer] : peers_)
        if (!peer->queue.empty())
            return true;
    return false;
}
