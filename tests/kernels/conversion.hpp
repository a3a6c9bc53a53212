// A conversion of queries from and to guarded memory, with gaps between tokens.
#pragma once

#include <gtest/gtest.h>

#include <bit>
#include <cstring>
#include <string>

#include "kernels/block_store.hpp"
#include "kernels/guarded.hpp"
#include "kernels/kernel_run.hpp"
#include "terrace/kernels/reference.hpp"

namespace terrace::testing {

struct ConversionCase {
  KvShape shape;
  Dtype from = Dtype::f32;
  Dtype to = Dtype::f32;
  std::size_t tokens = 0;
  std::size_t source_gap = 0;  ///< numbers
  std::size_t target_gap = 0;
  bool aligned = true;
};

inline std::string to_text(const ConversionCase& c) {
  return std::string(to_string(c.from)) + " to " + std::string(to_string(c.to)) + ", " +
         to_text(c.shape) + ", " + std::to_string(c.tokens) + " tokens, gaps " +
         std::to_string(c.source_gap) + " and " + std::to_string(c.target_gap) +
         (c.aligned ? "" : ", not aligned");
}

/// Returns a number of any bits, or one near what rounding decides.
inline float any_number(Rng& rng) {
  const auto half = static_cast<std::uint16_t>(rng.below(0x10000));
  const auto wide = static_cast<std::uint32_t>(rng());
  const auto nudge = static_cast<std::uint32_t>(rng.below(3)) - 1;
  switch (rng.below(4)) {
    case 0:
      return std::bit_cast<float>(wide);
    case 1:
      return std::bit_cast<float>(std::bit_cast<std::uint32_t>(f16_to_f32(half)) + 0x1000 + nudge);
    case 2:
      return std::bit_cast<float>((std::uint32_t{half} << 16) + 0x8000 + nudge);
    default:
      return normal(rng);
  }
}

class Conversion {
 public:
  explicit Conversion(const ConversionCase& given)
      : case_(given),
        source_(room(given.from, given.source_gap)),
        target_(room(given.to, given.target_gap), untouched),
        expected_(target_.size(), untouched) {}

  [[nodiscard]] ConvertQueries op() {
    return {.shape = case_.shape,
            .source = source_.data() + offset(case_.from),
            .from = case_.from,
            .source_stride = stride(case_.from, case_.source_gap),
            .target = target_.data() + offset(case_.to),
            .to = case_.to,
            .target_stride = stride(case_.to, case_.target_gap),
            .tokens = case_.tokens};
  }

  [[nodiscard]] std::size_t numbers() const { return case_.tokens * token_numbers(); }

  /// Makes number i of as many of these bits as the source type has.
  void set_bits(std::size_t i, std::uint32_t bits) {
    const std::size_t size = size_bytes(case_.from);
    std::memcpy(source_.data() + offset(case_.from) + place(i, case_.from, case_.source_gap), &bits,
                size);
  }

  /// Returns the bits of number i of the result.
  [[nodiscard]] std::uint32_t bits(std::size_t i) {
    std::uint32_t bits = 0;
    std::memcpy(&bits, at(i), size_bytes(case_.to));
    return bits;
  }
  [[nodiscard]] std::byte* at(std::size_t i) {
    return target_.data() + offset(case_.to) + place(i, case_.to, case_.target_gap);
  }
  [[nodiscard]] Guarded<std::byte>& target() { return target_; }

  void fill(std::uint64_t stream) {
    Rng rng(seed(), {101, stream});
    for (std::size_t i = 0; i < numbers(); ++i) {
      const auto bits = std::bit_cast<std::uint32_t>(any_number(rng));
      set_bits(i, case_.from == Dtype::f32 ? bits : static_cast<std::uint32_t>(rng.below(0x10000)));
    }
  }

  /// Compares what the target has, gaps included, with what the reference writes.
  void expect_right() {
    ConvertQueries op = this->op();
    op.target = expected_.data() + offset(case_.to);
    kernels::reference::convert_queries(op);
    EXPECT_TRUE(target_.intact());
    for (std::size_t i = 0; i < target_.size(); ++i) {
      ASSERT_EQ(target_[i], expected_[i]) << "byte " << i << ", " << to_text(case_);
    }
  }

 private:
  static constexpr std::byte untouched{0xee};

  [[nodiscard]] std::size_t token_numbers() const {
    return case_.shape.query_heads * case_.shape.head_dim;
  }
  [[nodiscard]] std::size_t offset(Dtype dtype) const {
    return case_.aligned ? 0 : odd_offset(dtype);
  }
  [[nodiscard]] std::size_t stride(Dtype dtype, std::size_t gap) const {
    return (token_numbers() + gap) * size_bytes(dtype);
  }
  [[nodiscard]] std::size_t place(std::size_t i, Dtype dtype, std::size_t gap) const {
    return i / token_numbers() * stride(dtype, gap) + i % token_numbers() * size_bytes(dtype);
  }
  [[nodiscard]] std::size_t room(Dtype dtype, std::size_t gap) const {
    return offset(dtype) + case_.tokens * stride(dtype, gap);
  }

  ConversionCase case_;
  Guarded<std::byte> source_;
  Guarded<std::byte> target_;
  Guarded<std::byte> expected_;
};

}  // namespace terrace::testing
