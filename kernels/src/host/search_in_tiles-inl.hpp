// The search in registers of two dimensions, whatever they are: a CPU's (AMX), or the tests' own.
// 16 rows meet two blocks of 16 centroids at a time, 32 dimensions a step. To be included where the
// instructions are allowed that it is to be compiled to.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>

#include "host/amx_search.hpp"

namespace terrace::kernels::host {

/// One number for each of 16 rows.
using Lanes = float __attribute__((vector_size(64), may_alias));
using LaneLabels = std::uint32_t __attribute__((vector_size(64), may_alias));

/// Sums of 32 centroids and 16 rows: [centroids' half, centroid], a lane a row.
struct TileSums {
  Lanes of[2][16];
};

// What follows is compiled for each kind of tiles, because each allows other instructions.

/// What is known of 16 rows: the least distance so far, and whose it is.
template <typename Tiles>
struct Nearest {
  Lanes distances = Lanes{} + std::numeric_limits<float>::infinity();
  LaneLabels labels{};
};

template <typename Tiles>
[[gnu::always_inline]] inline void keep_nearer(Nearest<Tiles>& nearest, Lanes found,
                                               LaneLabels labels) {
  const auto nearer = found < nearest.distances;
  nearest.distances = nearer ? found : nearest.distances;
  nearest.labels = nearer ? labels : nearest.labels;
}

/// Lowers the distances of 16 rows to those of 32 centroids, whose first has label `first`.
template <typename Tiles>
[[gnu::always_inline]] inline void keep_nearest(Nearest<Tiles>& nearest, const TileSums& sums,
                                                const float* addends,
                                                std::uint32_t first) noexcept {
  // Four chains of comparisons that do not wait for each other, of eight centroids each.
  Nearest<Tiles> of_eight[4];
  LaneLabels number{};
#pragma GCC unroll 8
  for (std::size_t i = 0; i < 8; ++i, number += 1) {
#pragma GCC unroll 4
    for (std::size_t eight = 0; eight < 4; ++eight) {
      const Lanes found = sums.of[eight / 2][eight % 2 * 8 + i] + addends[eight * 8 + i];
      keep_nearer(of_eight[eight], found, number);
    }
  }
  for (std::uint32_t eight = 0; eight < 4; ++eight) {
    const Nearest<Tiles>& found = of_eight[eight];
    keep_nearer(nearest, found.distances, found.labels + (first + eight * 8));
  }
}

/// search_amx() with `Tiles` for registers, which hold the sums of two turns:
///   begin<turn>()                         makes sums zero
///   add<turn>(coefficients, rows, steps)  adds products of that many times 32 dimensions
///   store<turn>(sums)
/// A turn's sums are stored while tiles make those of the next, and looked through while they make
/// those after that: tiles wait for nothing.
template <typename Tiles>
class SearchInTiles {
 public:
  SearchInTiles(Tiles& tiles, const AmxSearch& search) noexcept
      : tiles_(tiles), search_(search), steps_(search.shape.steps()) {}

  void run(std::uint32_t* labels) noexcept {
    Order order(search_);
    std::size_t left = order.count();
    for (; left > 1; left -= 2) {
      take_turn<0>(order.next());
      take_turn<1>(order.next());
    }
    if (left == 1) {
      take_turn<0>(order.next());
      end<1>();
    } else {
      end<0>();
    }
    for (std::size_t row = 0; row < search_.row_count; row += amx_rows) {
      const std::size_t count = std::min(amx_rows, search_.row_count - row);
      std::memcpy(labels + row, &nearest_[row / amx_rows].labels, count * sizeof(std::uint32_t));
    }
  }

 private:
  struct Blocks {
    std::size_t rows;
    std::size_t centroids;
  };

  /// All rows against as many centroids as the first cache keeps, then against the next. Almost
  /// without branches: where one is guessed wrong the tiles stand still.
  class Order {
   public:
    explicit Order(const AmxSearch& search) noexcept
        : row_blocks_(divide_up(search.row_count, amx_rows)),
          centroid_blocks_(divide_up(search.centroid_count, amx_centroids)),
          at_once_(std::max(bytes_at_once / search.shape.centroid_block_bytes(), std::size_t{1})),
          end_(std::min(at_once_, centroid_blocks_)) {}

    [[nodiscard]] std::size_t count() const noexcept { return row_blocks_ * centroid_blocks_; }

    [[gnu::always_inline]] Blocks next() noexcept {
      const Blocks blocks = at_;
      const bool ends_rows = ++at_.centroids == end_;
      at_.centroids = ends_rows ? begin_ : at_.centroids;
      at_.rows += ends_rows ? 1 : 0;
      if (at_.rows == row_blocks_) {
        begin_ = end_;
        end_ = std::min(end_ + at_once_, centroid_blocks_);
        at_ = {.rows = 0, .centroids = begin_};
      }
      return blocks;
    }

   private:
    static constexpr std::size_t bytes_at_once = 20480;

    std::size_t row_blocks_;
    std::size_t centroid_blocks_;
    std::size_t at_once_;
    std::size_t begin_ = 0;
    std::size_t end_;
    Blocks at_{0, 0};
  };

  /// Sums in memory, and of what.
  struct Made {
    TileSums sums;
    Blocks of;
  };

  template <int turn>
  [[gnu::always_inline]] void take_turn(Blocks blocks) noexcept {
    multiply<turn>(search_.rows + blocks.rows * search_.shape.row_block_bytes(),
                   centroids(blocks.centroids));
    if (made_ > 0) tiles_.template store<1 - turn>(turns_[1 - turn].sums);
    if (made_ > 1) keep(turns_[turn]);
    turns_[turn].of = blocks;
    ++made_;
  }

  /// Adds up the products of all dimensions: of numbers split in two, those that count.
  template <int turn>
  [[gnu::always_inline]] void multiply(const std::byte* rows,
                                       const std::byte* coefficients) noexcept {
    constexpr std::size_t tile = AmxShape::tile_bytes;
    tiles_.template begin<turn>();
    tiles_.template add<turn>(coefficients, rows, steps_);
    if (search_.shape.numbers == AmxNumbers::split) {
      tiles_.template add<turn>(coefficients + 2 * steps_ * tile, rows, steps_);
      tiles_.template add<turn>(coefficients, rows + steps_ * tile, steps_);
    }
  }

  /// `turn` would be the next.
  template <int turn>
  void end() noexcept {
    if (made_ > 0) tiles_.template store<1 - turn>(turns_[1 - turn].sums);
    if (made_ > 1) keep(turns_[turn]);
    if (made_ > 0) keep(turns_[1 - turn]);
  }

  [[gnu::always_inline]] void keep(const Made& made) noexcept {
    const std::byte* const addends = centroids(made.of.centroids) + search_.shape.addends_offset();
    keep_nearest(nearest_[made.of.rows], made.sums, reinterpret_cast<const float*>(addends),
                 static_cast<std::uint32_t>(made.of.centroids * amx_centroids));
  }
  [[nodiscard]] const std::byte* centroids(std::size_t block) const noexcept {
    return search_.centroids + block * search_.shape.centroid_block_bytes();
  }

  Tiles& tiles_;
  const AmxSearch& search_;
  std::size_t steps_;
  std::array<Nearest<Tiles>, search_rows_max / amx_rows> nearest_;
  Made turns_[2];
  std::size_t made_ = 0;
};

}  // namespace terrace::kernels::host
