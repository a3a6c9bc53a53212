// The architectures that are supported, and what Hugging Face takes where their configs say
// nothing.
#pragma once

#include <span>
#include <string>

#include "config_fields.hpp"
#include "terrace/engine/model_config.hpp"

namespace terrace::engine {

/// The biases that `attention_bias` is about.
enum class BiasKey : std::uint8_t {
  none,         ///< there are no biases
  qkv_and_out,  ///< those of all projections to and from attention
  qkv,          ///< those of queries, keys and values
  qkv_always,   ///< queries, keys and values have biases, and the key is ignored
};

/// A window of positions that layers attend to, and no others before it. No model computes one.
struct WindowDefaults {
  std::size_t tokens = 0;  ///< sliding_window; 0: no window
  bool has_switch = true;  ///< use_sliding_window is read
  bool is_on = true;       ///< use_sliding_window
};

struct ArchitectureRow {
  Architecture architecture;
  BiasKey biases = BiasKey::none;
  bool bias_default = false;    ///< of attention_bias
  bool has_mlp_biases = false;  ///< mlp_bias is read
  bool rotates_parts = false;   ///< partial_rotary_factor may be below 1
  double rotated_default = 1;
  std::size_t head_dim_default = 0;  ///< 0: hidden_size / heads
  std::size_t kv_heads_default = 0;  ///< 0: as many as there are query heads
  std::size_t positions_default = 2048;
  std::size_t original_positions_default = 0;  ///< 0: as a RoPE object says
  bool scales_by_longrope = false;             ///< su and yarn are older names of longrope
  double epsilon_default = 1e-6;
  WindowDefaults window = {};
};

/// Returns the row of a config's architecture.
/// Errors   unsupported: another architecture, or no name
[[nodiscard]] Result<const ArchitectureRow*> find_architecture(const ConfigFields& fields);

}  // namespace terrace::engine
