// Runs ops to their end on the kernels that a program tests: the host's, or a device's. The tests
// are the same.
//
// Memory that an op points to is never on the stack: a device does not reach the stack.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "contract/fuzz.hpp"
#include "terrace/core/ops.hpp"

namespace terrace::testing {

/// Returns by how many bytes rows may lie off an address that new returns, at the oddest.
std::size_t odd_offset(Dtype dtype);

/// Whether to try the shape of that number, of all that a test counts up: TERRACE_FUZZ_STEPS may
/// say that few are tried.
bool takes_shape(std::size_t number);

/// takes_shape of a program that tries all shapes from so many random steps on.
inline bool takes_shape_with(std::size_t number, std::uint64_t steps_for_all) {
  // Prime to the numbers of values that shapes are made of, so that all values are met.
  const std::size_t each = fuzz_steps() < steps_for_all ? 11 : 1;
  return number % each == 0;
}

/// Copies return the bytes that cross the link.
std::size_t run(std::span<const StoreRows> batch);
std::size_t run(std::span<const FetchRows> batch);
std::size_t run(std::span<const CacheRows> batch);
void run(std::span<const PqSelect> batch);
void run(std::span<const ExactSelect> batch);
void run(std::span<const ChannelSelect> batch);
void run(std::span<const MapQueries> batch);
void run(std::span<const ConvertQueries> batch);
void run(std::span<const PageSelect> batch);
void run(std::span<const ClusterSelect> batch);
void run(std::span<const RefineSelect> batch);
void run(std::span<const SignSelect> batch);
void run(std::span<const ResolveRows> batch);
void run(std::span<const DecodeAttention> batch);
void run(std::span<const TileAttention> batch);
void run(std::span<const TileWeights> batch);

/// Runs a single call.
template <typename Arguments>
auto run(const Arguments& op) {
  return run(std::span<const Arguments>(&op, 1));
}

}  // namespace terrace::testing
