// What each policy's file gives to the table.
#pragma once

#include <memory>

#include "terrace/core/replacement.hpp"

namespace terrace::policies {

std::unique_ptr<ReplacementPolicy> make_lru();
std::unique_ptr<ReplacementPolicy> make_lfu();

}  // namespace terrace::policies
