#include "terrace/core/result.hpp"

#include <gmock/gmock.h>

#include <string>
#include <type_traits>

namespace terrace {
namespace {

using testing::EndsWith;

static_assert(std::is_trivially_copyable_v<Error>);

Status refuse(std::string_view name) {
  return fail(Errc::invalid_argument, "'{}' is not known", name);
}

Result<int> twice(Result<int> input) {
  TERRACE_ASSIGN(const int value, input);
  return 2 * value;
}

TEST(Error, CarriesCodeTextAndPlace) {
  const Status status = refuse("lru2");
  ASSERT_FALSE(status.has_value());
  EXPECT_EQ(status.error().code, Errc::invalid_argument);
  EXPECT_EQ(status.error().message(), "'lru2' is not known");
  EXPECT_THAT(std::string(status.error().where.file_name()), EndsWith("result_test.cpp"));
}

TEST(Error, CutsTextThatDoesNotFit) {
  const Error error = make_error(Errc::io_error, "{}", std::string(1000, 'x'));
  EXPECT_EQ(error.message().size(), Error::text_capacity);
}

TEST(Error, TakesContextInFront) {
  EXPECT_EQ(refuse("x").error().while_doing("reading a.yaml").message(),
            "reading a.yaml: 'x' is not known");
}

TEST(TerraceAssign, PassesValuesAndErrorsOn) {
  EXPECT_EQ(twice(21).value(), 42);
  EXPECT_EQ(twice(fail(Errc::not_ready, "later")).error().code, Errc::not_ready);
}

}  // namespace
}  // namespace terrace
