#include "host/code_logits.hpp"

#include <algorithm>
#include <cstring>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "host/code_logits.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "host/vectors-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace terrace::kernels::host::HWY_NAMESPACE {

using WordTag = hn::Repartition<std::int16_t, FloatTag>;
using SumTag = hn::Repartition<std::int32_t, FloatTag>;
using ByteTag = hn::Rebind<std::uint8_t, WordTag>;
constexpr std::size_t block = hn::MaxLanes(WordTag());  // bytes of codes at once

constexpr std::size_t dims_max = 1024;  // KvShape::head_dim_max
constexpr std::size_t queries_max = queries_of_codes_max;

/// How the bytes of a code are read: `tokens` codes side by side, `span` bytes of each.
struct Reading {
  std::size_t tokens;
  std::size_t span;
};

/// Short codes are read two at once where a vector has room for that.
constexpr Reading reading_of(std::size_t code_bytes) {
  return lanes == 16 && code_bytes <= block / 2 ? Reading{2, block / 2} : Reading{1, block};
}

/// Queries in the order in which codes are read: for each span of bytes the numbers that lie in the
/// first bits of each, then in the next; zeros beyond a code's end.
struct PackedQueries {
  alignas(64) std::int16_t numbers[queries_max][dims_max + 8 * block];
  alignas(16) float offsets[queries_max];  // of products: codes c stand for 2 c - (2^bits - 1)
  alignas(16) float units[queries_max];
};

void pack(const CodeLogits& op, PackedQueries& packed) {
  const auto [tokens, span] = reading_of(op.code_bytes);
  const std::size_t spans = (op.code_bytes + span - 1) / span;
  const auto top = static_cast<float>((1U << op.bits) - 1);
  for (std::size_t q = 0; q < queries_max; ++q) {
    const float* const query = op.queries + q * op.dims;
    const std::size_t dims = q < op.query_count ? op.dims : 0;
    float sum = 0;
    for (std::size_t i = 0; i < dims; ++i) sum += query[i];
    packed.offsets[q] = top * sum;
    packed.units[q] = q < op.query_count ? op.units[q] : 0.0F;
    std::int16_t* to = packed.numbers[q];
    for (std::size_t s = 0; s < spans; ++s) {
      const std::size_t begin = s * span;
      const std::size_t bytes = std::min(span, op.code_bytes - begin);
      for (std::size_t first = begin; first < 8 / op.bits * op.code_bytes;
           first += op.code_bytes, to += block) {
        std::fill_n(to, block, std::int16_t{0});
        for (std::size_t i = 0; i < bytes && first + i < dims; ++i) {
          for (std::size_t t = 0; t < tokens; ++t) {
            to[t * span + i] = static_cast<std::int16_t>(query[first + i]);
          }
        }
      }
    }
  }
}

/// Sums of products with each query.
template <std::size_t queries>
struct Sums {
  using Vector = hn::Vec<SumTag>;
  Vector even[queries_max];
  Vector odd[queries_max];

  HWY_INLINE Sums() {
    for (std::size_t q = 0; q < queries_max; ++q) even[q] = odd[q] = hn::Zero(SumTag());
  }

  /// Adds the products of what lies `bits * k` bits up in each byte, and of all further.
  template <std::size_t bits, std::size_t k = 0>
  HWY_INLINE void add(hn::Vec<WordTag> words, const PackedQueries& packed, std::size_t at) {
    if constexpr (k * bits < 8) {
      const WordTag tag;
      const auto codes = hn::And(hn::ShiftRight<k * bits>(words),
                                 hn::Set(tag, static_cast<std::int16_t>((1U << bits) - 1)));
#pragma GCC unroll 4
      for (std::size_t q = 0; q < queries; ++q) {
        even[q] = hn::ReorderWidenMulAccumulate(
            SumTag(), codes, hn::Load(tag, packed.numbers[q] + at), even[q], odd[q]);
      }
      add<bits, k + 1>(words, packed, at + block);
    }
  }

  [[nodiscard]] HWY_INLINE Floats of(std::size_t q) const {
    return hn::ConvertTo(FloatTag(), hn::Add(even[q], odd[q]));
  }
};

/// Writes the logits of a code, given the sums of its products.
template <std::size_t queries>
HWY_INLINE void write(const CodeLogits& op, const PackedQueries& packed, std::size_t i, Quad sums) {
  const QuadTag tag;
  const Quad product = hn::Sub(hn::Add(sums, sums), hn::Load(tag, packed.offsets));
  alignas(16) float logits[4];
  hn::Store(hn::Mul(hn::Set(tag, op.factors[i]), hn::Mul(hn::Load(tag, packed.units), product)),
            tag, logits);
  for (std::size_t q = 0; q < queries; ++q) op.logits[q * op.stride + i] = logits[q];
}

/// Reads `count` bytes of a code, and zeros after them.
template <typename Tag>
HWY_INLINE hn::Vec<Tag> load_some(Tag tag, const std::byte* code, std::size_t count) {
  constexpr std::size_t most = hn::MaxLanes(tag);
  if (count >= most) return hn::LoadU(tag, reinterpret_cast<const std::uint8_t*>(code));
  alignas(64) std::uint8_t bytes[most] = {};
  // Lengths that codes often have are known to the compiler.
  if (count == 8) {
    std::memcpy(bytes, code, std::min<std::size_t>(8, most));
  } else {
    std::memcpy(bytes, code, count);
  }
  return hn::Load(tag, bytes);
}

template <std::size_t bits, std::size_t queries>
HWY_INLINE void write_one_by_one(const CodeLogits& op, const PackedQueries& packed) {
  for (std::size_t i = 0; i < op.count; ++i) {
    Sums<queries> sums;
    std::size_t at = 0;
    for (std::size_t begin = 0; begin < op.code_bytes; begin += block) {
      const auto bytes = load_some(ByteTag(), op.codes[i] + begin, op.code_bytes - begin);
      sums.template add<bits>(hn::PromoteTo(WordTag(), bytes), packed, at);
      at += 8 / bits * block;
    }
    write<queries>(op, packed, i, sums_of_lanes(sums.of(0), sums.of(1), sums.of(2), sums.of(3)));
  }
}

#if HWY_MAX_BYTES >= 64
template <std::size_t bits, std::size_t queries>
HWY_INLINE void write_two_at_once(const CodeLogits& op, const PackedQueries& packed) {
  const hn::Half<ByteTag> half;
  const hn::Half<FloatTag> half_floats;
  for (std::size_t i = 0; i < op.count; i += 2) {
    const std::size_t second = std::min(i + 1, op.count - 1);
    const auto low = load_some(half, op.codes[i], op.code_bytes);
    const auto high = load_some(half, op.codes[second], op.code_bytes);
    Sums<queries> sums;
    sums.template add<bits>(hn::PromoteTo(WordTag(), hn::Combine(ByteTag(), high, low)), packed, 0);
    const Floats all = sums_of_blocks(sums.of(0), sums.of(1), sums.of(2), sums.of(3));
    write<queries>(op, packed, i, fold_blocks(half_floats, hn::LowerHalf(half_floats, all)));
    write<queries>(op, packed, second, fold_blocks(half_floats, hn::UpperHalf(half_floats, all)));
  }
}
#endif

template <std::size_t bits, std::size_t queries>
HWY_INLINE void write_for(const CodeLogits& op, const PackedQueries& packed) {
#if HWY_MAX_BYTES >= 64
  if (reading_of(op.code_bytes).tokens == 2) return write_two_at_once<bits, queries>(op, packed);
#endif
  write_one_by_one<bits, queries>(op, packed);
}

template <std::size_t bits>
HWY_INLINE void write_bits(const CodeLogits& op, const PackedQueries& packed) {
  if (op.query_count == 4) return write_for<bits, 4>(op, packed);
  if (op.query_count == 3) return write_for<bits, 3>(op, packed);
  if (op.query_count == 2) return write_for<bits, 2>(op, packed);
  return write_for<bits, 1>(op, packed);
}

void write_logits_of_codes(const CodeLogits& op) {
  PackedQueries packed;
  pack(op, packed);
  return op.bits == 1 ? write_bits<1>(op, packed) : write_bits<2>(op, packed);
}

}  // namespace terrace::kernels::host::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace terrace::kernels::host {

HWY_EXPORT(write_logits_of_codes);

void write_code_logits(const CodeLogits& op) noexcept {
  HWY_DYNAMIC_DISPATCH(write_logits_of_codes)(op);
}

}  // namespace terrace::kernels::host
#endif  // HWY_ONCE
