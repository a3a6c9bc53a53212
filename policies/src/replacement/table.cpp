#include <algorithm>
#include <array>

#include "../name_lookup.hpp"
#include "rows.hpp"
#include "terrace/policies/replacement.hpp"

namespace terrace::policies {
namespace {

constexpr std::array table{
    ReplacementEntry{"lru", "least recently used", &make_lru},
    ReplacementEntry{"lfu", "least frequently used, counts halved now and then", &make_lfu},
    ReplacementEntry{"lrfu", "least recently and frequently used, by a half-life", &make_lrfu},
    ReplacementEntry{"sieve", "first in first out, sparing what was wanted since", &make_sieve},
    ReplacementEntry{"s3fifo", "a small queue on trial before the main one", &make_s3fifo},
    ReplacementEntry{"wtinylfu", "newcomers duel by frequency with the oldest", &make_wtinylfu},
    ReplacementEntry{"arc", "balances recency and frequency by what it misses", &make_arc},
    ReplacementEntry{"last_steps", "what the last steps wanted and no more", &make_last_steps},
    ReplacementEntry{"belady", "offline optimum: farthest next use first", &make_belady,
                     /*needs_foresight=*/true},
};

}  // namespace

std::span<const ReplacementEntry> replacement_policies() noexcept { return table; }

bool needs_foresight(std::string_view name) noexcept {
  return std::ranges::any_of(table, [&](const ReplacementEntry& entry) {
    return entry.name == name && entry.needs_foresight;
  });
}

Result<std::unique_ptr<ReplacementPolicy>> make_replacement_policy(
    std::string_view name, const ReplacementOptions& options) {
  TERRACE_ASSIGN(const ReplacementEntry* entry,
                 find_by_name(replacement_policies(), "cache.policy", name));
  if (options.last_steps == 0) {
    return fail(Errc::invalid_argument, "cache.last_steps is 0; keep at least one step");
  }
  if (options.lrfu_half_life == 0 || options.lrfu_half_life > 1024) {
    return fail(Errc::invalid_argument, "cache.lrfu_half_life is {}; use 1 to 1024",
                options.lrfu_half_life);
  }
  if (entry->needs_foresight && options.foresight == nullptr) {
    return fail(Errc::invalid_argument,
                "cache.policy: {} knows the future, so it serves recorded traces only "
                "(terrace trace replay, terrace tune, terrace bench cache)",
                name);
  }
  return entry->make(options);
}

}  // namespace terrace::policies
