#include "tensor_checks.hpp"

#include <cstdint>
#include <string_view>

#include "terrace/core/memory_range.hpp"

namespace terrace {
namespace {

std::size_t numbers_of(const KvShape& shape) noexcept { return shape.query_heads * shape.head_dim; }

Status check_vectors(std::string_view name, const KvShape& shape, const TokenVectors& vectors,
                     Dtype dtype, std::size_t tokens) {
  if (vectors.first == nullptr) {
    return fail(Errc::invalid_argument, "{} is missing", name);
  }
  if (tokens > 1 && vectors.stride < numbers_of(shape)) {
    return fail(Errc::invalid_argument, "{}_stride is {}; a token has {} numbers", name,
                vectors.stride, numbers_of(shape));
  }
  if (reinterpret_cast<std::uintptr_t>(vectors.first) % size_bytes(dtype) != 0) {
    return fail(Errc::invalid_argument, "{} is not aligned to the {} bytes of a number", name,
                size_bytes(dtype));
  }
  return {};
}

Status check_stride(std::string_view name, std::size_t stride, std::size_t key_bytes) {
  if (stride >= key_bytes) return {};
  return fail(Errc::invalid_argument, "{} is {}; a key has {} bytes", name, stride, key_bytes);
}

MemoryRange span_of(const KvShape& shape, const TokenVectors& vectors, std::size_t tokens) {
  return range_of(static_cast<const float*>(vectors.first),
                  (tokens - 1) * vectors.stride + numbers_of(shape));
}

/// Whether outputs lie in the gaps between queries, one of each in turn.
bool lies_between(const KvShape& shape, const TokenVectors& queries, const TokenVectors& outputs) {
  if (queries.stride == 0 || queries.stride != outputs.stride) return false;
  const std::size_t stride = queries.stride * sizeof(float);
  const std::size_t bytes = numbers_of(shape) * sizeof(float);
  const auto query = reinterpret_cast<std::uintptr_t>(queries.first);
  const auto output = reinterpret_cast<std::uintptr_t>(outputs.first);
  const std::size_t gap =
      output > query ? (output - query) % stride : (stride - (query - output) % stride) % stride;
  return gap >= bytes && gap + bytes <= stride;
}

}  // namespace

Status check_kv(const KvShape& shape, const KvTensors& kv, std::size_t tokens) {
  if (kv.keys == nullptr || kv.values == nullptr) {
    return fail(Errc::invalid_argument, "{} are missing",
                kv.keys == nullptr ? "kv.keys" : "kv.values");
  }
  const std::size_t key_bytes = shape.row_bytes() / 2;
  if (tokens > 1) TERRACE_TRY(check_stride("kv.token_stride", kv.token_stride, key_bytes));
  if (shape.kv_heads > 1) TERRACE_TRY(check_stride("kv.head_stride", kv.head_stride, key_bytes));
  return {};
}

Status check_queries(const KvShape& shape, const TokenVectors& queries, Dtype dtype,
                     std::size_t tokens) {
  return check_vectors("query", shape, queries, dtype, tokens);
}

Status check_outputs(const KvShape& shape, const TokenVectors& outputs, Dtype dtype,
                     std::size_t tokens) {
  return check_vectors("output", shape, outputs, dtype, tokens);
}

Status check_apart(const KvShape& shape, const TokenVectors& queries, const TokenVectors& outputs,
                   std::size_t tokens, bool token_by_token) {
  if (!overlap(span_of(shape, queries, tokens), span_of(shape, outputs, tokens))) return {};
  if (token_by_token && lies_between(shape, queries, outputs)) return {};
  return fail(Errc::invalid_argument, "output overlaps query, which is read while it is written");
}

}  // namespace terrace
