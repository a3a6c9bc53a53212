#include <cstdint>

#include "checks.hpp"

namespace terrace {

using namespace op_arguments;

namespace {

/// Whether each number of tokens is at a multiple of its size. A device reads only aligned numbers.
bool is_aligned(const std::byte* first, std::size_t stride, std::size_t tokens, Dtype dtype) {
  const auto address = reinterpret_cast<std::uintptr_t>(first);
  return (tokens == 1 ? address : address | stride) % size_bytes(dtype) == 0;
}

}  // namespace

Status validate(const MapQueries& op) {
  constexpr std::string_view name = "map_queries";
  TERRACE_TRY(require_shape(name, op.shape));
  TERRACE_TRY(require(name, {{op.query != nullptr, "query must be given"},
                             {op.maps != nullptr, "maps must be given"},
                             {op.mapped != nullptr, "mapped must be given"}}));
  const std::size_t floats = query_floats(op.shape);
  const std::size_t map_floats = op.shape.kv_heads * op.shape.head_dim * op.shape.head_dim;
  return require_apart(
      name, {{"mapped", range_of(op.mapped, floats)}},
      {{"query", range_of(op.query, floats)}, {"maps", range_of(op.maps, map_floats)}});
}

Status validate(const ConvertQueries& op) {
  constexpr std::string_view name = "convert_queries";
  TERRACE_TRY(require_shape(name, op.shape));
  if (op.tokens == 0) return {};
  const std::size_t read = query_floats(op.shape) * size_bytes(op.from);
  const std::size_t written = query_floats(op.shape) * size_bytes(op.to);
  TERRACE_TRY(
      require(name, {{op.tokens <= limit, "tokens must not be above 2^32"},
                     {op.source != nullptr, "source must be given"},
                     {op.target != nullptr, "target must be given"},
                     {op.tokens == 1 || op.source_stride >= read,
                      "source_stride must not be below the bytes of a token"},
                     {op.tokens == 1 || op.target_stride >= written,
                      "target_stride must not be below the bytes of a token"},
                     {is_aligned(op.source, op.source_stride, op.tokens, op.from),
                      "source and source_stride must be multiples of the size of a number"},
                     {is_aligned(op.target, op.target_stride, op.tokens, op.to),
                      "target and target_stride must be multiples of the size of a number"}}));
  return require_apart(
      name, {{"target", range_of(op.target, strided(op.tokens, op.target_stride, written))}},
      {{"source", range_of(op.source, strided(op.tokens, op.source_stride, read))}});
}

}  // namespace terrace
