// Weighted sums of rows of any dtype, up to four at a time. Included once per target.
#if defined(TERRACE_KERNELS_ADD_ROWS_INL) == defined(HWY_TARGET_TOGGLE)
#ifdef TERRACE_KERNELS_ADD_ROWS_INL
#undef TERRACE_KERNELS_ADD_ROWS_INL
#else
#define TERRACE_KERNELS_ADD_ROWS_INL
#endif

#include <cstddef>

#include "host/prefetch.hpp"
#include "host/vectors-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace terrace::kernels::host::HWY_NAMESPACE {

/// Rows, which weights each sum gives them, and the sums. Sums have room for whole vectors and are
/// aligned to them.
struct WeightedRows {
  const float* weights;  // [sums, weight_stride]
  std::size_t weight_stride;
  const std::byte* const* rows;  // [count]
  std::size_t count;
  std::size_t begin;    // of the numbers in a row, bytes
  std::size_t numbers;  // that are added
  float* sums;          // [sums, sum_stride]
  std::size_t sum_stride;
};

/// The numbers of a row that one pass over the rows adds up.
struct Slab {
  std::size_t number;
  std::size_t offset;  // of it in a row, bytes
  std::size_t vector_bytes;
};

// Rows that are added between two tests for the end: whole lines, with vectors of 16 bytes.
constexpr std::size_t rows_per_turn = 4;

/// Adds weight * number over the rows to `width` vectors of each sum; load(address, v) reads vector
/// v of the slab. before_line() runs before each line.
template <std::size_t count, std::size_t width, typename BeforeLine, typename Load>
HWY_INLINE void add_slab(const WeightedRows& of, const Slab& slab, BeforeLine before_line,
                         Load load) {
  const FloatTag tag;
  float* to = of.sums + slab.number;
  Floats sums[count * width];
#pragma GCC unroll 16
  for (std::size_t i = 0; i < count * width; ++i) {
    sums[i] = hn::Load(tag, to + i / width * of.sum_stride + i % width * lanes);
  }
  const auto add_row = [&](std::size_t t, std::size_t vectors_before) HWY_ATTR {
    const std::byte* at = of.rows[t] + slab.offset;
    Floats weights[count];
#pragma GCC unroll 4
    for (std::size_t s = 0; s < count; ++s) {
      weights[s] = hn::Set(tag, of.weights[s * of.weight_stride + t]);
    }
#pragma GCC unroll 8
    for (std::size_t v = 0; v < width; ++v) {
      if ((vectors_before + v) * slab.vector_bytes % line_bytes == 0) before_line();
      const Floats numbers = load(at, v);
#pragma GCC unroll 4
      for (std::size_t s = 0; s < count; ++s) {
        sums[s * width + v] = hn::MulAdd(weights[s], numbers, sums[s * width + v]);
      }
    }
  };
  std::size_t t = 0;
  for (; t + rows_per_turn <= of.count; t += rows_per_turn) {
#pragma GCC unroll 4
    for (std::size_t i = 0; i < rows_per_turn; ++i) add_row(t + i, i * width);
  }
  for (; t < of.count; ++t) add_row(t, 0);
#pragma GCC unroll 16
  for (std::size_t i = 0; i < count * width; ++i) {
    hn::Store(sums[i], tag, to + i / width * of.sum_stride + i % width * lanes);
  }
}

/// Adds rows to `count` sums.
template <typename Elements, std::size_t count, typename BeforeLine>
HWY_INLINE void add_rows(const WeightedRows& of, BeforeLine before_line) {
  // As many sums as leave the registers room for the weights and a vector of a row.
  constexpr std::size_t width = count == 1 ? 8 : count == 4 && registers == 16 ? 2 : 4;
  constexpr std::size_t vector_bytes = lanes * Elements::bytes;
  const auto load = [](const std::byte* at, std::size_t v)
                        HWY_ATTR { return Elements::load(at + v * vector_bytes); };
  const auto slab = [&](std::size_t number) HWY_ATTR {
    return Slab{number, of.begin + number * Elements::bytes, vector_bytes};
  };
  std::size_t i = 0;
  for (; i + width * lanes <= of.numbers; i += width * lanes) {
    add_slab<count, width>(of, slab(i), before_line, load);
  }
  for (; i + lanes <= of.numbers; i += lanes) add_slab<count, 1>(of, slab(i), before_line, load);
  if (i == of.numbers) return;
  const std::size_t rest = of.numbers - i;
  const auto load_rest = [rest](const std::byte* at, std::size_t)
                             HWY_ATTR { return load_tail<Elements>(at, rest); };
  add_slab<count, 1>(of, slab(i), before_line, load_rest);
}

}  // namespace terrace::kernels::host::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // once per target
