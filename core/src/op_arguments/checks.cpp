#include "checks.hpp"

#include <fmt/core.h>

#include <limits>

namespace terrace {
namespace op_arguments {
namespace {

// Limits the sizes of scratch memory to 64 bits.
constexpr std::size_t heads_max = std::size_t{1} << 24;

tl::unexpected<Error> overlapping(std::string_view op, const View& written, const View& other) {
  return fail(Errc::invalid_argument, "{}: {} must not overlap {}", op, written.name, other.name);
}

}  // namespace

Status require(std::string_view op, std::initializer_list<Requirement> requirements) {
  const auto* const broken = std::ranges::find(requirements, false, &Requirement::met);
  if (broken == requirements.end()) return {};
  return fail(Errc::invalid_argument, "{}: {}", op, broken->text);
}

Status require_apart(std::string_view op, Views written, Views read) {
  for (const View* each = written.begin(); each != written.end(); ++each) {
    for (const View* other = each + 1; other != written.end(); ++other) {
      if (overlap(each->memory, other->memory)) return overlapping(op, *each, *other);
    }
    for (const View& other : read) {
      if (overlap(each->memory, other.memory)) return overlapping(op, *each, other);
    }
  }
  return {};
}

std::size_t times(std::size_t a, std::size_t b) {
  std::size_t product = 0;
  const bool wraps = __builtin_mul_overflow(a, b, &product);
  return wraps ? std::numeric_limits<std::size_t>::max() : product;
}

std::size_t plus(std::size_t a, std::size_t b) {
  std::size_t sum = 0;
  const bool wraps = __builtin_add_overflow(a, b, &sum);
  return wraps ? std::numeric_limits<std::size_t>::max() : sum;
}

Status require_shape(std::string_view op, const KvShape& shape) {
  if (const Status right = shape.validate(); !right) {
    return tl::unexpected(right.error().while_doing(op));
  }
  return require(op,
                 {{shape.query_heads <= heads_max, "shape.query_heads must not be above 2^24"}});
}

Status require_rows(std::string_view op, const KvShape& shape) {
  return require(
      op, {{shape.kv_heads > 0 && shape.kv_heads <= limit, "shape.kv_heads must be 1 to 2^32"},
           {shape.head_dim > 0 && shape.head_dim <= limit, "shape.head_dim must be 1 to 2^32"}});
}

bool is_given(const BlockTable& table, const KvShape& shape) {
  return table.blocks != nullptr && table.block_tokens > 0 && table.block_tokens <= limit &&
         shape.block_bytes(table.block_tokens).has_value();
}

Status require_index(std::string_view op, const KvShape& shape, TokenRange tokens,
                     const IndexView& index) {
  TERRACE_TRY(require_shape(op, shape));
  return require(op, {{is_range(tokens), "tokens must be a range below 2^32"},
                      {index.chunk_tokens > 0 && index.chunk_tokens <= limit,
                       "the index must have chunks of 1 to 2^32 tokens"},
                      {tokens.empty() || index.chunks != nullptr, "the index must be given"},
                      {tokens.empty() || index.first_token <= tokens.begin,
                       "tokens must not begin before the index"}});
}

Status require_groups(std::string_view op, const GroupShape& groups, const IndexView& index) {
  return require(op,
                 {{groups.page_tokens > 0 && index.chunk_tokens % groups.page_tokens == 0,
                   "groups.page_tokens must divide index.chunk_tokens"},
                  {groups.page_tokens <= GroupShape::page_tokens_max,
                   "groups.page_tokens must not be above 256"},
                  {groups.groups >= 1 && groups.groups <= 255, "groups.groups must be 1 to 255"},
                  {groups.chunk_begin % 4 == 0, "groups.chunk_begin must be a multiple of 4"}});
}

Status require_selection(std::string_view op, const SelectCommon& common, const IndexView& index) {
  TERRACE_TRY(require_index(op, common.shape, common.candidates, index));
  const std::size_t coded = index.first_token + std::min(index.token_count, limit);
  const std::size_t listed = std::min(common.count.mean, common.candidates.size());
  return require(
      op, {{common.candidates.empty() || common.candidates.end <= coded,
            "candidates must be coded: the index has fewer tokens"},
           {common.id_count != nullptr, "id_count must be given"},
           {listed == 0 || common.ids != nullptr, "ids must be given"},
           {listed <= common.id_stride, "count must not be above id_stride"},
           {common.candidates.empty() || common.query != nullptr, "query must be given"},
           {common.candidates.empty() || common.scratch != nullptr, "scratch must be given"}});
}

std::size_t strided(std::size_t tokens, std::size_t stride, std::size_t each) {
  return plus(times(tokens - 1, stride), each);
}

Status require_apart(std::string_view op, const SelectionViews& views) {
  return require_apart(op, {views.ids, views.id_count, views.scratch}, {views.query, views.shares});
}

}  // namespace op_arguments

Error error_of_call(const Error& error, std::size_t call, std::size_t calls) noexcept {
  std::array<char, 64> place{};
  const auto end = fmt::format_to_n(place.data(), place.size(), "call {} of {}", call, calls).out;
  return error.while_doing({place.data(), end});
}

}  // namespace terrace
