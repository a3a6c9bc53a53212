#include <array>

#include "../name_lookup.hpp"
#include "rows.hpp"
#include "terrace/policies/replacement.hpp"

namespace terrace::policies {
namespace {

constexpr std::array table{
    ReplacementEntry{"lru", "least recently used", &make_lru},
    ReplacementEntry{"lfu", "least frequently used, ties to the least recently used", &make_lfu},
};

}  // namespace

std::span<const ReplacementEntry> replacement_policies() noexcept { return table; }

Result<std::unique_ptr<ReplacementPolicy>> make_replacement_policy(std::string_view name) {
  TERRACE_ASSIGN(const ReplacementEntry* entry,
                 find_by_name(replacement_policies(), "cache.policy", name));
  return entry->make();
}

}  // namespace terrace::policies
