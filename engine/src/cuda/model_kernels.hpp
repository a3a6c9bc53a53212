// A model's own arithmetic for CUDA. Each enqueues one kernel on a stream and returns. The engine's
// host functions are the specification (llama_model.hpp, vector_math.hpp, matrix.hpp); sums are
// taken in another order, so results differ in the last bits.
//
// Memory   device memory, f32 aligned to 4 bytes; activations row-major, one row per token
// Errors   device_error, device_lost: the launch was refused
// Tests    tests/cuda/engine_kernels_test.cpp, tests/cuda/cuda_decoder_test.cpp
#pragma once

#include "terrace/core/ids.hpp"
#include "terrace/core/shape.hpp"
#include "terrace/engine/llama_model.hpp"
#include "terrace/engine/matrix.hpp"
#include "terrace/kernels/cuda/launch.hpp"

namespace terrace::engine::cuda {

using kernels::cuda::Launch;

/// hidden[r] = embedding[tokens[r]]; clears the flags of the kernels that follow.
struct Embed {
  const float* embedding = nullptr;  ///< [vocabulary, size]
  const std::uint32_t* tokens = nullptr;
  std::size_t rows = 0;
  std::size_t size = 0;
  float* hidden = nullptr;
  std::uint32_t* flags = nullptr;  ///< out [flag_count] zeros
  std::size_t flag_count = 0;
};
[[nodiscard]] Status embed(const Embed& op, const Launch& launch);

/// As rms_norm of vector_math.hpp, of each row.
struct Normalise {
  const float* source = nullptr;
  const float* weight = nullptr;
  float* target = nullptr;
  std::size_t rows = 0;
  std::size_t size = 0;
  double epsilon = 0;
};
[[nodiscard]] Status normalise(const Normalise& op, const Launch& launch);

/// Normalises each head of queries and keys of projected rows by weights of its own, in place.
struct NormaliseHeads {
  float* qkv = nullptr;  ///< [rows, query_heads + 2 kv_heads, head_dim]
  KvShape shape;
  const float* query_weight = nullptr;  ///< [head_dim]
  const float* key_weight = nullptr;    ///< [head_dim]
  std::size_t rows = 0;
  double epsilon = 0;
};
[[nodiscard]] Status normalise_heads(const NormaliseHeads& op, const Launch& launch);

/// Rotates queries and keys of projected rows, and packs keys and values as rows of the KV dtype.
struct RotateAndPack {
  KvShape shape;
  const float* qkv = nullptr;           ///< [rows.count, query_size + 2 kv_size]
  const double* frequencies = nullptr;  ///< [rotated / 2]: radians a position
  double attention_factor = 1;          ///< of cosines and sines
  RowRange rows;
  float* query = nullptr;   ///< out [rows.count, query_heads, head_dim]
  std::byte* kv = nullptr;  ///< out [kv_heads, capacity, 2, head_dim], from token `first` on
  std::size_t capacity = 0;
  std::size_t first = 0;
  std::uint32_t* unfit = nullptr;  ///< out, 1 where a row is not finite in its dtype; may be null
  std::size_t rotated = 0;         ///< elements of a head that are rotated, the first ones; 0: all
  bool neighbours = false;         ///< pairs are neighbours; else they are rotated / 2 apart
};
[[nodiscard]] Status rotate_and_pack(const RotateAndPack& op, const Launch& launch);

/// target[r, i] += bias[i].
struct AddBias {
  const float* bias = nullptr;  ///< [size]
  float* target = nullptr;      ///< [rows, size]
  std::size_t rows = 0;
  std::size_t size = 0;
};
[[nodiscard]] Status add_bias(const AddBias& op, const Launch& launch);

/// As swiglu of vector_math.hpp, of each row.
struct Swiglu {
  const float* gate_up = nullptr;  ///< [rows, 2, size]: gate first
  float* target = nullptr;         ///< [rows, size]
  std::size_t rows = 0;
  std::size_t size = 0;
};
[[nodiscard]] Status swiglu(const Swiglu& op, const Launch& launch);

/// As multiply of matrix.hpp.
[[nodiscard]] Status multiply(const MatrixProduct& product, const Launch& launch);

}  // namespace terrace::engine::cuda
