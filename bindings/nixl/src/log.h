// Writes sentences to standard error, where NIXL writes its own.

#pragma once

#include <string>

namespace logging {

void error(const std::string &sentence);
// Shown with ZEROLANE_NIXL_LOG=info.
void info(const std::string &sentence);
bool shows_info();

} // namespace logging
