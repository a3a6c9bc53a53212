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

/// Takes consecutive sections of the whole list and keeps what falls into one piece of it.
class PieceWriter {
 public:
  PieceWriter(std::size_t begin, EntryPiece& out) noexcept : begin_(begin), out_(out) {
    out_.count = 0;
  }

  /// Calls write(i, row, bias) for those of the section's `count` entries that are in the piece.
  template <typename Write>
  void section(std::size_t count, Write write) noexcept {
    const std::size_t first = std::clamp(begin_, passed_, passed_ + count) - passed_;
    const std::size_t last =
        std::clamp(begin_ + attention_split, passed_, passed_ + count) - passed_;
    for (std::size_t i = first; i < last; ++i, ++out_.count) {
      out_.bias[out_.count] = 0;
      write(i, out_.rows[out_.count], out_.bias[out_.count]);
      TERRACE_DEBUG_ASSERT(out_.rows[out_.count] != nullptr);
    }
    passed_ += count;
  }

 private:
  std::size_t begin_;
  std::size_t passed_ = 0;
  EntryPiece& out_;
};

}  // namespace

std::size_t list_count(const DecodeAttention& op) noexcept {
  return op.scope == ListScope::kv_head ? op.shape.kv_heads : op.shape.query_heads;
}

std::size_t entry_count(const DecodeAttention& op, std::size_t list) noexcept {
  return op.sinks.size() + op.window.size() + selected_count(op, list) + pseudo_count(op, list);
}

void gather_piece(const DecodeAttention& op, std::size_t list, std::size_t piece,
                  EntryPiece& out) noexcept {
  const std::size_t head = kv_head_of(op, list);
  PieceWriter writer(piece * attention_split, out);
  for (const TokenRange& range : {op.sinks, op.window}) {
    writer.section(range.size(), [&](std::size_t i, const std::byte*& row, float&) {
      row = row_address(op.shape, op.resident, head, range.begin + i);
    });
  }
  const std::size_t selected = list * op.selected_stride;
  writer.section(selected_count(op, list), [&](std::size_t i, const std::byte*& row, float& bias) {
    row = op.selected[selected + i];
    if (op.selected_bias != nullptr) bias = op.selected_bias[selected + i];
  });
  const std::size_t pseudo = list * op.pseudo.stride;
  writer.section(pseudo_count(op, list), [&](std::size_t i, const std::byte*& row, float& bias) {
    row = op.pseudo.rows + (pseudo + i) * op.shape.row_bytes();
    if (op.pseudo.bias != nullptr) bias = op.pseudo.bias[pseudo + i];
  });
  if (out.count == 0) return;
  const auto end = static_cast<std::ptrdiff_t>(out.count);
  std::fill(out.rows.begin() + end, out.rows.end(), out.rows[out.count - 1]);
  std::fill(out.bias.begin() + end, out.bias.end(), 0.0F);
}

}  // namespace terrace::kernels::host
