// The parts that checks of ops' arguments are made of: see terrace/core/op_arguments.hpp.
#pragma once

#include <algorithm>
#include <cstddef>
#include <initializer_list>
#include <string_view>

#include "terrace/core/memory_range.hpp"
#include "terrace/core/op_arguments.hpp"

namespace terrace::op_arguments {

inline constexpr std::size_t limit = std::size_t{1} << 32;  // ids are 32-bit

struct Requirement {
  bool met;
  std::string_view text;
};

/// Names the first requirement that is not met.
Status require(std::string_view op, std::initializer_list<Requirement> requirements);

/// Memory that an op is given, by the name it has there.
struct View {
  std::string_view name;
  MemoryRange memory;
};
using Views = std::initializer_list<View>;

/// Memory that an op writes overlaps nothing else that the op is given; memory only read may
/// overlap.
Status require_apart(std::string_view op, Views written, Views read);

/// Returns a product, or the largest number where it would wrap.
std::size_t times(std::size_t a, std::size_t b);
/// Returns a sum, or the largest number where it would wrap.
std::size_t plus(std::size_t a, std::size_t b);

/// Returns how far it is from the begin of the first token's vectors to the end of the last one's,
/// all being `each` long and `stride` apart; `tokens` is not 0.
std::size_t strided(std::size_t tokens, std::size_t stride, std::size_t each);

inline bool is_range(TokenRange tokens) {
  return tokens.begin <= tokens.end && tokens.end <= limit;
}

inline std::size_t query_floats(const KvShape& shape) { return shape.query_heads * shape.head_dim; }

Status require_shape(std::string_view op, const KvShape& shape);

/// For ops that copy rows and compute nothing with them: such rows may have any length.
Status require_rows(std::string_view op, const KvShape& shape);

bool is_given(const BlockTable& table, const KvShape& shape);

Status require_index(std::string_view op, const KvShape& shape, TokenRange tokens,
                     const IndexView& index);
Status require_groups(std::string_view op, const GroupShape& groups, const IndexView& index);
Status require_selection(std::string_view op, const SelectCommon& common, const IndexView& index);

/// The memory of a selection, but for the index.
struct SelectionViews {
  View ids;
  View id_count;
  View scratch;
  View query;
  View shares;

  SelectionViews(const SelectCommon& common, std::size_t lists, std::size_t scratch_floats)
      : ids{"ids", range_of(common.ids, times(lists, common.id_stride))},
        id_count{"id_count", range_of(common.id_count, lists)},
        scratch{"scratch", range_of(common.scratch, scratch_floats)},
        query{"query", range_of(common.query, query_floats(common.shape))},
        shares{"count.shares", range_of(common.count.shares, common.shape.kv_heads)} {}
};

/// For selections that read nothing else but the index.
Status require_apart(std::string_view op, const SelectionViews& views);

}  // namespace terrace::op_arguments
