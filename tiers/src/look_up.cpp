#include "terrace/tiers/look_up.hpp"

#include "terrace/core/assert.hpp"

namespace terrace::tiers {
namespace {

constexpr std::array<std::string_view, look_up_outcome_count> outcome_names{
    "hit_host",     "hit_nvme",          "hit_remote",
    "partial",      "miss_never_stored", "miss_evicted",
    "miss_corrupt", "miss_late",         "miss_other_namespace",
    "miss_no_room", "miss_slower"};
constexpr std::size_t first_miss = static_cast<std::size_t>(LookUpOutcome::miss_never_stored);
constexpr std::size_t prefix_of_miss = std::string_view("miss_").size();

static_assert(first_miss + miss_reason_count == look_up_outcome_count);

}  // namespace

MissReason reason_of(const Error& error) noexcept {
  switch (error.code) {
    case Errc::invalid_argument:  // no such page
      return MissReason::evicted;
    case Errc::not_ready:
    case Errc::cancelled:
      return MissReason::late;
    default:
      return MissReason::corrupt;
  }
}

LookUpOutcome hit_of(Tier tier) noexcept {
  TERRACE_ASSERT(tier != Tier::device);
  return static_cast<LookUpOutcome>(static_cast<int>(tier) - static_cast<int>(Tier::host));
}

LookUpOutcome miss_of(MissReason reason) noexcept {
  return static_cast<LookUpOutcome>(first_miss + static_cast<std::size_t>(reason));
}

std::string_view to_string(MissReason reason) noexcept {
  return to_string(miss_of(reason)).substr(prefix_of_miss);
}

std::string_view to_string(LookUpOutcome outcome) noexcept {
  return outcome_names[static_cast<std::size_t>(outcome)];
}

}  // namespace terrace::tiers
