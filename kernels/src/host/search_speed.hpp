// Which searches for nearest centroids are faster here than f32's. CPUs that have an instruction
// differ in how fast it is, by a factor of four for sums of bf16 products.
#pragma once

namespace terrace::kernels::host {

struct FasterSearches {
  bool bf16 = false;  ///< in vectors, than in f32
  bool amx = false;   ///< in tiles, than both
};

/// Measures the searches that this CPU has, for about 100 µs. A search counts as faster only if it
/// is clearly faster.
FasterSearches measure_searches() noexcept;

}  // namespace terrace::kernels::host
