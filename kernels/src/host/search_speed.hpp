// Which search for nearest centroids is the fastest here. CPUs that have an instruction differ in
// how fast it is, by a factor of four for sums of bf16 products.
#pragma once

#include "host/isa_choice.hpp"

namespace terrace::kernels::host {

/// Measures the searches that this CPU has, for about 100 µs. Another one than f32's has to be
/// clearly faster.
Search measure_searches() noexcept;

}  // namespace terrace::kernels::host
