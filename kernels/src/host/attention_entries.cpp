#include "host/attention_entries.hpp"

#include <algorithm>

#include "terrace/core/assert.hpp"
#include "terrace/kernels/row_address.hpp"

namespace terrace::kernels::host {
namespace {

std::size_t selected_count(const DecodeAttention& op, std::size_t list) noexcept {
  return op.selected == nullptr ? 0 : op.selected_count[list];
}

std::size_t pseudo_count(const DecodeAttention& op, std::size_t list) noexcept {
  return op.pseudo.count == nullptr ? 0 : op.pseudo.count[list];
}

std::size_t kv_head_of(const DecodeAttention& op, std::size_t list) noexcept {
  return op.scope == ListScope::kv_head ? list : list / op.shape.group();
}

/// The part of a section of the whole list that lies in a piece: the section's entries [first,
/// first + count), which go to places [place, place + count) of the piece.
struct Slice {
  std::size_t first;
  std::size_t count;
  std::size_t place;
};

/// Entries of a list that fit into a piece and the room after it.
constexpr std::size_t piece_room = attention_split + rows_ahead_max;

/// Cuts the sections of a list, in their order, to one piece of it and what follows it.
class PieceCut {
 public:
  explicit PieceCut(std::size_t piece) noexcept : begin_(piece * attention_split) {}

  Slice next_section(std::size_t count) noexcept {
    const std::size_t end = passed_ + count;
    const std::size_t first = std::clamp(begin_, passed_, end);
    const std::size_t last = std::clamp(begin_ + piece_room, passed_, end);
    const Slice slice{.first = first - passed_, .count = last - first, .place = taken_};
    passed_ = end;
    taken_ += slice.count;
    return slice;
  }

  /// Returns how many entries were taken.
  [[nodiscard]] std::size_t taken() const noexcept { return taken_; }

 private:
  std::size_t begin_;
  std::size_t passed_ = 0;
  std::size_t taken_ = 0;
};

/// Writes the rows of `count` positions from `position` on, a block at a time.
void write_rows(const KvShape& shape, const BlockTable& table, std::size_t head,
                std::size_t position, std::size_t count, const std::byte** rows) noexcept {
  const std::size_t block_tokens = table.block_tokens;
  const std::size_t row_bytes = shape.row_bytes();
  while (count > 0) {
    const std::size_t run = std::min(count, block_tokens - position % block_tokens);
    const std::byte* row = row_address(shape, table, head, position);
    TERRACE_DEBUG_ASSERT(row != nullptr);
    for (std::size_t i = 0; i < run; ++i) rows[i] = row + i * row_bytes;
    rows += run;
    position += run;
    count -= run;
  }
}

/// Sets how many of the `taken` written entries belong to the piece, and fills up the room after
/// them.
void end_piece(std::size_t taken, EntryPiece& out) noexcept {
  out.count = std::min(taken, attention_split);
  if (taken == 0) return;
  std::fill(out.rows.begin() + static_cast<std::ptrdiff_t>(taken), out.rows.end(),
            out.rows[taken - 1]);
}

}  // namespace

std::size_t entry_count(const DecodeAttention& op, std::size_t list) noexcept {
  return op.sinks.size() + op.window.size() + selected_count(op, list) + pseudo_count(op, list);
}

void gather_piece(const DecodeAttention& op, std::size_t list, std::size_t piece,
                  EntryPiece& out) noexcept {
  out.biased = (selected_count(op, list) > 0 && op.selected_bias != nullptr) ||
               (pseudo_count(op, list) > 0 && op.pseudo.bias != nullptr);
  if (out.biased) out.bias.fill(0);
  PieceCut cut(piece);
  for (const TokenRange& range : {op.sinks, op.window}) {
    const Slice slice = cut.next_section(range.size());
    write_rows(op.shape, op.resident, kv_head_of(op, list), range.begin + slice.first, slice.count,
               &out.rows[slice.place]);
  }
  const Slice selected = cut.next_section(selected_count(op, list));
  out.rows_ahead = selected.count == 0 ? rows_ahead_max : tile_rows;
  for (std::size_t i = 0; i < selected.count; ++i) {
    const std::size_t source = list * op.selected_stride + selected.first + i;
    out.rows[selected.place + i] = op.selected[source];
    if (op.selected_bias != nullptr) out.bias[selected.place + i] = op.selected_bias[source];
  }
  const Slice pseudo = cut.next_section(pseudo_count(op, list));
  for (std::size_t i = 0; i < pseudo.count; ++i) {
    const std::size_t source = list * op.pseudo.stride + pseudo.first + i;
    out.rows[pseudo.place + i] = op.pseudo.rows[source];
    if (op.pseudo.bias != nullptr) out.bias[pseudo.place + i] = op.pseudo.bias[source];
  }
  end_piece(cut.taken(), out);
}

void gather_rows(const TileAttention& op, std::size_t kv_head, std::size_t begin,
                 std::span<const std::byte*> rows) noexcept {
  const std::size_t end = op.rows_seen(op.tokens - 1);
  const std::size_t from = std::min(begin, end - 1);
  const std::size_t count = std::min(end - from, rows.size());
  write_rows(op.shape, op.rows, kv_head, from, count, rows.data());
  std::fill(rows.begin() + static_cast<std::ptrdiff_t>(count), rows.end(), rows[count - 1]);
}

}  // namespace terrace::kernels::host
