#include "piece_rows.hpp"

#include <gtest/gtest.h>

namespace terrace::engine {
namespace {

TEST(PieceRows, OfATokenThatDecodesAreOneRow) {
  const PieceRows rows = PieceRows::of({300, 1}, 1);
  EXPECT_EQ(rows.before, 0U);
  EXPECT_EQ(rows.count, 1U);
  const PieceRows::Chunk chunk = rows.chunk(0, 512);
  EXPECT_EQ(chunk.computed.first_position, 300U);
  EXPECT_EQ(chunk.computed.count, 1U);
  EXPECT_EQ(chunk.tokens, 1U);
}

TEST(PieceRows, GiveEachPositionTheSameRowOfAWholeTile) {
  constexpr std::size_t tile = 128;
  for (const std::size_t first : {0U, 1U, 127U, 128U, 300U}) {
    for (const std::size_t count : {1U, 127U, 128U, 129U, 500U}) {
      SCOPED_TRACE(fmt::format("{} from {} on", count, first));
      const PieceRows piece = PieceRows::of({first, count}, tile);
      EXPECT_EQ(piece.before, first % tile);
      EXPECT_EQ(piece.count % tile, 0U);
      EXPECT_GE(piece.count, piece.before + count);
      EXPECT_LT(piece.count, piece.before + count + tile);
    }
  }
}

TEST(PieceRows, ComeInChunksThatHaveEachTokenOnce) {
  constexpr std::size_t tile = 128;
  for (const std::size_t first : {0U, 1U, 127U, 300U}) {
    for (const std::size_t count : {1U, 128U, 129U, 500U}) {
      for (const std::size_t rows_max : {tile, 2 * tile, 8 * tile}) {
        SCOPED_TRACE(fmt::format("{} from {} on, by {}", count, first, rows_max));
        const PieceRows piece = PieceRows::of({first, count}, tile);
        std::size_t tokens = 0;
        for (std::size_t row = 0; row < piece.count; row += rows_max) {
          const PieceRows::Chunk chunk = piece.chunk(row, rows_max);
          EXPECT_EQ(chunk.row, row);
          EXPECT_EQ(chunk.first_token, tokens);
          EXPECT_GT(chunk.tokens, 0U);
          EXPECT_EQ(chunk.computed.first_position % tile, 0U);
          EXPECT_EQ(chunk.computed.count, std::min(rows_max, piece.count - row));
          // A token's position is that of its row.
          EXPECT_EQ(chunk.computed.first_position + chunk.before(piece), first + tokens);
          EXPECT_LE(chunk.before(piece) + chunk.tokens, chunk.computed.count);
          tokens += chunk.tokens;
        }
        EXPECT_EQ(tokens, count);
      }
    }
  }
}

}  // namespace
}  // namespace terrace::engine
