#include "terrace/kernels/isa.hpp"

#include <hwy/highway.h>
#include <hwy/targets.h>

#include <algorithm>
#include <array>
#include <string>

namespace terrace::kernels::host {
namespace {

constexpr std::array levels{
    IsaLevel{"scalar", HWY_EMU128},
    IsaLevel{"avx2", HWY_AVX2},
    IsaLevel{"avx512", HWY_AVX3},
    IsaLevel{"neon", HWY_NEON},
};

/// What this build has code for and this CPU can run; the plainest is always there.
std::int64_t usable_targets() {
  return (hwy::SupportedTargets() & HWY_TARGETS) | HWY_STATIC_TARGET;
}

/// Makes kernels choose among `targets`, also those that have run already; 0 = all there are.
/// Highway's DisableTargets would not do: its choice is forgotten whenever somebody asks what is
/// supported.
void choose_among(std::int64_t targets) {
  hwy::SetSupportedTargetsForTest(targets);
  hwy::GetChosenTarget().Update(hwy::SupportedTargets());
}

std::string names_of(std::int64_t targets) {
  std::string names;
  for (const IsaLevel& level : levels) {
    if ((level.target & targets) == 0) continue;
    if (!names.empty()) names += ", ";
    names += level.name;
  }
  return names;
}

}  // namespace

std::span<const IsaLevel> isa_levels() noexcept { return levels; }

Status use_isa(std::string_view name) {
  choose_among(0);
  if (name == "auto") return {};
  const std::int64_t usable = usable_targets();
  const auto level = std::ranges::find(levels, name, &IsaLevel::name);
  if (level == levels.end()) {
    return fail(Errc::invalid_argument, "isa {}: no such level; use auto, {}", name,
                names_of(usable));
  }
  if ((level->target & usable) == 0) {
    return fail(Errc::unsupported, "isa {}: not on this machine; use auto, {}", name,
                names_of(usable));
  }
  choose_among(level->target);
  return {};
}

std::string_view isa_in_use() noexcept {
  const std::int64_t usable = usable_targets();
  const std::int64_t best = usable & -usable;  // the better a target, the lower its bit
  const auto level = std::ranges::find(levels, best, &IsaLevel::target);
  return level == levels.end() ? "scalar" : level->name;
}

}  // namespace terrace::kernels::host
