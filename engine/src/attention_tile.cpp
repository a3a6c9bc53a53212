#include "attention_tile.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "terrace/core/bytes.hpp"
#include "terrace/engine/vector_math.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "attention_tile.cpp"
// clang-format off: foreach_target.h must come first
#include <hwy/foreach_target.h>
#include <hwy/contrib/math/math-inl.h>
#include <hwy/highway.h>
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace terrace::engine::HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;
using Floats = hn::CappedTag<float, 16>;

/// c[m, n] (+)= sum over k of a[m, k] * b[k, n], all row-major with a row stride.
struct Product {
  const float* a;
  const float* b;
  float* c;
  std::size_t a_stride;
  std::size_t b_stride;
  std::size_t c_stride;
  std::size_t inner;
  bool accumulate;
};

/// Computes `rows` rows and two vectors of columns. Six rows fill AVX2's registers: twelve sums,
/// two vectors of b, one element of a.
template <std::size_t rows>
HWY_INLINE void multiply_block(const Product& p, const float* HWY_RESTRICT a,
                               const float* HWY_RESTRICT b, float* HWY_RESTRICT c) {
  const Floats tag;
  const std::size_t lanes = hn::Lanes(tag);
  hn::Vec<Floats> left[rows];
  hn::Vec<Floats> right[rows];
  for (std::size_t r = 0; r < rows; ++r) {
    left[r] = p.accumulate ? hn::LoadU(tag, c + r * p.c_stride) : hn::Zero(tag);
    right[r] = p.accumulate ? hn::LoadU(tag, c + r * p.c_stride + lanes) : hn::Zero(tag);
  }
  for (std::size_t k = 0; k < p.inner; ++k) {
    const auto b_left = hn::LoadU(tag, b + k * p.b_stride);
    const auto b_right = hn::LoadU(tag, b + k * p.b_stride + lanes);
    for (std::size_t r = 0; r < rows; ++r) {
      const auto factor = hn::Set(tag, a[r * p.a_stride + k]);
      left[r] = hn::MulAdd(factor, b_left, left[r]);
      right[r] = hn::MulAdd(factor, b_right, right[r]);
    }
  }
  for (std::size_t r = 0; r < rows; ++r) {
    hn::StoreU(left[r], tag, c + r * p.c_stride);
    hn::StoreU(right[r], tag, c + r * p.c_stride + lanes);
  }
}

/// `columns` must be a multiple of two vectors: scratch is padded so.
void multiply(const Product& p, std::size_t rows, std::size_t columns) {
  const std::size_t step = 2 * hn::Lanes(Floats());
  for (std::size_t n = 0; n < columns; n += step) {
    std::size_t m = 0;
    const auto block = [&]<std::size_t count>() HWY_ATTR {
      multiply_block<count>(p, p.a + m * p.a_stride, p.b + n, p.c + m * p.c_stride + n);
      m += count;
    };
    while (m + 6 <= rows) block.template operator()<6>();
    while (m + 2 <= rows) block.template operator()<2>();
    if (m < rows) block.template operator()<1>();
  }
}

/// Converts keys begin .. begin + count, and clears the columns behind them.
void load_keys(const AttentionTile& tile, std::size_t begin, std::size_t count,
               const AttentionScratch& scratch) {
  const std::size_t element_bytes = size_bytes(tile.dtype);
  const std::size_t d = tile.head_dim;
  for (std::size_t key = 0; key < count; ++key) {
    const std::byte* row = tile.kv + (begin + key) * 2 * d * element_bytes;
    convert_to_f32(row, tile.dtype, d, scratch.row);
    convert_to_f32(row + d * element_bytes, tile.dtype, d, scratch.values + key * scratch.width);
    for (std::size_t i = 0; i < d; ++i) scratch.keys[i * key_tile + key] = scratch.row[i];
  }
  for (std::size_t i = 0; i < d && count < key_tile; ++i) {
    std::fill(scratch.keys + i * key_tile + count, scratch.keys + (i + 1) * key_tile, 0.0F);
  }
}

/// Turns a row of scores into exp(score - largest), hides all but the first `visible` keys, and
/// brings what was summed before onto the new scale.
void renew_row(float* HWY_RESTRICT scores, std::size_t visible, float* HWY_RESTRICT sum,
               std::size_t width, float& largest, float& denominator) {
  const Floats tag;
  const std::size_t lanes = hn::Lanes(tag);
  constexpr float hidden = -std::numeric_limits<float>::infinity();
  for (std::size_t key = visible; key < key_tile; ++key) scores[key] = hidden;
  auto maxima = hn::Load(tag, scores);
  for (std::size_t i = lanes; i < key_tile; i += lanes) {
    maxima = hn::Max(maxima, hn::Load(tag, scores + i));
  }
  const float previous = largest;
  largest = std::max(previous, hn::GetLane(hn::MaxOfLanes(tag, maxima)));
  const auto shift = hn::Set(tag, largest);
  auto sums = hn::Zero(tag);
  for (std::size_t i = 0; i < key_tile; i += lanes) {
    const auto power = hn::Exp(tag, hn::Sub(hn::Load(tag, scores + i), shift));
    hn::Store(power, tag, scores + i);
    sums = hn::Add(sums, power);
  }
  const float fresh = hn::GetLane(hn::SumOfLanes(tag, sums));
  if (largest == previous) {
    denominator += fresh;
    return;
  }
  const float shrink = std::exp(previous - largest);
  denominator = denominator * shrink + fresh;
  const auto shrinks = hn::Set(tag, shrink);
  for (std::size_t i = 0; i < width; i += lanes) {
    hn::Store(hn::Mul(hn::Load(tag, sum + i), shrinks), tag, sum + i);
  }
}

/// Adds keys begin .. begin + count to the rows that see any of them.
void attend_keys(const AttentionTile& tile, std::size_t begin, std::size_t count,
                 const AttentionScratch& scratch) {
  load_keys(tile, begin, count, scratch);
  const std::size_t hidden_positions =
      begin > tile.first_position ? begin - tile.first_position : 0;
  const std::size_t first = hidden_positions * tile.group;
  const std::size_t rows = tile.positions * tile.group - first;
  const std::size_t width = scratch.width;
  float* scores = scratch.scores + first * key_tile;
  float* sum = scratch.sum + first * width;
  multiply({.a = scratch.query + first * width,
            .b = scratch.keys,
            .c = scores,
            .a_stride = width,
            .b_stride = key_tile,
            .c_stride = key_tile,
            .inner = tile.head_dim,
            .accumulate = false},
           rows, key_tile);
  for (std::size_t r = 0; r < rows; ++r) {
    const std::size_t position = tile.first_position + (first + r) / tile.group;
    renew_row(scores + r * key_tile, std::min(position + 1 - begin, count), sum + r * width, width,
              scratch.largest[first + r], scratch.denominator[first + r]);
  }
  multiply({.a = scores,
            .b = scratch.values,
            .c = sum,
            .a_stride = key_tile,
            .b_stride = width,
            .c_stride = width,
            .inner = count,
            .accumulate = true},
           rows, width);
}

void load_query(const AttentionTile& tile, const AttentionScratch& scratch) {
  const std::size_t rows = tile.positions * tile.group;
  const auto scale = static_cast<float>(1 / std::sqrt(static_cast<double>(tile.head_dim)));
  for (std::size_t r = 0; r < rows; ++r) {
    const float* source =
        tile.query + r / tile.group * tile.position_stride + r % tile.group * tile.head_dim;
    float* target = scratch.query + r * scratch.width;
    for (std::size_t i = 0; i < tile.head_dim; ++i) target[i] = source[i] * scale;
  }
  std::fill(scratch.sum, scratch.sum + rows * scratch.width, 0.0F);
  std::fill(scratch.largest, scratch.largest + rows, -std::numeric_limits<float>::infinity());
  std::fill(scratch.denominator, scratch.denominator + rows, 0.0F);
}

void store_out(const AttentionTile& tile, const AttentionScratch& scratch) {
  for (std::size_t r = 0; r < tile.positions * tile.group; ++r) {
    float* target =
        tile.out + r / tile.group * tile.position_stride + r % tile.group * tile.head_dim;
    const float* sum = scratch.sum + r * scratch.width;
    const float scale = 1 / scratch.denominator[r];
    for (std::size_t i = 0; i < tile.head_dim; ++i) target[i] = sum[i] * scale;
  }
}

void attend(const AttentionTile& tile, const AttentionScratch& scratch) {
  load_query(tile, scratch);
  const std::size_t keys = tile.first_position + tile.positions;
  for (std::size_t begin = 0; begin < keys; begin += key_tile) {
    attend_keys(tile, begin, std::min(key_tile, keys - begin), scratch);
  }
  store_out(tile, scratch);
}

}  // namespace
}  // namespace terrace::engine::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace terrace::engine {
namespace {

HWY_EXPORT(attend);

// Two of the widest vectors: the products know no remainder.
constexpr std::size_t width_step = 32;

}  // namespace

std::size_t AttentionScratch::floats(std::size_t rows, std::size_t head_dim) noexcept {
  const std::size_t width = align_up(head_dim, width_step);
  return (key_tile + 1) * width + head_dim * key_tile + rows * (2 * width + key_tile + 2);
}

AttentionScratch AttentionScratch::carve(float* memory, std::size_t rows,
                                         std::size_t head_dim) noexcept {
  const auto take = [&](std::size_t count) { return std::exchange(memory, memory + count); };
  AttentionScratch scratch{};
  scratch.width = align_up(head_dim, width_step);
  scratch.values = take(key_tile * scratch.width);
  scratch.row = take(scratch.width);
  scratch.keys = take(head_dim * key_tile);
  scratch.query = take(rows * scratch.width);
  scratch.sum = take(rows * scratch.width);
  scratch.scores = take(rows * key_tile);
  scratch.largest = take(rows);
  scratch.denominator = take(rows);
  return scratch;
}

void attend_tile(const AttentionTile& tile, float* memory) noexcept {
  HWY_DYNAMIC_DISPATCH(attend)
  (tile, AttentionScratch::carve(memory, tile.positions * tile.group, tile.head_dim));
}

}  // namespace terrace::engine
#endif  // HWY_ONCE
