// Drives an agent's worker, and does what its events and the program's calls ask for.

#include "agent.h"

#include "host.h"
#include "log.h"

#include <algorithm>
#include <cstring>
#include <pthread.h>
#include <signal.h>
#include <stdexcept>
#include <sys/random.h>

using namespace std::chrono_literals;

namespace {

// A program that polls so often within the time is left to drive the worker.
constexpr uint32_t often = 16;
constexpr auto often_within = 1ms;
// After so long without an answer from one address, the next one is tried too (RFC 8305).
constexpr auto attempt_delay = 250ms;
// How long the end of an agent waits for its notifications to arrive, and the end of memory for its transfers.
constexpr auto patience = 2s;

// Memory for messages that arrive: pieces of the longest payload that needs no grant, in less than a huge page.
constexpr size_t piece_length = 16 << 10;
constexpr size_t pieces = 56;

// The start of a message's control: type, whether more of the text follows, and the message's number.
constexpr size_t header_length = 16;
constexpr size_t header_number = 8;
constexpr size_t data_in_control = ZL_CONTROL_LENGTH - header_length;
constexpr uint8_t type_name = 1, type_notification = 2;

// Bounds of what a client makes this agent keep.
constexpr size_t max_text = 64 << 20;
constexpr size_t max_early = 4 << 20;
constexpr size_t max_notifications = 256 << 20;
constexpr size_t max_events = 64;

constexpr uint32_t export_numbers = 1 << 24;
constexpr uint32_t rights = ZL_RIGHT_READ | ZL_RIGHT_WRITE;

std::atomic<unsigned> forks{0};

void watch_forks() {
    static const int watched = pthread_atfork(nullptr, nullptr, [] { forks.fetch_add(1, std::memory_order_relaxed); });
    if (watched != 0)
        throw std::runtime_error("out of memory");
}

void require(zl_status status) {
    if (status < 0)
        throw std::runtime_error(zl_last_error());
}

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

bool is_equal(const metadata::Token &token, const uint8_t *data, size_t length) {
    if (length != token.size())
        return false;
    uint8_t difference = 0;
    for (size_t i = 0; i < length; ++i)
        difference |= token[i] ^ data[i];
    return difference == 0;
}

} // namespace

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

Agent::Visit::Visit(Agent &agent) : agent_(agent) {
    agent_.visitors_.fetch_add(1);
    if (agent_.driver_waits_.load())
        zl_worker_wake(agent_.worker_);
    agent_.lock_.lock();
}

Agent::Visit::~Visit() {
    const bool ends = agent_.visitors_.fetch_sub(1) == 1 && agent_.driver_is_parked_;
    agent_.lock_.unlock();
    if (ends)
        agent_.unvisited_.notify_one();
}

Agent::Agent(std::string name, const Settings &settings) : name_(std::move(name)), settings_(settings) {
    watch_forks();
    forks_ = forks.load(std::memory_order_relaxed);
    if (getrandom(token_.data(), token_.size(), 0) != static_cast<ssize_t>(token_.size()))
        throw std::runtime_error("the system has no random numbers");
    events_.resize(max_events);
    try {
        listen();
        begin_driver();
    } catch (...) {
        free_all();
        throw;
    }
}

Agent::~Agent() {
    {
        const Visit visit(*this);
        is_stopping_ = true;
    }
    stopping_.notify_one();
    unvisited_.notify_one();
    driver_.join();
    const auto end = Clock::now() + patience;
    while (has_unsent() && Clock::now() < end) {
        zl_worker_wait(worker_, 20);
        take_events();
        attempt_late();
    }
    free_all();
    for (Transfer *const it : active_)
        if (it->is_released)
            delete it;
}

bool Agent::is_of_this_process() const { return forks.load(std::memory_order_relaxed) == forks_; }

void Agent::free_all() {
    for (const auto &[connection, link] : links_) {
        if (logging::shows_info() && (link.peer || link.client)) {
            char account[8192];
            if (zl_account_json(connection, account, sizeof account, nullptr) == ZL_OK)
                logging::info("account of a connection of agent " + name_ + ": " + account);
        }
        zl_connection_free(connection);
    }
    zl_endpoint_free(endpoint_);
    zl_worker_free(worker_);
    zl_pool_free(pool_);
    zl_region_free(pool_memory_);
}

// The options of a connection, or of the endpoint: the caller frees them.
zl_options *Agent::options() const {
    zl_options *options = nullptr;
    require(zl_options_new(&options));
    const auto set = [&](uint32_t option, uint64_t value) { require(zl_options_set(options, option, value)); };
    try {
        set(ZL_OPTION_LANE, settings_.lane == "udp" ? ZL_LANE_UDP : ZL_LANE_BEST);
        set(ZL_OPTION_IDLE_TIMEOUT_MS, settings_.idle_timeout_ms);
        set(ZL_OPTION_CONNECT_TIMEOUT_MS, settings_.idle_timeout_ms);
        // The driver answers for a program that computes; a client that was killed must not stay for ever.
        set(ZL_OPTION_KEEP_ALIVE, 1);
        set(ZL_OPTION_PATHS, settings_.paths);
        set(ZL_OPTION_PATH_THREADS, settings_.path_threads);
        if (settings_.security == "plain")
            set(ZL_OPTION_PLAIN, 1);
        if (settings_.security == "authenticated")
            set(ZL_OPTION_AUTHENTICATED, 1);
    } catch (...) {
        zl_options_free(options);
        throw;
    }
    return options;
}

void Agent::listen() {
    require(zl_worker_new(&worker_));
    require(zl_worker_set_spin(worker_, static_cast<uint32_t>(settings_.spin_us)));
    std::vector<std::string> hosts = settings_.advertise;
    std::string on = settings_.listen;
    if (hosts.empty() && on.empty()) {
        hosts = host::addresses();
        // Those of IPv4 come first.
        const bool has_ipv4 = !hosts.empty() && hosts.front().find(':') == std::string::npos;
        on = has_ipv4 || hosts.empty() ? "0.0.0.0:0" : "[::]:0";
        std::erase_if(hosts, [&](const std::string &it) { return has_ipv4 && it.find(':') != it.npos; });
        if (hosts.empty())
            hosts.emplace_back("127.0.0.1");
    }
    if (on.empty())
        on = "0.0.0.0:0";
    const std::unique_ptr<zl_options, decltype(&zl_options_free)> listening(options(), zl_options_free);
    require(zl_options_set(listening.get(), ZL_OPTION_ASKS, 1));
    require(zl_worker_listen(worker_, on.c_str(), listening.get(), &endpoint_));
    require(zl_pool_new(&pool_));
    require(zl_region_new(pieces * piece_length, &pool_memory_));
    for (size_t piece = 0; piece < pieces; ++piece)
        give_back(piece);
    require(zl_worker_share_receives(worker_, pool_));

    metadata::Contact contact;
    char text[ZL_ADDRESS_LENGTH], key[ZL_PUBLIC_KEY_LENGTH];
    require(zl_endpoint_local_addr(endpoint_, text, sizeof text));
    require(zl_endpoint_public_key(endpoint_, key, sizeof key));
    const std::string local = text;
    const size_t colon = local.rfind(':');
    if (hosts.empty())
        hosts.push_back(local.substr(0, colon));
    if (hosts.size() > metadata::max_addresses)
        hosts.resize(metadata::max_addresses);
    for (const std::string &it : hosts) {
        const bool is_bare_ipv6 = it.find(':') != it.npos && it.front() != '[';
        contact.addresses.push_back((is_bare_ipv6 ? "[" + it + "]" : it) + local.substr(colon));
    }
    contact.key = key;
    contact.token = token_;
    contact.host = host::identity();
    contact_ = metadata::write(contact);
    std::string why;
    if (!metadata::read_contact(contact_, why))
        throw std::runtime_error("the option advertise, or the address to listen on, is not numeric");
}

void Agent::begin_driver() {
    // Signals are for the program's threads.
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    try {
        driver_ = std::thread([this] { drive(); });
    } catch (...) {
        pthread_sigmask(SIG_SETMASK, &before, nullptr);
        throw;
    }
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

void Agent::drive() {
    std::unique_lock lock(lock_);
    while (!is_stopping_) {
        if (visitors_.load() > 0) {
            driver_is_parked_ = true;
            unvisited_.wait(lock, [this] { return visitors_.load() == 0 || is_stopping_; });
            driver_is_parked_ = false;
            continue;
        }
        if (should_nap_.exchange(false)) {
            driver_naps_.store(true);
            uint32_t polls;
            do {
                polls = polls_.load(std::memory_order_relaxed);
                stopping_.wait_for(lock, often_within, [this] { return is_stopping_; });
            } while (!is_stopping_ && polls_.load(std::memory_order_relaxed) - polls >= often);
            driver_naps_.store(false);
            continue;
        }
        driver_waits_.store(true);
        if (visitors_.load() == 0 && !should_nap_.load() && zl_worker_wait(worker_, timeout()) < 0) {
            logging::error(std::string("the transport failed: ") + zl_last_error());
            is_stopping_ = true;
        }
        driver_waits_.store(false);
        try {
            take_events();
            attempt_late();
        } catch (const std::exception &error) {
            logging::error(std::string("agent ") + name_ + ": " + error.what());
        }
    }
}

// Counts a call of the program, which may then drive the worker itself.
void Agent::count_call() {
    if (polls_.fetch_add(1, std::memory_order_relaxed) % often == often - 1 && !driver_naps_.load()) {
        const int64_t now = Clock::now().time_since_epoch().count();
        const auto passed = Clock::duration(now - polls_since_.exchange(now));
        if (passed < often_within) {
            should_nap_.store(true);
            if (driver_waits_.load())
                zl_worker_wake(worker_);
        }
    }
}

// Makes progress if the driver naps.
void Agent::poll() {
    count_call();
    if (driver_naps_.load() && lock_.try_lock()) {
        const std::lock_guard held(lock_, std::adopt_lock);
        advance();
    }
}

void Agent::advance() {
    constexpr int rounds = 8;
    for (int round = 0; round < rounds; ++round) {
        const zl_status status = zl_worker_progress(worker_);
        take_events();
        if (status != ZL_READY)
            break;
    }
    attempt_late();
}

void Agent::take_events() {
    size_t count = 0;
    while (zl_worker_events(worker_, events_.data(), events_.size(), &count) == ZL_OK) {
        for (size_t i = 0; i < count; ++i)
            on_event(events_[i]);
        if (count < events_.size())
            break;
    }
}

void Agent::on_event(const zl_event &event) {
    switch (event.kind) {
    case ZL_EVENT_REQUESTED:
        return on_requested(event.connection);
    case ZL_EVENT_CONNECTED:
        return on_connected(event.connection);
    case ZL_EVENT_COMPLETED:
        return on_completion(event.connection, event.completion);
    case ZL_EVENT_CLOSED:
        return on_closed(event.connection, event.status);
    case ZL_EVENT_ENDPOINT_FAILED:
        return logging::error("agent " + name_ + " cannot be reached any more: " + zl_status_text(event.status));
    default:
        return;
    }
}

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

void Agent::on_completion(zl_connection *connection, const zl_completion &completion) {
    switch (completion.kind) {
    case ZL_KIND_PUT:
    case ZL_KIND_GET:
        on_batch(*reinterpret_cast<Batch *>(completion.context), completion.status);
        break;
    case ZL_KIND_MESSAGE:
        if (const auto found = links_.find(connection); found != links_.end() && found->second.unconfirmed > 0)
            --found->second.unconfirmed;
        break;
    case ZL_KIND_MESSAGE_RECEIVED:
        return on_message(connection, completion);
    default:
        return;
    }
    // There is room now.
    if (const auto found = links_.find(connection); found != links_.end() && found->second.peer)
        pump(*found->second.peer);
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
    }
    out = std::move(block);
    return abi::Status::success;
}

void Agent::remove_memory(const std::shared_ptr<Block> &block) {
    count_call();
    const Visit visit(*this);
    block->is_registered = false;
    if (block->number != 0)
        zl_worker_revoke_number(worker_, block->number);
    if (block->users == 0)
        return;
    const std::vector<Transfer *> active(active_.begin(), active_.end());
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
    const std::vector<Transfer *> active(active_.begin(), active_.end());
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
        uint64_t id;
        zl_status status = ZL_OK;
        if (in_payload <= ZL_INLINE_LENGTH) {
            status = zl_post_message_inline(peer.connection, control, control_length, text.bytes->data() + payload,
                                            in_payload, nullptr, &id);
        } else {
            if (!text.region)
                status = text.make_region();
            if (status == ZL_OK)
                status = zl_post_message(peer.connection, control, control_length, text.region, payload, in_payload,
                                         nullptr, &id);
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

// Ends a post: all its requests are over.
void Agent::end_post(Transfer &transfer) {
    if (active_.erase(&transfer) > 0)
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

// Sends a text, behind all that waits.
void Agent::say(Peer &peer, uint8_t type, std::string text) {
    peer.queue.push_back({nullptr, std::make_unique<Text>(type, std::move(text))});
    begin_to_connect(peer);
    pump(peer);
}

abi::Status Agent::post(Transfer &transfer, const abi::Arguments *arguments) {
    count_call();
    const Visit visit(*this);
    if (active_.contains(&transfer))
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
    transfer.next = 0;
    transfer.failure = abi::Status::success;
    transfer.status.store(abi::Status::in_progress, std::memory_order_relaxed);
    for (const auto &it : transfer.blocks)
        ++it->users;
    active_.insert(&transfer);
    transfer.is_queued = true;
    peer->queue.push_back({&transfer, nullptr});
    begin_to_connect(*peer);
    pump(*peer);
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
    if (transfer.in_flight == 0 && active_.contains(&transfer))
        end_post(transfer);
}

void Agent::release(Transfer *transfer) {
    const Visit visit(*this);
    if (!active_.contains(transfer)) {
        delete transfer;
        return;
    }
    transfer->is_released = true;
    cancel(*transfer);
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
