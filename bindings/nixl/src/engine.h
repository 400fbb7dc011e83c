// Makes the engine of an agent.

#pragma once

#include "abi.h"

// Null if it cannot be made, with the reason in the log.
abi::Engine *make_engine(const abi::Creation &creation) noexcept;
