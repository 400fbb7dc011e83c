// Asks the kernel who this host is.

#include "host.h"

#include <algorithm>
#include <arpa/inet.h>
#include <cstdint>
#include <fstream>
#include <ifaddrs.h>
#include <memory>
#include <net/if.h>
#include <netinet/in.h>
#include <sys/stat.h>

namespace host {

namespace {

struct Interface {
    uint32_t address;
    uint32_t mask;
};

using Interfaces = std::unique_ptr<ifaddrs, decltype(&freeifaddrs)>;

Interfaces interfaces() {
    ifaddrs *first = nullptr;
    if (getifaddrs(&first) != 0)
        first = nullptr;
    return {first, freeifaddrs};
}

bool is_usable(const ifaddrs &it, int family) {
    return it.ifa_addr && it.ifa_addr->sa_family == family && (it.ifa_flags & IFF_UP) && !(it.ifa_flags & IFF_LOOPBACK);
}

uint32_t ipv4(const sockaddr *address) {
    return reinterpret_cast<const sockaddr_in *>(address)->sin_addr.s_addr;
}

} // namespace

std::string identity() {
    std::string boot;
    std::ifstream{"/proc/sys/kernel/random/boot_id"} >> boot;
    struct stat network{};
    if (boot.empty() || stat("/proc/self/ns/net", &network) != 0)
        return {};
    return boot + " " + std::to_string(network.st_ino);
}

std::vector<std::string> addresses() {
    std::vector<std::string> found;
    char text[INET6_ADDRSTRLEN];
    const Interfaces all = interfaces();
    for (const ifaddrs *it = all.get(); it; it = it->ifa_next) {
        if (is_usable(*it, AF_INET)) {
            const in_addr address{ipv4(it->ifa_addr)};
            found.emplace_back(inet_ntop(AF_INET, &address, text, sizeof text));
        }
    }
    for (const ifaddrs *it = all.get(); it; it = it->ifa_next) {
        if (!is_usable(*it, AF_INET6))
            continue;
        const auto &address = reinterpret_cast<const sockaddr_in6 *>(it->ifa_addr)->sin6_addr;
        if (!IN6_IS_ADDR_LINKLOCAL(&address))
            found.emplace_back(inet_ntop(AF_INET6, &address, text, sizeof text));
    }
    return found;
}

void sort_by_nearness(std::vector<std::string> &addresses) {
    std::vector<Interface> networks;
    const Interfaces all = interfaces();
    for (const ifaddrs *it = all.get(); it; it = it->ifa_next)
        if (is_usable(*it, AF_INET) && it->ifa_netmask)
            networks.push_back({ipv4(it->ifa_addr), ipv4(it->ifa_netmask)});
    std::stable_partition(addresses.begin(), addresses.end(), [&](const std::string &text) {
        in_addr address{};
        if (inet_pton(AF_INET, text.substr(0, text.rfind(':')).c_str(), &address) != 1)
            return false;
        return std::any_of(networks.begin(), networks.end(), [&](const Interface &it) {
            return (it.address & it.mask) == (address.s_addr & it.mask);
        });
    });
}

} // namespace host
