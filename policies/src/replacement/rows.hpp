// The functions that each policy's file gives to the table.
#pragma once

#include <memory>

#include "terrace/policies/replacement.hpp"

namespace terrace::policies {

std::unique_ptr<ReplacementPolicy> make_lru(const ReplacementOptions& options);
std::unique_ptr<ReplacementPolicy> make_lfu(const ReplacementOptions& options);
std::unique_ptr<ReplacementPolicy> make_lrfu(const ReplacementOptions& options);
std::unique_ptr<ReplacementPolicy> make_sieve(const ReplacementOptions& options);
std::unique_ptr<ReplacementPolicy> make_s3fifo(const ReplacementOptions& options);
std::unique_ptr<ReplacementPolicy> make_wtinylfu(const ReplacementOptions& options);
std::unique_ptr<ReplacementPolicy> make_arc(const ReplacementOptions& options);
std::unique_ptr<ReplacementPolicy> make_last_steps(const ReplacementOptions& options);
std::unique_ptr<ReplacementPolicy> make_belady(const ReplacementOptions& options);

}  // namespace terrace::policies
