// The options of an engine.

#pragma once

#include "abi.h"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

struct Settings {
    // "host:port"; empty: any free port of all interfaces.
    std::string listen;
    // Addresses that other agents are told, without ports; none: those of the interfaces.
    std::vector<std::string> advertise;
    // encrypted, authenticated or plain.
    std::string security;
    // best or udp.
    std::string lane;
    uint64_t paths;
    // Paths besides the first, as zl_options_add_path takes them.
    std::vector<std::string> links;
    bool path_threads;
    uint64_t spin_us;
    uint64_t idle_timeout_ms;
};

// All options with their defaults: what the environment says (ZEROLANE_NIXL_ and the name in capitals), or else ours.
abi::Parameters default_parameters();

// Nothing, with the reason in the log, if a value is wrong. Unknown options are logged and do nothing.
std::optional<Settings> read_settings(const abi::Parameters &given);
