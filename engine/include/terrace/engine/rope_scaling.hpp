// How RoPE's frequencies are scaled for contexts longer than a model was first trained with: the
// kinds of scaling that Hugging Face's LlamaForCausalLM knows, by the names in config.json.
#pragma once

#include <cstddef>
#include <variant>
#include <vector>

namespace terrace::engine {

/// "linear": every frequency is divided.
struct LinearRopeScaling {
  double factor = 1;

  bool operator==(const LinearRopeScaling&) const = default;
};

/// "dynamic": the base grows with the length, once this is above the model's positions_max.
struct DynamicRopeScaling {
  double factor = 1;

  bool operator==(const DynamicRopeScaling&) const = default;
};

/// "llama3": long wavelengths are stretched by `factor`, short ones kept, those between blended.
struct Llama3RopeScaling {
  double factor = 1;
  double low_freq_factor = 1;
  double high_freq_factor = 4;
  std::size_t original_positions = 8192;  ///< the context the model was first trained with

  bool operator==(const Llama3RopeScaling&) const = default;
};

/// "yarn": pairs that turn less often than `beta_slow` times in the original context are
/// stretched, those that turn more often than `beta_fast` times kept, those between blended.
struct YarnRopeScaling {
  double factor = 1;
  double attention_factor = 1;  ///< of cosines and sines
  double beta_fast = 32;
  double beta_slow = 1;
  bool truncate = true;  ///< the blended pairs are rounded outwards to whole ones
  std::size_t original_positions = 4096;

  bool operator==(const YarnRopeScaling&) const = default;
};

/// "longrope": each pair has a divisor of its own, another one for lengths above the original.
struct LongRopeScaling {
  std::vector<double> short_factors;  ///< [pairs]
  std::vector<double> long_factors;   ///< [pairs]
  double attention_factor = 1;        ///< of cosines and sines
  std::size_t original_positions = 4096;

  bool operator==(const LongRopeScaling&) const = default;
};

/// No scaling first.
using RopeScaling = std::variant<std::monostate, LinearRopeScaling, DynamicRopeScaling,
                                 Llama3RopeScaling, YarnRopeScaling, LongRopeScaling>;

}  // namespace terrace::engine
