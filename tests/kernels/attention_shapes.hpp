// Shapes that attention's kernels treat each in a way of its own: vectors that are full or not, and
// groups of all sizes that are computed together.
#pragma once

#include <initializer_list>

#include "kernels/block_store.hpp"
#include "kernels/kernel_run.hpp"

namespace terrace::testing {

inline constexpr std::initializer_list<std::size_t> attention_groups{1, 2, 3, 4, 7, 8, 11};

/// Calls use(shape, misalignment) for all of them that the program takes.
template <typename Use>
void for_each_attention_shape(std::initializer_list<std::size_t> groups, Use use) {
  std::size_t number = 0;
  for (const Dtype dtype : {Dtype::f32, Dtype::f16, Dtype::bf16}) {
    for (const std::size_t head_dim : {2U, 6U, 64U, 80U, 128U, 130U, 576U}) {
      for (const std::size_t group : groups) {
        for (const std::size_t kv_heads : {1U, 3U}) {
          if (!takes_shape(number++)) continue;
          use(make_shape(group, kv_heads, head_dim, dtype),
              head_dim % 4 == 0 ? std::size_t{0} : odd_offset(dtype));
        }
      }
    }
  }
}

}  // namespace terrace::testing
