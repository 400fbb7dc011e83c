// An agent: its worker, its connections to other agents, its transfers and notifications.
//
// One thread drives the worker. A thread of the program that enters ends the driver's wait first; one that polls often
// drives the worker itself, while the driver naps. So a program that computes is served, and one that polls does not
// compete with the driver for a core.

#pragma once

#include "abi.h"
#include "memory.h"
#include "metadata.h"
#include "settings.h"

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>
#include <zerolane.h>

class Agent {
  public:
    // Throws std::runtime_error with the reason if it cannot listen.
    Agent(std::string name, const Settings &settings);
    // Waits a moment until notifications have left.
    ~Agent();

    // False in a child of fork, where nothing works.
    bool is_of_this_process() const;

    const std::string &contact() const { return contact_; }
    abi::Status add_memory(uintptr_t base, size_t length, std::shared_ptr<Block> &out);
    void remove_memory(const std::shared_ptr<Block> &block);

    abi::Status add_peer(const std::string &name, metadata::Contact contact);
    abi::Status connect(const std::string &name);
    abi::Status disconnect(const std::string &name);

    abi::Status post(Transfer &transfer, const abi::Arguments *arguments);
    abi::Status check(Transfer &transfer);
    void release(Transfer *transfer);

    abi::Status notify(const std::string &name, const std::string &text);
    void take_notifications(abi::Notifications &out);

  private:

    // A text that is sent in one or more messages.
    struct Text;
    using Clock = std::chrono::steady_clock;

    // What waits for a connection, or for room in it: a transfer or a text.
    struct Waiting {
        Transfer *transfer;
        std::unique_ptr<Text> text;
    };

    // An agent whose metadata was loaded.
    struct Peer {
        std::string name;
        metadata::Contact contact;
        zl_connection *connection = nullptr;
        // Connections being made, to one address each.
        std::vector<zl_connection *> attempts;
        size_t next_address = 0;
        Clock::time_point next_attempt;
        std::deque<Waiting> queue;
        uint64_t messages_sent = 0;
        zl_status reason = ZL_OK;
    };

    // A message that came before an earlier one.
    struct Early {
        uint8_t type;
        std::string data;
    };

    // What a client of this agent has sent.
    struct Client {
        std::string name;
        uint64_t next_message = 0;
        std::map<uint64_t, Early> early;
        size_t early_bytes = 0;
        std::string partial;
    };

    // What is known of a connection: one of `peer` and `client`, or neither for one that is closing.
    struct Link {
        Peer *peer = nullptr;
        std::unique_ptr<Client> client;
        size_t unconfirmed = 0;
    };

    // Holds the worker while a thread of the program is inside.
    class Visit {
      public:
        explicit Visit(Agent &agent);
        ~Visit();
        Visit(const Visit &) = delete;
        Visit &operator=(const Visit &) = delete;

      private:
        Agent &agent_;
    };

    std::string name_;
    Settings settings_;
    metadata::Token token_{};
    std::string contact_;
    unsigned forks_;

    zl_worker *worker_ = nullptr;
    zl_endpoint *endpoint_ = nullptr;
    zl_pool *pool_ = nullptr;
    zl_region *pool_memory_ = nullptr;
    std::vector<zl_event> events_;

    std::mutex lock_;
    // Threads of the program that are inside, or want to be.
    std::atomic<unsigned> visitors_{0};
    std::atomic<bool> driver_waits_{false};
    std::atomic<bool> driver_naps_{false};
    std::atomic<bool> should_nap_{false};
    std::atomic<uint32_t> polls_{0};
    std::atomic<int64_t> polls_since_{0};
    bool driver_is_parked_ = false;
    bool is_stopping_ = false;
    std::condition_variable unvisited_;
    std::condition_variable stopping_;
    std::thread driver_;

    uint32_t next_number_ = 1;
    size_t exports_ = 0;
    std::unordered_map<std::string, std::unique_ptr<Peer>> peers_;
    std::unordered_map<zl_connection *, Link> links_;
    // Posts in progress; each transfer knows its place.
    std::vector<Transfer *> active_;

    abi::Notifications notifications_;
    size_t notification_bytes_ = 0;
    // Memory of messages that is kept back until the program takes notifications.
    std::vector<size_t> kept_back_;
    std::atomic<bool> has_notifications_{false};

    void listen();
    void drive();
    void begin_driver();
    void free_all();
    void count_call();
    void poll();
    void advance();
    void take_events();
    void on_event(const zl_event &event);
    void on_requested(zl_connection *connection);
    void on_connected(zl_connection *connection);
    void on_closed(zl_connection *connection, zl_status reason);
    void on_completion(zl_connection *connection, const zl_completion &completion);
    void on_message(zl_connection *connection, const zl_completion &completion);
    void on_data(zl_connection *connection, Client &client, uint8_t type, std::string data);
    void on_batch(Batch &batch, zl_status status);
    void give_back(size_t piece);

    zl_options *options() const;
    Peer *find(const std::string &name);
    void remove_peer(const std::string &name);
    void begin_to_connect(Peer &peer);
    void attempt_next(Peer &peer);
    void give_up(Peer &peer);
    void attempt_late();
    int64_t timeout() const;
    void abandon(zl_connection *connection);
    void end_attempts(Peer &peer);

    void pump(Peer &peer);
    bool post_batches(Peer &peer, Transfer &transfer);
    bool post_text(Peer &peer, Text &text);
    void begin_post(Transfer &transfer);
    void end_post(Transfer &transfer);
    void cancel(Transfer &transfer);
    void say(Peer &peer, uint8_t type, std::string text);
    void keep(std::string sender, std::string text);
    bool has_unsent() const;
};
