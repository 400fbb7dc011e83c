// Connects to the agents whose metadata were loaded, and accepts those that have this agent's.

#include "agent.h"

#include "host.h"
#include "log.h"
#include "text.h"

using namespace std::chrono_literals;

namespace {

// After so long without an answer from one address, the next one is tried too (RFC 8305).
constexpr auto attempt_delay = 250ms;

bool is_equal(const metadata::Token &token, const uint8_t *data, size_t length) {
    if (length != token.size())
        return false;
    uint8_t difference = 0;
    for (size_t i = 0; i < length; ++i)
        difference |= token[i] ^ data[i];
    return difference == 0;
}

} // namespace

// Accepts a client that has this agent's metadata.
void Agent::on_requested(zl_connection *connection) {
    uint8_t data[ZL_PRIVATE_DATA_LENGTH];
    size_t length = 0;
    Link &link = links_[connection];
    if (zl_peer_data(connection, data, sizeof data, &length) == ZL_OK && is_equal(token_, data, length)) {
        link.client = std::make_unique<Client>();
        zl_worker_accept_request(worker_, connection, nullptr, 0);
        return;
    }
    logging::info("agent " + name_ + " refused a client that does not have its metadata");
    zl_worker_refuse_request(worker_, connection);
}

void Agent::on_connected(zl_connection *connection) {
    const auto found = links_.find(connection);
    if (found == links_.end() || !found->second.peer)
        return;
    Peer &peer = *found->second.peer;
    std::erase(peer.attempts, connection);
    if (peer.connection)
        return abandon(connection);
    peer.connection = connection;
    peer.messages_sent = 0;
    end_attempts(peer);
    logging::info("agent " + name_ + " is connected to agent " + peer.name);
    peer.queue.push_front({nullptr, std::make_unique<Text>(type_name, name_)});
    pump(peer);
}

void Agent::on_closed(zl_connection *connection, zl_status reason) {
    const auto found = links_.find(connection);
    if (found == links_.end())
        return zl_connection_free(connection);
    Peer *const peer = found->second.peer;
    links_.erase(found);
    zl_connection_free(connection);
    if (!peer)
        return;
    peer->reason = reason;
    if (peer->connection == connection) {
        logging::info("the connection to agent " + peer->name + " is over: " + zl_status_text(reason));
        peer->connection = nullptr;
        return give_up(*peer);
    }
    std::erase(peer->attempts, connection);
    if (!peer->connection)
        attempt_next(*peer);
}

abi::Status Agent::add_peer(const std::string &name, metadata::Contact contact) {
    host::sort_by_nearness(contact.addresses);
    const Visit visit(*this);
    if (const Peer *const known = find(name)) {
        // NIXL forgets a peer without a word if the rest of its metadata is wrong.
        if (known->contact == contact)
            return abi::Status::success;
        remove_peer(name);
    }
    auto peer = std::make_unique<Peer>();
    peer->name = name;
    peer->contact = std::move(contact);
    begin_to_connect(*peers_.emplace(name, std::move(peer)).first->second);
    return abi::Status::success;
}

Agent::Peer *Agent::find(const std::string &name) {
    const auto found = peers_.find(name);
    return found == peers_.end() ? nullptr : found->second.get();
}

abi::Status Agent::connect(const std::string &name) {
    if (name == name_)
        return abi::Status::success;
    const Visit visit(*this);
    Peer *const peer = find(name);
    if (!peer)
        return abi::Status::not_found;
    begin_to_connect(*peer);
    return abi::Status::success;
}

abi::Status Agent::disconnect(const std::string &name) {
    if (name == name_)
        return abi::Status::success;
    const Visit visit(*this);
    if (!find(name))
        return abi::Status::not_found;
    remove_peer(name);
    return abi::Status::success;
}

void Agent::remove_peer(const std::string &name) {
    const auto found = peers_.find(name);
    Peer &peer = *found->second;
    // A copy, because a transfer that is over leaves the list.
    const std::vector<Transfer *> active = active_;
    for (Transfer *const it : active) {
        if (it->agent != name)
            continue;
        if (it->failure == abi::Status::success)
            it->failure = abi::Status::remote_disconnect;
        cancel(*it);
    }
    end_attempts(peer);
    if (peer.connection)
        abandon(peer.connection);
    peers_.erase(found);
}

// Closes a connection; its requests still complete.
void Agent::abandon(zl_connection *connection) {
    Link &link = links_[connection];
    link.peer = nullptr;
    link.client.reset();
    zl_worker_close(worker_, connection);
}

void Agent::end_attempts(Peer &peer) {
    for (zl_connection *const it : peer.attempts)
        abandon(it);
    peer.attempts.clear();
}

void Agent::begin_to_connect(Peer &peer) {
    if (peer.connection || !peer.attempts.empty())
        return;
    peer.next_address = 0;
    attempt_next(peer);
}

// Connects to the next address, if there is one; gives up if nothing is left to hope for.
void Agent::attempt_next(Peer &peer) {
    while (peer.next_address < peer.contact.addresses.size()) {
        const std::string &address = peer.contact.addresses[peer.next_address++];
        const std::unique_ptr<zl_options, decltype(&zl_options_free)> connecting(options(), zl_options_free);
        const auto &token = peer.contact.token;
        require(zl_options_set_private_data(connecting.get(), token.data(), token.size()));
        zl_connection *connection = nullptr;
        peer.reason = ZL_OK;
        if (!peer.contact.key.empty())
            peer.reason = zl_options_trust(connecting.get(), peer.contact.key.c_str());
        for (const std::string &it : settings_.links)
            if (peer.reason == ZL_OK)
                peer.reason = zl_options_add_path(connecting.get(), it.c_str());
        if (peer.reason == ZL_OK)
            peer.reason = zl_worker_connect(worker_, address.c_str(), connecting.get(), &connection);
        if (peer.reason == ZL_OK) {
            peer.attempts.push_back(connection);
            links_[connection].peer = &peer;
            peer.next_attempt = Clock::now() + attempt_delay;
            return;
        }
        logging::info("agent " + peer.name + " cannot be reached at " + address + ": " + zl_last_error());
    }
    if (peer.attempts.empty())
        give_up(peer);
}

void Agent::attempt_late() {
    for (const auto &[name, peer] : peers_)
        if (!peer->attempts.empty() && peer->next_address < peer->contact.addresses.size() &&
            peer->next_attempt <= Clock::now())
            attempt_next(*peer);
}

// How long the driver may wait, in milliseconds; -1 for any time.
int64_t Agent::timeout() const {
    int64_t least = -1;
    for (const auto &[name, peer] : peers_) {
        if (peer->attempts.empty() || peer->next_address >= peer->contact.addresses.size())
            continue;
        const auto left = std::chrono::ceil<std::chrono::milliseconds>(peer->next_attempt - Clock::now()).count();
        least = std::max<int64_t>(least < 0 ? left : std::min(least, left), 0);
    }
    return least;
}

// Fails what waits for a connection that is over or cannot be made.
void Agent::give_up(Peer &peer) {
    if (!peer.queue.empty())
        logging::error("agent " + peer.name + " cannot be reached: " + zl_status_text(peer.reason));
    std::deque<Waiting> queue;
    queue.swap(peer.queue);
    for (const Waiting &it : queue) {
        if (!it.transfer)
            continue;
        it.transfer->is_queued = false;
        it.transfer->next = it.transfer->batches.size();
        if (it.transfer->failure == abi::Status::success)
            it.transfer->failure = abi::Status::remote_disconnect;
        if (it.transfer->in_flight == 0)
            end_post(*it.transfer);
    }
}
