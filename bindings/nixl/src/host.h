// What this host is called, and how others reach it.

#pragma once

#include <string>
#include <vector>

namespace host {

// Equal for processes of one kernel and one network namespace, and for no others.
std::string identity();

// The numeric addresses of the interfaces that are up, without loopback and link-local ones, IPv4 first.
std::vector<std::string> addresses();

// Puts first the addresses ("host:port") in a network of this host's interfaces.
void sort_by_nearness(std::vector<std::string> &addresses);

} // namespace host
