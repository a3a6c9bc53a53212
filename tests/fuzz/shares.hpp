// The share of TERRACE_FUZZ_STEPS that each kind of input gets, over both programs of fuzz tests.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <numeric>
#include <string_view>

#include "contract/fuzz.hpp"

namespace terrace {

struct FuzzShare {
  std::string_view kind;
  std::uint64_t percent;
};

inline constexpr std::array fuzz_shares{
    FuzzShare{"model_config", 12}, FuzzShare{"safetensors_header", 16},
    FuzzShare{"gates", 4},         FuzzShare{"tensor_index", 4},
    FuzzShare{"mooncake", 10},     FuzzShare{"csv", 5},
    FuzzShare{"oraclegeneral", 3}, FuzzShare{"trace", 14},
    FuzzShare{"config_yaml", 14},  FuzzShare{"machine_profile", 8},
    FuzzShare{"needles", 4},       FuzzShare{"turns", 2},
    FuzzShare{"tokens", 2},        FuzzShare{"needle_form", 2},
};
static_assert(std::transform_reduce(fuzz_shares.begin(), fuzz_shares.end(), std::uint64_t{0},
                                    std::plus{},
                                    [](const FuzzShare& each) { return each.percent; }) == 100);

/// Inputs to try of a kind.
inline std::uint64_t fuzz_steps_of(std::string_view kind) {
  const auto* const share = std::ranges::find(fuzz_shares, kind, &FuzzShare::kind);
  return fuzz_steps() * share->percent / 100;
}

}  // namespace terrace
