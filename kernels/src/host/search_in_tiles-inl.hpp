// The search in registers of two dimensions: a CPU's (AMX), or the tests' own. 16 rows meet 16
// centroids at a time, 32 dimensions a step. Include it in code that is compiled for the
// instructions in question.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <utility>

#include "host/amx_search.hpp"
#include "host/nearest_in_lanes-inl.hpp"
#include "host/prefetch.hpp"

namespace terrace::kernels::host {

/// Sums of 16 rows and 16 centroids: [row], a lane a centroid.
struct TileSums {
  Lanes of[amx_rows];
};

/// search_amx() with `Tiles` for registers, eight of them, numbered from 0:
///   load<tile>(from, stride)                loads 16 lines, `stride` bytes apart
///   add_products<sums, rows, centroids>()   multiplies two tiles, and adds to a third
///   store<tile>(sums)
///   lower(distance, found)                  makes distance `found` where that is less
/// `Nearest` is the state kept for a row. `held_steps` is the number of a row's steps if all its
/// numbers stay in tiles, otherwise 0.
///
/// Sums of a tile of centroids are searched while the sums of the next are computed in another
/// tile: more tiles in turn are better.
template <typename Tiles, template <typename> typename Nearest, AmxNumbers numbers,
          std::size_t held_steps>
class SearchInTiles {
 public:
  SearchInTiles(Tiles& tiles, const AmxSearch& search) noexcept
      : tiles_(tiles),
        search_(search),
        labels_below_(std::bit_ceil(
            static_cast<std::uint32_t>(align_up(search.centroid_count, amx_centroids)))) {}

  /// All rows against as many centroids as the first cache keeps, then against as many more.
  void run(std::uint32_t* labels) noexcept {
    constexpr std::size_t bytes_at_once = 40960;
    const std::size_t most =
        std::max(bytes_at_once / shape().centroid_block_bytes(), std::size_t{1});
    const std::size_t blocks = divide_up(search_.centroid_count, amx_centroids);
    const std::size_t at_once = divide_up(blocks, divide_up(blocks, most));
    for (std::size_t begin = 0; begin < blocks; begin += at_once) {
      const std::size_t end = std::min(blocks, begin + at_once);
      for (std::size_t row = 0; row < search_.row_count; row += amx_rows) {
        OfRows nearest;
        for (Nearest<Tiles>& of_row : nearest) of_row.begin();
        if (begin > 0) nearest = nearest_[row / amx_rows];
        lower(nearest, search_.rows + row * shape().row_bytes(), begin, end);
        if (end < blocks) {
          nearest_[row / amx_rows] = nearest;
        } else {
          write_labels(nearest, std::min(amx_rows, search_.row_count - row), labels + row);
        }
      }
    }
  }

 private:
  using OfRows = std::array<Nearest<Tiles>, amx_rows>;
  static constexpr std::size_t parts = static_cast<std::size_t>(numbers);
  static constexpr std::size_t line_bytes = AmxShape::line_bytes;

  // Which tiles hold what: sums from the first on.
  static constexpr std::size_t turns = held_steps * parts <= 2 ? 4 : 2;
  static constexpr std::size_t rows_tile = 4;
  static constexpr std::size_t centroids_tile = turns == 4 ? 6 : 2;

  [[nodiscard]] [[gnu::always_inline]] AmxShape shape() const noexcept {
    return {.dims = held_steps != 0 ? held_steps * amx_dims : search_.shape.dims,
            .numbers = numbers};
  }

  /// Holds 16 rows against blocks [begin, end) of centroids.
  [[gnu::always_inline]] void lower(OfRows& nearest, const std::byte* rows, std::size_t begin,
                                    std::size_t end) noexcept {
    hold_rows(rows, std::make_index_sequence<held_steps * parts>());
    for (std::size_t block = begin; block < end; block += turns) {
      take_turns(nearest, rows, {begin, block, end}, std::make_index_sequence<turns>());
    }
    keep_nearest(nearest, sums_[(end - 1 - begin) % 2], end - 1);
  }

  template <std::size_t... i>
  [[gnu::always_inline]] void hold_rows(const std::byte* rows, std::index_sequence<i...>) noexcept {
    (tiles_.template load<rows_tile + i>(rows + i * line_bytes, shape().row_bytes()), ...);
  }

  /// Blocks of centroids that rows are compared with.
  struct Blocks {
    std::size_t begin;
    std::size_t next;
    std::size_t end;
  };

  template <std::size_t... turn>
  [[gnu::always_inline]] void take_turns(OfRows& nearest, const std::byte* rows, Blocks blocks,
                                         std::index_sequence<turn...>) noexcept {
    (take_turn<turn>(nearest, rows, {blocks.begin, blocks.next + turn, blocks.end}), ...);
  }

  /// Makes the sums of one block, and keeps what is nearest of the block before.
  template <std::size_t turn>
  [[gnu::always_inline]] void take_turn(OfRows& nearest, const std::byte* rows,
                                        Blocks blocks) noexcept {
    if (blocks.next >= blocks.end) return;
    ask_for_next_rows(rows, blocks);
    make_sums<turn>(rows, blocks.next);
    if (blocks.next == blocks.begin) return;
    keep_nearest(nearest, sums_[(turn + 1) % 2], blocks.next - 1);
  }

  /// Asks for this block's share of the 16 rows that follow: the CPU by itself does not look beyond
  /// a page, and of many requests at once the first cache would drop some.
  [[gnu::always_inline]] void ask_for_next_rows(const std::byte* rows, Blocks blocks) noexcept {
    if (blocks.begin > 0) return;  // they have been read
    const std::size_t lines = amx_rows * shape().row_bytes() / line_bytes;
    const std::size_t share = divide_up(lines, blocks.end);
    const std::size_t last = std::min(lines, (blocks.next + 1) * share);
    for (std::size_t i = blocks.next * share; i < last; ++i) {
      prefetch_line<Cache::first>(rows + (lines + i) * line_bytes);
    }
  }

  /// Adds up the products of all dimensions. Sums begin as the addends, one line for all rows:
  /// after a CPU's own zeroing of a tile, products take twice as long.
  template <std::size_t turn>
  [[gnu::always_inline]] void make_sums(const std::byte* rows, std::size_t block) noexcept {
    constexpr std::size_t same_line = 0;
    const std::byte* const coefficients =
        search_.centroids + block * shape().centroid_block_bytes();
    tiles_.template load<turn>(coefficients + shape().addends_offset(), same_line);
    if constexpr (held_steps != 0) {
      add_held<turn>(coefficients, std::make_index_sequence<held_steps>());
    } else {
      add_loaded<turn>(rows, coefficients);
    }
    tiles_.template store<turn>(sums_[turn % 2]);
  }

  template <std::size_t turn, std::size_t... step>
  [[gnu::always_inline]] void add_held(const std::byte* coefficients,
                                       std::index_sequence<step...>) noexcept {
    (add_step<turn, step, held_steps*(parts - 1) + step>(coefficients +
                                                         step * AmxShape::tile_bytes),
     ...);
  }

  template <std::size_t turn>
  [[gnu::always_inline]] void add_loaded(const std::byte* rows,
                                         const std::byte* coefficients) noexcept {
    const std::size_t row_bytes = shape().row_bytes();
    for (std::size_t step = 0; step < shape().steps(); ++step) {
      tiles_.template load<rows_tile>(rows + step * line_bytes, row_bytes);
      if constexpr (parts == 2) {
        tiles_.template load<rows_tile + 1>(rows + row_bytes / 2 + step * line_bytes, row_bytes);
      }
      add_step<turn, 0, parts - 1>(coefficients + step * AmxShape::tile_bytes);
    }
  }

  /// Adds the products of 32 dimensions for rows in two tiles; for numbers split in two, only the
  /// products that matter.
  template <std::size_t turn, std::size_t rows, std::size_t rests>
  [[gnu::always_inline]] void add_step(const std::byte* coefficients) noexcept {
    constexpr std::size_t nearest = centroids_tile + rows % 2;
    tiles_.template load<nearest>(coefficients, line_bytes);
    tiles_.template add_products<turn, rows_tile + rows, nearest>();
    if constexpr (numbers == AmxNumbers::split) {
      constexpr std::size_t rest = centroids_tile + 1 - rows % 2;
      tiles_.template add_products<turn, rows_tile + rests, nearest>();
      tiles_.template load<rest>(coefficients + shape().addends_offset() / 2, line_bytes);
      tiles_.template add_products<turn, rows_tile + rows, rest>();
    }
  }

  [[gnu::always_inline]] void keep_nearest(OfRows& nearest, const TileSums& sums,
                                           std::size_t block) const noexcept {
    const LaneLabels labels = lane_numbers + static_cast<std::uint32_t>(block * amx_centroids);
#pragma GCC unroll 16
    for (std::size_t row = 0; row < amx_rows; ++row) {
      nearest[row].lower(sums.of[row], labels, labels_below_);
    }
  }

  /// Looks across the lanes of 16 rows at once: four times the lesser of two, until a lane is a
  /// row.
  [[gnu::always_inline]] void write_labels(OfRows& nearest, std::size_t count,
                                           std::uint32_t* labels) const noexcept {
#pragma GCC unroll 4
    for (std::size_t left = amx_rows / 2; left > 0; left /= 2) {
#pragma GCC unroll 8
      for (std::size_t i = 0; i < left; ++i) {
        nearest[i] = Nearest<Tiles>::merged(nearest[2 * i], nearest[2 * i + 1]);
      }
    }
    LaneLabels found;
    nearest[0].read_labels(found, labels_below_);
    std::memcpy(labels, &found, count * sizeof(std::uint32_t));
  }

  Tiles& tiles_;
  const AmxSearch& search_;
  std::uint32_t labels_below_;
  TileSums sums_[2];  // of this turn and the last
  std::array<OfRows, search_rows_max / amx_rows> nearest_;
};

/// Keeps rows in tiles where they have as many steps as one of `held`.
template <typename Tiles, template <typename> typename Nearest, AmxNumbers numbers,
          std::size_t... held>
void search_holding_rows(Tiles& tiles, const AmxSearch& search, std::uint32_t* labels) noexcept {
  const auto run_if_held = [&]<std::size_t steps>() {
    if (search.shape.steps() != steps) return false;
    SearchInTiles<Tiles, Nearest, numbers, steps>(tiles, search).run(labels);
    return true;
  };
  if ((run_if_held.template operator()<held>() || ...)) return;
  SearchInTiles<Tiles, Nearest, numbers, 0>(tiles, search).run(labels);
}

/// Keeps labels in distances where that leaves these enough bits, and rows in tiles where they fit.
template <typename Tiles>
void search_in_tiles(Tiles& tiles, const AmxSearch& search, std::uint32_t* labels) noexcept {
  constexpr std::size_t centroids_in_distances = 1024;
  constexpr auto rounded = AmxNumbers::rounded;
  constexpr auto split = AmxNumbers::split;
  if (search.shape.numbers == split) {
    search_holding_rows<Tiles, DistanceAndLabel, split, 1, 2>(tiles, search, labels);
  } else if (search.centroid_count > centroids_in_distances) {
    SearchInTiles<Tiles, DistanceAndLabel, rounded, 0>(tiles, search).run(labels);
  } else {
    search_holding_rows<Tiles, LabelledDistance, rounded, 1, 2, 4>(tiles, search, labels);
  }
}

}  // namespace terrace::kernels::host
