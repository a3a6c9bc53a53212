// Copies of rows and keys: see terrace/kernels/rows.hpp.
#include "terrace/kernels/rows.hpp"

#include <algorithm>
#include <array>
#include <cstring>

#include "host/prefetch.hpp"
#include "host/row_arguments.hpp"
#include "terrace/kernels/row_address.hpp"

namespace terrace::kernels::host {
namespace {

/// Cuts `tokens` at the blocks of a table: the part of `tokens` in the i-th block they touch.
struct BlockCut {
  TokenRange tokens;
  std::size_t block_tokens;

  [[nodiscard]] std::size_t first_block() const noexcept { return tokens.begin / block_tokens; }
  [[nodiscard]] std::size_t count() const noexcept {
    return tokens.empty() ? 0 : (tokens.end - 1) / block_tokens - first_block() + 1;
  }
  [[nodiscard]] TokenRange part(std::size_t i) const noexcept {
    const std::size_t begin = (first_block() + i) * block_tokens;
    return {std::max(tokens.begin, begin), std::min(tokens.end, begin + block_tokens)};
  }
};

/// Packs one head's tokens of one block.
void store_run(const StoreRows& op, TokenRange run, std::size_t head) noexcept {
  const std::size_t half = row_half_bytes(op.shape);
  const KvTensors& source = op.source;
  const std::size_t offset =
      (run.begin - op.tokens.begin) * source.token_stride + head * source.head_stride;
  const std::byte* key = source.keys + offset;
  const std::byte* value = source.values + offset;
  std::byte* row = row_address(op.shape, op.target, head, run.begin);
  if (value == key + half && source.token_stride == 2 * half) {
    std::memcpy(row, key, run.size() * 2 * half);
    return;
  }
  for (std::size_t t = 0; t < run.size(); ++t) {
    std::memcpy(row, key, half);
    std::memcpy(row + half, value, half);
    row += 2 * half;
    key += source.token_stride;
    value += source.token_stride;
  }
}

/// Copies elements unchanged; neither rows nor chunks need be aligned to them.
template <typename Element>
void copy_channels(const KeyChannels& op) noexcept {
  const IndexView& index = op.index;
  const std::size_t stored = op.channels.stored(op.shape);
  const std::size_t channel_bytes = index.chunk_tokens * sizeof(Element);
  const std::uint32_t* const numbers =
      op.channels.partial ? reinterpret_cast<const std::uint32_t*>(index.fixed) + op.head * stored
                          : nullptr;
  for (std::size_t p = op.tokens.begin; p < op.tokens.end; ++p) {
    const std::size_t token = p - index.first_token;
    const std::byte* const key = row_address(op.shape, op.rows, op.head, p);
    std::byte* to = index.chunks[token / index.chunk_tokens] + op.head * stored * channel_bytes +
                    token % index.chunk_tokens * sizeof(Element);
    for (std::size_t i = 0; i < stored; ++i, to += channel_bytes) {
      const std::size_t channel = numbers == nullptr ? i : numbers[i];
      std::memcpy(to, key + channel * sizeof(Element), sizeof(Element));
    }
  }
}

constexpr std::size_t fetch_part_rows = 256;
constexpr std::size_t fetch_rows_ahead = 16;

void fetch_part(const FetchRows& op, std::size_t begin, std::size_t end) noexcept {
  const std::size_t bytes = op.shape.row_bytes();
  std::array<const std::byte*, fetch_part_rows> rows;
  const std::size_t count = end - begin;
  for (std::size_t i = 0; i < count; ++i) {
    const MissedRow& missed = op.missed[begin + i];
    rows[i] = row_address(op.shape, op.source, missed.head, missed.position);
    if (i < fetch_rows_ahead) prefetch(rows[i], bytes);
  }
  for (std::size_t i = 0; i < count; ++i) {
    if (i + fetch_rows_ahead < count) prefetch(rows[i + fetch_rows_ahead], bytes);
    std::memcpy(op.missed[begin + i].target, rows[i], bytes);
  }
}

void cache_part(const CacheRows& op, std::size_t begin, std::size_t end) noexcept {
  const std::size_t bytes = op.shape.row_bytes();
  const auto source = [&](const CachedRowChange& change) {
    return change.staged != 0 ? op.staging + (change.staged - std::size_t{1}) * bytes
                              : row_address(op.shape, op.source, change.head, change.position);
  };
  for (std::size_t i = begin; i < end; ++i) {
    const std::size_t ahead = i + fetch_rows_ahead;
    if (ahead < end && op.changes[ahead].number != 0) prefetch(source(op.changes[ahead]), bytes);
    const CachedRowChange& change = op.changes[i];
    if (change.number != 0) {
      std::memcpy(cached_row(op.shape, op.target, change.number), source(change), bytes);
    }
    op.target.numbers[cached_place(op.shape, change.head, change.position)] = change.number;
  }
}

}  // namespace

std::size_t store_rows(const StoreRows& op, Parallel& threads) {
  const BlockCut cut{op.tokens, op.target.block_tokens};
  const std::size_t heads = op.shape.kv_heads;
  threads.for_each(cut.count() * heads,
                   [&](std::size_t part) { store_run(op, cut.part(part / heads), part % heads); });
  return op.tokens.size() * op.shape.token_bytes();
}

Status key_copy(const KeyCopy& op, Parallel& threads) {
  const std::size_t key_bytes = row_half_bytes(op.shape);
  const IndexView& index = op.index;
  TERRACE_TRY(check_rows("key_copy", {op.shape, op.rows, op.tokens}));
  TERRACE_TRY(check_chunks("key_copy", op.tokens, index));
  threads.for_each(op.shape.kv_heads, [&](std::size_t head) {
    for (std::size_t p = op.tokens.begin; p < op.tokens.end; ++p) {
      const std::size_t token = p - index.first_token;
      std::byte* chunk = index.chunks[token / index.chunk_tokens];
      const std::size_t place = head * index.chunk_tokens + token % index.chunk_tokens;
      std::memcpy(chunk + place * key_bytes, row_address(op.shape, op.rows, head, p), key_bytes);
    }
  });
  return {};
}

Status key_channels(const KeyChannels& op) noexcept {
  TERRACE_TRY(check_rows("key_channels", {op.shape, op.rows, op.tokens}));
  TERRACE_TRY(check_chunks("key_channels", op.tokens, op.index));
  if (op.head >= op.shape.kv_heads) {
    return fail(Errc::invalid_argument, "key_channels: head {} of {}; use one that is there",
                op.head, op.shape.kv_heads);
  }
  const std::size_t count = op.channels.count;
  if (count == 0 || count > op.shape.head_dim) {
    return fail(Errc::invalid_argument, "key_channels: {} channels of {}; use 1 to all", count,
                op.shape.head_dim);
  }
  if (op.channels.partial && op.index.fixed == nullptr) {
    return fail(Errc::invalid_argument, "key_channels: index.fixed must say which channels");
  }
  if (size_bytes(op.shape.dtype) == sizeof(std::uint32_t)) {
    copy_channels<std::uint32_t>(op);
  } else {
    copy_channels<std::uint16_t>(op);
  }
  return {};
}

std::size_t fetch_rows(const FetchRows& op, Parallel& threads) {
  const std::size_t count = *op.missed_count;
  threads.for_each((count + fetch_part_rows - 1) / fetch_part_rows, [&](std::size_t part) {
    const std::size_t begin = part * fetch_part_rows;
    fetch_part(op, begin, std::min(count, begin + fetch_part_rows));
  });
  return count * op.shape.row_bytes();
}

std::size_t cache_rows(const CacheRows& op, Parallel& threads) {
  threads.for_each((op.count + fetch_part_rows - 1) / fetch_part_rows, [&](std::size_t part) {
    const std::size_t begin = part * fetch_part_rows;
    cache_part(op, begin, std::min(op.count, begin + fetch_part_rows));
  });
  const auto moved = std::count_if(op.changes, op.changes + op.count, crosses_link);
  return static_cast<std::size_t>(moved) * op.shape.row_bytes();
}

}  // namespace terrace::kernels::host
