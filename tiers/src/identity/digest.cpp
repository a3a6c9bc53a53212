#include "terrace/tiers/digest.hpp"

#include <fmt/core.h>
#include <fmt/ranges.h>

namespace terrace::tiers {

std::string to_string(const Digest& digest) { return fmt::format("{:02x}", fmt::join(digest, "")); }

}  // namespace terrace::tiers
