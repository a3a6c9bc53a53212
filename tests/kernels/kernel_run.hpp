// Runs ops to their end on the kernels that a program tests: the host's, or a device's. The tests
// are the same.
//
// What an op points to is never on the stack: a device does not reach it.
#pragma once

#include <cstddef>

#include "terrace/core/ops.hpp"

namespace terrace::testing {

/// Returns by how many bytes rows may lie off an address that new returns, at the oddest.
std::size_t odd_offset(Dtype dtype);

/// Whether to try the shape of that number, of all that a test counts up: of a program whose ops
/// take long, TERRACE_FUZZ_STEPS may say that few are tried.
bool takes_shape(std::size_t number);

/// Copies return the bytes that cross the link.
std::size_t run(const StoreRows& op);
std::size_t run(const FetchRows& op);
std::size_t run(const CacheRows& op);
void run(const PqSelect& op);
void run(const ExactSelect& op);
void run(const MapQueries& op);
void run(const PageSelect& op);
void run(const ClusterSelect& op);
void run(const ResolveRows& op);
void run(const DecodeAttention& op);

}  // namespace terrace::testing
