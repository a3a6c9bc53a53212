#include <cstring>
#include <map>
#include <utility>

#include "terrace/kernels/reference.hpp"
#include "terrace/kernels/row_address.hpp"

namespace terrace::kernels::reference {
void resolve_rows(const ResolveRows& op) {
  const std::size_t group = lists_per_kv_head(op.shape, op.scope);
  std::map<std::pair<std::size_t, std::uint32_t>, std::byte*> staged;
  *op.missed_count = 0;
  for (std::size_t list = 0; list < op.shape.kv_heads * group; ++list) {
    const std::size_t head = list / group;
    for (std::size_t i = 0; i < op.id_count[list]; ++i) {
      const std::size_t place = list * op.id_stride + i;
      const std::uint32_t position = op.ids[place];
      op.rows[place] = find_row(op, head, position);
      if (op.rows[place] != nullptr) continue;
      std::byte* const own = op.staging + place * op.shape.row_bytes();
      const auto [row, first] = staged.try_emplace({head, position}, own);
      op.rows[place] = row->second;
      if (first)
        op.missed[(*op.missed_count)++] = {position, static_cast<std::uint32_t>(head), own};
    }
  }
}

void fetch_rows(const FetchRows& op) {
  for (std::size_t i = 0; i < *op.missed_count; ++i) {
    const MissedRow& missed = op.missed[i];
    std::memcpy(missed.target, row_address(op.shape, op.source, missed.head, missed.position),
                op.shape.row_bytes());
  }
}

void map_queries(const MapQueries& op) {
  const std::size_t dims = op.shape.head_dim;
  for (std::size_t q = 0; q < op.shape.query_heads; ++q) {
    const float* const map = op.maps + q / op.shape.group() * dims * dims;
    for (std::size_t k = 0; k < dims; ++k) {
      double sum = 0;
      for (std::size_t i = 0; i < dims; ++i) {
        sum += double{op.query[q * dims + i]} * double{map[i * dims + k]};
      }
      op.mapped[q * dims + k] = static_cast<float>(sum);
    }
  }
}

void convert_queries(const ConvertQueries& op) {
  for (std::size_t token = 0; token < op.tokens; ++token) {
    const std::byte* const source = op.source + token * op.source_stride;
    std::byte* const target = op.target + token * op.target_stride;
    for (std::size_t i = 0; i < op.shape.query_heads * op.shape.head_dim; ++i) {
      store_f32(target, op.to, i, load_f32(source, op.from, i));
    }
  }
}

}  // namespace terrace::kernels::reference
