#include "prompt_place.hpp"

#include <gtest/gtest.h>

namespace terrace::engine {
namespace {

TEST(PromptPlace, OfAWholePromptIsThatOfItsRows) {
  const PromptPlace whole;
  const RowRange rows = whole.computed({300, 40});
  EXPECT_EQ(rows.first_position, 300U);
  EXPECT_EQ(rows.count, 40U);
  EXPECT_EQ(whole.row_of(300), 300U);
  EXPECT_EQ(whole.place_of(300), 300U);
}

TEST(PromptPlace, OfAPieceGivesEachPositionTheSameRowOfAWholeTile) {
  constexpr std::size_t tile = 128;
  for (const std::size_t first : {0U, 1U, 127U, 128U, 300U}) {
    for (const std::size_t count : {1U, 127U, 128U, 129U, 500U}) {
      SCOPED_TRACE(fmt::format("{} from {} on", count, first));
      const PromptPlace piece = PromptPlace::of_piece({first, count}, tile);
      EXPECT_LE(piece.rows, PromptPlace::rows_max(count, tile));
      const RowRange rows = piece.computed({first, count});
      EXPECT_EQ(rows.first_position % tile, 0U);
      EXPECT_EQ(rows.count % tile, 0U);
      EXPECT_EQ(piece.row_of(rows.first_position), 0U);
      EXPECT_LE(rows.first_position, first);
      EXPECT_GE(rows.first_position + rows.count, first + count);
      EXPECT_EQ(piece.place_of(first), 0U);
      for (std::size_t position = first; position < first + count; ++position) {
        EXPECT_EQ(piece.row_of(position) % tile, position % tile);
      }
    }
  }
}

}  // namespace
}  // namespace terrace::engine
