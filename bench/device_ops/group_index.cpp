#include "device_ops/group_index.hpp"

#include "terrace/kernels/estimate.hpp"
#include "terrace/kernels/rows.hpp"
#include "terrace/kernels/signs.hpp"

namespace terrace::bench {
namespace {

constexpr std::size_t page_tokens = 64;
constexpr std::size_t group_tokens = 16;
constexpr GroupShape group_shape{.page_tokens = page_tokens, .groups = page_tokens / group_tokens};

}  // namespace

GroupIndex::GroupIndex(std::size_t tokens)
    : shape_{.groups = group_shape,
             .chunk_begin = group_shape.chunk_bytes(measured_layer, chunk_tokens)},
      tokens_(tokens),
      memory_(tokens / chunk_tokens * chunk_bytes()) {}

std::size_t GroupIndex::chunk_bytes() const noexcept {
  return shape_.chunk_begin + shape_.chunk_bytes(measured_layer, chunk_tokens);
}

Result<GroupIndex> GroupIndex::create(const LayerSample& rows) {
  GroupIndex index(rows.tokens());
  const std::vector<std::byte*> blocks = rows.blocks_on_host();
  const std::vector<std::byte*> chunks = cut_chunks(index.memory_, index.chunk_bytes());
  const Tables tables{
      .rows = {blocks.data(), LayerSample::block_tokens},
      .index = {
          .chunks = chunks.data(), .chunk_tokens = chunk_tokens, .token_count = rows.tokens()}};
  for (std::size_t head = 0; head < measured_layer.kv_heads; ++head) {
    for (std::size_t page = 0; page < rows.tokens() / page_tokens; ++page) {
      TERRACE_TRY(index.write_page(tables, head, page));
    }
  }
  return index;
}

Status GroupIndex::write_page(const Tables& tables, std::size_t head, std::size_t page) const {
  std::vector<std::uint8_t> group_of(page_tokens);
  for (std::size_t i = 0; i < page_tokens; ++i) {
    group_of[i] = static_cast<std::uint8_t>(i / group_tokens);
  }
  kernels::host::average_groups({.shape = measured_layer,
                                 .groups = shape_.groups,
                                 .index = tables.index,
                                 .head = head,
                                 .page = page,
                                 .rows = tables.rows,
                                 .group_of = group_of});
  const TokenRange tokens{page * page_tokens, (page + 1) * page_tokens};
  std::vector<float> keys(page_tokens * measured_layer.head_dim);
  TERRACE_TRY(kernels::host::read_keys({.shape = measured_layer,
                                        .rows = tables.rows,
                                        .tokens = tokens,
                                        .head = head,
                                        .dims = measured_layer.head_dim},
                                       keys.data()));
  kernels::host::sign_encode({.shape = measured_layer,
                              .signs = shape_,
                              .index = tables.index,
                              .head = head,
                              .tokens = tokens,
                              .grouped = true,
                              .keys = keys.data()});
  return {};
}

std::size_t GroupIndex::bytes_of_signs() const noexcept {
  const std::size_t of_token =
      sizeof(std::uint16_t) + SignShape::quads(measured_layer) / 2 + sizeof(std::uint8_t);
  return measured_layer.kv_heads * (tokens_ * of_token + groups() * measured_layer.row_bytes() / 2);
}

std::size_t GroupIndex::bytes_of_rests() const noexcept {
  return measured_layer.kv_heads * (tokens_ + groups() * measured_layer.row_bytes());
}

}  // namespace terrace::bench
