// Reads the options of an engine from NIXL's parameters and the environment.

#include "settings.h"

#include "log.h"

#include <charconv>
#include <cstdlib>

namespace {

struct Option {
    const char *name;
    const char *value;
};

constexpr Option options[] = {
    {"listen", ""}, {"advertise", ""},    {"security", "encrypted"}, {"lane", "best"},
    {"paths", "1"}, {"path_threads", "0"}, {"links", ""},            {"spin_us", "50"},
    {"idle_timeout_ms", "15000"},
};

std::string environment_name(const std::string &option) {
    std::string name = "ZEROLANE_NIXL_";
    for (const char it : option)
        name += it >= 'a' && it <= 'z' ? static_cast<char>(it - 'a' + 'A') : it;
    return name;
}

std::vector<std::string> split(const std::string &text) {
    std::vector<std::string> parts;
    for (size_t start = 0; start < text.size();) {
        const size_t end = std::min(text.find(',', start), text.size());
        if (end > start)
            parts.push_back(text.substr(start, end - start));
        start = end + 1;
    }
    return parts;
}

bool read_number(const abi::Parameters &all, const char *name, uint64_t least, uint64_t most, uint64_t &number) {
    const std::string &text = all.at(name);
    const char *const end = text.data() + text.size();
    const auto [stop, error] = std::from_chars(text.data(), end, number);
    if (error == std::errc{} && stop == end && number >= least && number <= most)
        return true;
    logging::error("option " + std::string(name) + " is '" + text + "': it must be a number from " +
                   std::to_string(least) + " to " + std::to_string(most));
    return false;
}

bool is_one_of(const std::string &name, const std::string &value, std::initializer_list<const char *> choices) {
    std::string list;
    for (const char *const it : choices) {
        if (value == it)
            return true;
        list += (list.empty() ? "" : ", ") + std::string(it);
    }
    logging::error("option " + name + " is '" + value + "': it must be one of " + list);
    return false;
}

} // namespace

abi::Parameters default_parameters() {
    abi::Parameters all;
    for (const auto &[name, value] : options) {
        const char *const set = std::getenv(environment_name(name).c_str());
        all.emplace(name, set ? set : value);
    }
    return all;
}

std::optional<Settings> read_settings(const abi::Parameters &given) {
    abi::Parameters all = default_parameters();
    for (const auto &[name, value] : given) {
        const auto option = all.find(name);
        if (option == all.end())
            logging::error("there is no option '" + name + "': ignored");
        else
            option->second = value;
    }
    Settings settings{};
    settings.listen = all.at("listen");
    settings.advertise = split(all.at("advertise"));
    settings.security = all.at("security");
    settings.lane = all.at("lane");
    settings.links = split(all.at("links"));
    uint64_t path_threads = 0;
    if (!is_one_of("security", settings.security, {"encrypted", "authenticated", "plain"}) ||
        !is_one_of("lane", settings.lane, {"best", "udp"}) || !read_number(all, "paths", 1, 8, settings.paths) ||
        !read_number(all, "path_threads", 0, 1, path_threads) ||
        !read_number(all, "spin_us", 0, 1000000, settings.spin_us) ||
        !read_number(all, "idle_timeout_ms", 1000, 3600000, settings.idle_timeout_ms))
        return {};
    settings.path_threads = path_threads == 1;
    return settings;
}
