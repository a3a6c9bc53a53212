// The arithmetic of a decoder on contiguous f32 vectors. Each call uses one thread; callers split
// the work.
//
// Results are the same bits for the same call on one machine. Between instruction sets they
// differ in the last bits, because vectors of another width add in another order.
#pragma once

#include <cstddef>
#include <span>

#include "terrace/core/dtype.hpp"

namespace terrace::engine {

/// Widens `count` elements of `dtype`. Exact.
///
/// Layout   source at any alignment; must not overlap target
void convert_to_f32(const void* source, Dtype dtype, std::size_t count, float* target) noexcept;

/// True where each of `values` is a finite number of `dtype` once it is rounded to it.
bool stay_finite(std::span<const float> values, Dtype dtype) noexcept;

/// target[i] = source[i] * weight[i] / sqrt(mean(source^2) + epsilon): Llama's normalisation.
///
/// Shapes   source, weight, target [size]; source may be target
void rms_norm(const float* source, const float* weight, std::size_t size, double epsilon,
              float* target) noexcept;

/// target[i] = silu(gate[i]) * up[i], silu(x) = x / (1 + exp(-x)).
///
/// Shapes   gate, up, target [size]
void swiglu(const float* gate, const float* up, std::size_t size, float* target) noexcept;

/// Rotates the pairs (i, i + half) of one head by the angle of pair i, as Hugging Face does.
///
/// Shapes   source, target [2 * half]; cosine, sine [half]; source may be target
void rotate_halves(const float* source, const float* cosine, const float* sine, std::size_t half,
                   float* target) noexcept;

/// Rotates the pairs (2 i, 2 i + 1) of one head by the angle of pair i, as GLM does.
///
/// Shapes   source, target [2 * half]; cosine, sine [half]; source may be target
void rotate_neighbours(const float* source, const float* cosine, const float* sine,
                       std::size_t half, float* target) noexcept;

/// target[o] (+)= dot(weight row o, source): one product for a single row of activations.
///
/// Shapes   weight [outputs, inputs], source [inputs], target [outputs]
/// Cost     reads each weight once
void multiply_vector(const float* weight, std::size_t outputs, std::size_t inputs,
                     const float* source, bool accumulate, float* target) noexcept;

/// Returns log(sum(exp(values))), safe for any magnitude; values must not be empty.
double log_sum_exp(std::span<const float> values) noexcept;

/// Turns logits into probabilities, in place.
void softmax(std::span<float> values) noexcept;

/// Turns logits into log probabilities (natural logarithm), in place.
void log_softmax(std::span<float> values) noexcept;

}  // namespace terrace::engine
