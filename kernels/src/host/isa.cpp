#include "terrace/kernels/isa.hpp"

#include <hwy/highway.h>
#include <hwy/targets.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <string>

#include "host/amx_search.hpp"
#include "host/bf16_search.hpp"
#include "host/isa_choice.hpp"
#include "host/search_speed.hpp"
#include "host/word_bits.hpp"

namespace terrace::kernels::host {
namespace {

constexpr std::array levels{
    IsaLevel{"scalar", HWY_EMU128},
    IsaLevel{"avx2", HWY_AVX2},
    IsaLevel{"avx512", HWY_AVX3},
    IsaLevel{"avx512_vbmi", HWY_AVX3, IsaExtras::vbmi},
    IsaLevel{"avx512_bf16", HWY_AVX3, IsaExtras::bf16},
    IsaLevel{"amx", HWY_AVX3, IsaExtras::amx},
    IsaLevel{"neon", HWY_NEON},
};

/// Means that no IsaExtras were asked for by name.
constexpr int not_forced = -1;
std::atomic<int> forced_extras{not_forced};

bool has(IsaExtras extras) {
  switch (extras) {
    case IsaExtras::none:
      return true;
    case IsaExtras::vbmi:
      return has_word_bits_lookup();
    case IsaExtras::bf16:
      return has_word_bits_lookup() && has_bf16_search();
    case IsaExtras::amx:
      return has_word_bits_lookup() && has_amx_search();
  }
  return false;
}

/// Returns the targets that this build has code for and this CPU can run; the plainest is always
/// there.
std::int64_t usable_targets() {
  return (hwy::SupportedTargets() & HWY_TARGETS) | HWY_STATIC_TARGET;
}

/// The better a target, the lower its bit.
std::int64_t best_target() {
  const std::int64_t usable = usable_targets();
  return usable & -usable;
}

/// Makes kernels choose among `targets`, also those that have run already; 0 = all there are.
/// Highway's DisableTargets does not suffice: each query of the supported targets resets its
/// choice.
void choose_among(std::int64_t targets) {
  hwy::SetSupportedTargetsForTest(targets);
  hwy::GetChosenTarget().Update(hwy::SupportedTargets());
}

bool is_usable(const IsaLevel& level, std::int64_t targets) {
  return (level.target & targets) != 0 && has(level.extras);
}

/// Measured once: a second measurement might come out otherwise.
const FasterSearches& faster_searches() {
  static const FasterSearches found = measure_searches();
  return found;
}

IsaExtras find_extras() {
  // All of them go with the layouts that vectors of 16 lanes make.
  if (best_target() != HWY_AVX3 || !has(IsaExtras::vbmi)) return IsaExtras::none;
  if (faster_searches().amx) return IsaExtras::amx;
  return faster_searches().bf16 ? IsaExtras::bf16 : IsaExtras::vbmi;
}

IsaExtras extras() noexcept {
  const int forced = forced_extras.load(std::memory_order_relaxed);
  if (forced != not_forced) return static_cast<IsaExtras>(forced);
  static const IsaExtras found = find_extras();
  return found;
}

std::string names_of(std::int64_t targets) {
  std::string names;
  for (const IsaLevel& level : levels) {
    if (!is_usable(level, targets)) continue;
    if (!names.empty()) names += ", ";
    names += level.name;
  }
  return names;
}

}  // namespace

std::span<const IsaLevel> isa_levels() noexcept { return levels; }

Status use_isa(std::string_view name) {
  choose_among(0);
  forced_extras.store(not_forced);
  if (name == "auto") return {};
  const std::int64_t usable = usable_targets();
  const auto level = std::ranges::find(levels, name, &IsaLevel::name);
  if (level == levels.end()) {
    return fail(Errc::invalid_argument, "isa {}: no such level; use auto, {}", name,
                names_of(usable));
  }
  if (!is_usable(*level, usable)) {
    const bool is_built = (level->target & HWY_TARGETS) != 0;
    return fail(Errc::unsupported, "isa {}: {}; use auto, {}", name,
                is_built ? "this machine has no such instructions"
                         : "this build lacks them (make builds all levels)",
                names_of(usable));
  }
  choose_among(level->target & usable);
  forced_extras.store(static_cast<int>(level->extras));
  return {};
}

bool looks_up_word_bits() noexcept { return extras() != IsaExtras::none; }

Search search_in_use() noexcept {
  switch (extras()) {
    case IsaExtras::none:
    case IsaExtras::vbmi:
      return Search::f32;
    case IsaExtras::bf16:
      return Search::bf16;
    case IsaExtras::amx:
      return Search::amx;
  }
  return Search::f32;
}

std::string_view isa_in_use() noexcept {
  const std::int64_t best = best_target();
  const IsaExtras used = extras();
  const auto level = std::ranges::find_if(levels, [&](const IsaLevel& each) {
    return (each.target & best) != 0 && each.extras == used;
  });
  return level == levels.end() ? "scalar" : level->name;
}

}  // namespace terrace::kernels::host
