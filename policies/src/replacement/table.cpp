#include <algorithm>
#include <array>

#include "../name_lookup.hpp"
#include "rows.hpp"
#include "terrace/policies/replacement.hpp"

namespace terrace::policies {
namespace {

constexpr std::array<std::size_t, 3> lfu_tried{0, 16, 64};
constexpr std::array<std::size_t, 3> lrfu_tried{4, 8, 16};
constexpr std::array<std::size_t, 3> last_steps_tried{1, 2, 4};

constexpr std::array table{
    ReplacementEntry{"lru", "least recently used", &make_lru},
    ReplacementEntry{"lfu", "least frequently used; with a half-life, lately so", &make_lfu,
                     ReplacementSetting{.key = "cache.lfu_half_life",
                                        .value = &ReplacementOptions::lfu_half_life,
                                        .words = "half-life",
                                        .low = 0,
                                        .tried = lfu_tried}},
    ReplacementEntry{"lrfu", "least recently and frequently used: each use by its age", &make_lrfu,
                     ReplacementSetting{.key = "cache.lrfu_half_life",
                                        .value = &ReplacementOptions::lrfu_half_life,
                                        .words = "half-life",
                                        .high = 256,
                                        .tried = lrfu_tried}},
    ReplacementEntry{"sieve", "first in first out, sparing what was wanted since", &make_sieve},
    ReplacementEntry{"s3fifo", "a small queue on trial before the main one", &make_s3fifo},
    ReplacementEntry{"wtinylfu", "newcomers duel by frequency with the oldest", &make_wtinylfu},
    ReplacementEntry{"arc", "balances recency and frequency by what it misses", &make_arc},
    ReplacementEntry{"last_steps", "what the last steps wanted and no more", &make_last_steps,
                     ReplacementSetting{.key = "cache.last_steps",
                                        .value = &ReplacementOptions::last_steps,
                                        .words = "R",
                                        .tried = last_steps_tried}},
    ReplacementEntry{.name = "belady",
                     .meaning = "knows the future: farthest next use first",
                     .make = &make_belady,
                     .needs_foresight = true},
};

}  // namespace

std::span<const ReplacementEntry> replacement_policies() noexcept { return table; }

std::optional<ReplacementSetting> replacement_setting(std::string_view name) noexcept {
  const auto* const entry = std::ranges::find(table, name, &ReplacementEntry::name);
  return entry == table.end() ? std::nullopt : entry->setting;
}

bool needs_foresight(std::string_view name) noexcept {
  return std::ranges::any_of(table, [&](const ReplacementEntry& entry) {
    return entry.name == name && entry.needs_foresight;
  });
}

Result<std::unique_ptr<ReplacementPolicy>> make_replacement_policy(
    std::string_view name, const ReplacementOptions& options) {
  TERRACE_ASSIGN(const ReplacementEntry* entry,
                 find_by_name(replacement_policies(), "cache.policy", name));
  if (const auto& setting = entry->setting) {
    const std::size_t value = options.*setting->value;
    if (value < setting->low || value > setting->high) {
      return fail(Errc::invalid_argument, "{} is {}; use {} to {}", setting->key, value,
                  setting->low, setting->high);
    }
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
