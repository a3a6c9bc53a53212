#include "terrace/core/bytes.hpp"

#include <gmock/gmock.h>

namespace terrace {
namespace {

TEST(ParseSize, ReadsBinaryAndDecimalUnits) {
  EXPECT_EQ(parse_size("4096").value(), 4096U);
  EXPECT_EQ(parse_size("64KiB").value(), 65536U);
  EXPECT_EQ(parse_size(" 1.5 MiB ").value(), 1572864U);
  EXPECT_EQ(parse_size("25GB").value(), 25'000'000'000U);
}

TEST(ParseSize, NamesWhatItCouldNotRead) {
  for (const char* text : {"", "GiB", "-1", "12 parsecs", "1e300", "nan"}) {
    const auto size = parse_size(text);
    ASSERT_FALSE(size.has_value()) << text;
    EXPECT_EQ(size.error().code, Errc::invalid_argument);
    EXPECT_THAT(std::string(size.error().message()), testing::HasSubstr(text));
  }
}

TEST(FormatSize, IsReadBackByParseSize) {
  for (const std::size_t bytes : {std::size_t{0}, std::size_t{512}, std::size_t{1} << 20}) {
    EXPECT_EQ(parse_size(format_size(bytes)).value(), bytes);
  }
}

TEST(CheckedMultiply, RefusesAProductBeyond64Bits) {
  EXPECT_EQ(checked_multiply(1U << 20, 1U << 20).value(), std::size_t{1} << 40);
  EXPECT_EQ(checked_multiply(std::size_t{1} << 40, std::size_t{1} << 40).error().code,
            Errc::out_of_memory);
}

}  // namespace
}  // namespace terrace
