// Conversions of queries and outputs give the bits of the scalar conversions.
#include <gtest/gtest.h>

#include <cmath>
#include <span>
#include <vector>

#include "kernels/conversion.hpp"
#include "kernels/finds_fault.hpp"

namespace terrace {
namespace {

using testing::Conversion;
using testing::ConversionCase;
using testing::make_shape;
using testing::run;

constexpr Dtype dtypes[] = {Dtype::f32, Dtype::f16, Dtype::bf16};

TEST(ConvertQueries, GivesTheBitsOfScalarConversionsWhateverTheLayout) {
  std::size_t number = 0;
  for (const std::size_t head_dim : {1U, 3U, 64U, 80U}) {
    for (const std::size_t tokens : {0U, 1U, 2U, 9U}) {
      for (const auto& [source_gap, target_gap] : {std::pair{0U, 0U}, {5U, 0U}, {0U, 8U}}) {
        for (const bool aligned : {true, false}) {
          for (const Dtype from : dtypes) {
            for (const Dtype to : dtypes) {
              if (!testing::takes_shape(number++)) continue;
              Conversion conversion({.shape = make_shape(3, 1, head_dim, Dtype::f16),
                                     .from = from,
                                     .to = to,
                                     .tokens = tokens,
                                     .source_gap = source_gap,
                                     .target_gap = target_gap,
                                     .aligned = aligned});
              conversion.fill(number);
              run(conversion.op());
              ASSERT_NO_FATAL_FAILURE(conversion.expect_right()) << testing::seed_text();
            }
          }
        }
      }
    }
  }
}

TEST(ConvertQueries, UsesNoStrideOfOneToken) {
  Conversion conversion(
      {.shape = make_shape(2, 1, 12, Dtype::f16), .to = Dtype::bf16, .tokens = 1});
  conversion.fill(0);
  ConvertQueries op = conversion.op();
  op.source_stride = op.target_stride = 0;
  run(op);
  conversion.expect_right();
}

// More than one part on the host.
TEST(ConvertQueries, ConvertsEveryHalf) {
  for (const Dtype from : {Dtype::f16, Dtype::bf16}) {
    for (const Dtype to : dtypes) {
      Conversion conversion(
          {.shape = make_shape(4, 4, 64, Dtype::f16), .from = from, .to = to, .tokens = 64});
      ASSERT_EQ(conversion.numbers(), 0x10000U);
      for (std::uint32_t bits = 0; bits < 0x10000; ++bits) conversion.set_bits(bits, bits);
      run(conversion.op());
      ASSERT_NO_FATAL_FAILURE(conversion.expect_right());
    }
  }
}

/// Converts f32 of these bits, and returns the bits of what comes out.
std::vector<std::uint32_t> converted(std::span<const std::uint32_t> bits, Dtype from, Dtype to) {
  const KvShape shape = make_shape(2, 4, 64, Dtype::f16);
  Conversion conversion(
      {.shape = shape, .from = from, .to = to, .tokens = bits.size() / (8 * 64) + 1});
  for (std::size_t i = 0; i < bits.size(); ++i) conversion.set_bits(i, bits[i]);
  run(conversion.op());
  conversion.expect_right();
  std::vector<std::uint32_t> results(bits.size());
  for (std::size_t i = 0; i < bits.size(); ++i) results[i] = conversion.bits(i);
  return results;
}

/// Every so many of the neighbours among halves are looked at.
std::uint32_t step() { return testing::takes_shape(1) ? 1 : 37; }

// A number half-way between two goes to the even one, and a nudge decides.
TEST(ConvertQueries, RoundsToTheNearestHalfWithTiesToEven) {
  for (const Dtype to : {Dtype::f16, Dtype::bf16}) {
    const std::uint32_t infinity = to == Dtype::f16 ? 0x7c00 : 0x7f80;
    std::vector<std::uint32_t> numbers;
    std::vector<std::uint32_t> expected;
    for (std::uint32_t half = 0; half + 1 < infinity; half += step()) {
      const auto low = to == Dtype::f16 ? f16_to_f32(static_cast<std::uint16_t>(half))
                                        : bf16_to_f32(static_cast<std::uint16_t>(half));
      const auto high = to == Dtype::f16 ? f16_to_f32(static_cast<std::uint16_t>(half + 1))
                                         : bf16_to_f32(static_cast<std::uint16_t>(half + 1));
      const auto middle = std::bit_cast<std::uint32_t>(low + (high - low) / 2);
      for (const std::uint32_t sign : {0U, 1U}) {
        const std::uint32_t signed_half = half | sign << 15;
        for (const std::uint32_t number : {middle - 1, middle, middle + 1}) {
          numbers.push_back(number | sign << 31);
        }
        expected.insert(expected.end(), {signed_half, signed_half + half % 2, signed_half + 1});
      }
    }
    EXPECT_TRUE(converted(numbers, Dtype::f32, to) == expected) << to_string(to);
  }
}

TEST(ConvertQueries, NarrowsSpecialNumbers) {
  struct Special {
    std::uint32_t f32;
    std::uint32_t f16;
    std::uint32_t bf16;
  };
  constexpr Special specials[] = {
      {0x00000000, 0x0000, 0x0000}, {0x80000000, 0x8000, 0x8000}, {0x3f800000, 0x3c00, 0x3f80},
      {0x00000001, 0x0000, 0x0000}, {0x007fffff, 0x0000, 0x0080},  // subnormals of f32
      {0x33000000, 0x0000, 0x3300}, {0x33000001, 0x0001, 0x3300},  // half the least of f16
      {0xb3800000, 0x8001, 0xb380}, {0x387fffff, 0x0400, 0x3880},  // the least of f16, its normals
      {0x477fe000, 0x7bff, 0x4780}, {0x477fefff, 0x7bff, 0x4780},  // the largest of f16
      {0x477ff000, 0x7c00, 0x4780}, {0xc77ff000, 0xfc00, 0xc780},  // half-way to the next
      {0x7f7f7fff, 0x7c00, 0x7f7f}, {0x7f7f8000, 0x7c00, 0x7f80},  // the largest of bf16
      {0x7f800000, 0x7c00, 0x7f80}, {0xff800000, 0xfc00, 0xff80},  // infinities
      {0x7fc00000, 0x7e00, 0x7fc0}, {0x7f800001, 0x7e00, 0x7fc0},  // NaN, quiet and signalling
      {0xffabcdef, 0xfe00, 0xffeb}, {0x7fffffff, 0x7e00, 0x7fff}};
  std::vector<std::uint32_t> numbers;
  for (const Special& each : specials) numbers.push_back(each.f32);
  const auto f16 = converted(numbers, Dtype::f32, Dtype::f16);
  const auto bf16 = converted(numbers, Dtype::f32, Dtype::bf16);
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    EXPECT_EQ(f16[i], specials[i].f16) << std::hex << numbers[i];
    EXPECT_EQ(bf16[i], specials[i].bf16) << std::hex << numbers[i];
  }
  EXPECT_EQ(converted(numbers, Dtype::f32, Dtype::f32), numbers);
}

TEST(ConvertQueries, WidensSpecialNumbers) {
  const std::vector<std::uint32_t> halves{0x0000, 0x8000, 0x0001, 0x83ff, 0x0400, 0x7bff,
                                          0x7c00, 0xfc00, 0x7e00, 0x7c01, 0xfd55};
  const std::vector<std::uint32_t> wide{0x00000000, 0x80000000, 0x33800000, 0xb87fc000,
                                        0x38800000, 0x477fe000, 0x7f800000, 0xff800000,
                                        0x7fc00000, 0x7f802000, 0xffaaa000};
  EXPECT_EQ(converted(halves, Dtype::f16, Dtype::f32), wide);
  std::vector<std::uint32_t> shifted = halves;
  for (std::uint32_t& each : shifted) each <<= 16;
  EXPECT_EQ(converted(halves, Dtype::bf16, Dtype::f32), shifted);
}

TEST(ConvertQueries, AWrongNumberIsFound) {
  for (const Dtype to : dtypes) {
    Conversion conversion({.shape = make_shape(3, 1, 10, Dtype::f16),
                           .from = Dtype::bf16,
                           .to = to,
                           .tokens = 4,
                           .target_gap = 3});
    conversion.fill(0);
    run(conversion.op());
    conversion.expect_right();
    const std::size_t last = conversion.numbers() - 1;
    for (std::byte* const wrong : {conversion.at(0), conversion.at(last / 2), conversion.at(last),
                                   conversion.at(last) + size_bytes(to),  // in a gap
                                   conversion.target().data() - 1,
                                   conversion.target().data() + conversion.target().size()}) {
      *wrong ^= std::byte{1};
      EXPECT_TRUE(testing::finds_fault([&] { conversion.expect_right(); }));
      *wrong ^= std::byte{1};
    }
  }
}

}  // namespace
}  // namespace terrace
