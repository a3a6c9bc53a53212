#include "device_ops/layer_rows.hpp"

namespace terrace::bench {

Result<LayerSample> LayerSample::create(std::size_t tokens) {
  KvShape one_head = measured_layer;
  one_head.query_heads = measured_layer.group();
  one_head.kv_heads = 1;
  TERRACE_ASSIGN(auto rows, SampleRows::create(one_head, tokens * measured_layer.kv_heads, 4));
  return LayerSample(std::move(rows), tokens);
}

LayerSample::LayerSample(std::shared_ptr<SampleRows> rows, std::size_t tokens)
    : rows_(std::move(rows)),
      tokens_(tokens),
      selected_(tokens / 10),
      counts_(measured_layer.kv_heads, static_cast<std::uint32_t>(tokens / 10)) {
  for (std::size_t head = 0; head < measured_layer.kv_heads; ++head) {
    for (std::size_t i = 0; i < selected_; ++i) {
      ids_.push_back(static_cast<std::uint32_t>(i * 10 + head));
    }
  }
}

std::size_t LayerSample::offset_of(std::size_t head, std::size_t position) noexcept {
  const std::size_t block = position / block_tokens * measured_layer.kv_heads + head;
  return (block * block_tokens + position % block_tokens) * measured_layer.row_bytes();
}

std::vector<std::byte*> LayerSample::blocks(std::byte* base) const {
  std::vector<std::byte*> blocks;
  for (std::size_t token = 0; token < tokens_; token += block_tokens) {
    blocks.push_back(base + offset_of(0, token));
  }
  return blocks;
}

std::vector<std::byte*> LayerSample::selected_rows(std::byte* base) const {
  std::vector<std::byte*> rows;
  rows.reserve(ids_.size());
  for (std::size_t i = 0; i < ids_.size(); ++i) {
    rows.push_back(base + offset_of(i / selected_, ids_[i]));
  }
  return rows;
}

std::vector<float> layer_queries() {
  return normal_numbers(measured_layer.query_heads * measured_layer.head_dim, 6);
}

}  // namespace terrace::bench
