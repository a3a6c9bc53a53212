#include "host/row_arguments.hpp"

#include <algorithm>

namespace terrace::kernels::host {
namespace {

constexpr std::size_t size_max = std::size_t{1} << 32;  // as of ops

constexpr bool is_size(std::size_t size) noexcept { return size > 0 && size <= size_max; }

/// The pieces of `size` tokens that a range, which is not empty, touches.
TokenRange pieces_of(std::size_t begin, std::size_t end, std::size_t size) noexcept {
  return {begin / size, (end - 1) / size + 1};
}

bool has_all(std::byte* const* pieces, TokenRange wanted) noexcept {
  return std::find(pieces + wanted.begin, pieces + wanted.end, nullptr) == pieces + wanted.end;
}

}  // namespace

Status check_rows(std::string_view kernel, const TokenRows& source) {
  const auto& [shape, rows, tokens] = source;
  if (!is_size(shape.kv_heads) || !is_size(shape.head_dim)) {
    return fail(Errc::invalid_argument, "{}: {} KV heads of head_dim {}; use 1 to 2^32 of each",
                kernel, shape.kv_heads, shape.head_dim);
  }
  if (tokens.begin > tokens.end || tokens.end > size_max) {
    return fail(Errc::invalid_argument, "{}: tokens must be a range below 2^32", kernel);
  }
  if (tokens.empty()) return {};
  if (rows.blocks == nullptr || !is_size(rows.block_tokens)) {
    return fail(Errc::invalid_argument, "{}: rows must have blocks of 1 to 2^32 tokens", kernel);
  }
  if (!shape.block_bytes(rows.block_tokens)) {
    return fail(Errc::invalid_argument, "{}: a block of rows must be below 2^64 bytes", kernel);
  }
  if (!has_all(rows.blocks, pieces_of(tokens.begin, tokens.end, rows.block_tokens))) {
    return fail(Errc::invalid_argument, "{}: every block of rows that has a token must be there",
                kernel);
  }
  return {};
}

bool overlaps_rows(const MemoryRange& written, const TokenRows& source) noexcept {
  const auto& [shape, rows, tokens] = source;
  if (tokens.empty()) return false;
  const std::size_t block_bytes = rows.block_tokens * shape.token_bytes();  // as was checked
  const TokenRange blocks = pieces_of(tokens.begin, tokens.end, rows.block_tokens);
  return std::any_of(
      rows.blocks + blocks.begin, rows.blocks + blocks.end,
      [&](const std::byte* block) { return overlap(written, range_of(block, block_bytes)); });
}

Status check_chunks(std::string_view kernel, TokenRange tokens, const IndexView& index) {
  if (tokens.empty()) return {};
  if (index.chunks == nullptr || !is_size(index.chunk_tokens)) {
    return fail(Errc::invalid_argument, "{}: the index must have chunks of 1 to 2^32 tokens",
                kernel);
  }
  if (tokens.begin < index.first_token) {
    return fail(Errc::invalid_argument, "{}: tokens must not begin before the index", kernel);
  }
  const TokenRange chunks = pieces_of(tokens.begin - index.first_token,
                                      tokens.end - index.first_token, index.chunk_tokens);
  if (!has_all(index.chunks, chunks)) {
    return fail(Errc::invalid_argument, "{}: every chunk that has a token must be there", kernel);
  }
  return {};
}

}  // namespace terrace::kernels::host
