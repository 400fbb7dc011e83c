// Begins and ends an agent, drives its worker, and passes on what happens.

#include "agent.h"

#include "host.h"
#include "log.h"
#include "text.h"

#include <pthread.h>
#include <signal.h>
#include <stdexcept>
#include <sys/random.h>

using namespace std::chrono_literals;

namespace {

// A program that polls so often within the time is left to drive the worker.
constexpr uint32_t often = 16;
constexpr auto often_within = 1ms;
constexpr size_t max_events = 64;

std::atomic<unsigned> forks{0};

void watch_forks() {
    static const int watched = pthread_atfork(nullptr, nullptr, [] { forks.fetch_add(1, std::memory_order_relaxed); });
    if (watched != 0)
        throw std::runtime_error("out of memory");
}

} // namespace

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
    while (has_unsent() && Clock::now() < end && zl_worker_wait(worker_, 20) >= 0) {
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
    pthread_setname_np(pthread_self(), "zl-nixl");
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
            logging::error("the transport of agent " + name_ + " failed: " + zl_last_error());
            is_stopping_ = true;
            for (Transfer *const it : active_)
                it->status.store(abi::Status::backend, std::memory_order_release);
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
