// Rows of several positions in one call, whichever tier each lies in.
#include <gmock/gmock.h>

#include <algorithm>
#include <array>

#include "runtime/scenario.hpp"

namespace terrace {
namespace {

using testing::Drive;
using testing::Scenario;
using testing::Traffic;

class ReadRows : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(drive_.prefill(200).has_value());
    ASSERT_TRUE(drive_.steps(3).has_value());
  }

  /// The error of reading one row into so many bytes.
  Error refused(LayerId layer, HeadId head, std::uint32_t position, std::size_t bytes) {
    std::vector<std::byte> target(bytes);
    const Status read = drive_.sequence().read_rows(layer, head, std::array{position}, target);
    return read ? Error{.code = Errc::corrupt} : read.error();
  }

  Scenario scenario_;
  std::unique_ptr<Runtime> runtime_ = scenario_.open();
  Traffic traffic_{scenario_.runtime.shape, 1};
  Drive drive_{*runtime_, traffic_};
};

TEST_F(ReadRows, TakesPositionsInAnyOrderAndTwice) {
  // Sinks, middle and window.
  const std::array<std::uint32_t, 6> positions{202, 1, 100, 1, 50, 199};
  const std::size_t bytes = scenario_.runtime.shape.row_bytes();
  std::vector<std::byte> rows(positions.size() * bytes);
  ASSERT_TRUE(drive_.sequence().read_rows(LayerId{1}, HeadId{1}, positions, rows).has_value());
  for (std::size_t i = 0; i < positions.size(); ++i) {
    const std::vector<std::byte> right = traffic_.row(1, 1, positions[i]);
    EXPECT_TRUE(std::equal(right.begin(), right.end(),
                           rows.begin() + static_cast<std::ptrdiff_t>(i * bytes)))
        << positions[i];
  }
}

TEST_F(ReadRows, OfNoPositionsReadsNothing) {
  EXPECT_TRUE(drive_.sequence().read_rows(LayerId{0}, HeadId{0}, {}, {}).has_value());
}

TEST_F(ReadRows, RefusesWhatIsNotThere) {
  const std::size_t bytes = scenario_.runtime.shape.row_bytes();
  for (const Error& error :
       {refused(LayerId{2}, HeadId{0}, 0, bytes), refused(LayerId{0}, HeadId{2}, 0, bytes),
        refused(LayerId{0}, HeadId{0}, 203, bytes), refused(LayerId{0}, HeadId{0}, 0, bytes - 1)}) {
    EXPECT_EQ(error.code, Errc::invalid_argument);
    EXPECT_THAT(std::string(error.message()), ::testing::HasSubstr("read_rows of sequence 0: "));
  }
}

}  // namespace
}  // namespace terrace
