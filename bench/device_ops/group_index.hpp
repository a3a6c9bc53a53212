// An index of a measured layer: the means of groups of rows, and signs of what they leave of keys.
#pragma once

#include <vector>

#include "device_ops/layer_rows.hpp"
#include "terrace/core/ops.hpp"

namespace terrace::bench {

class GroupIndex {
 public:
  /// Errors: those of reading keys.
  static Result<GroupIndex> create(const LayerSample& rows);

  [[nodiscard]] const SignShape& shape() const noexcept { return shape_; }
  /// Groups of a KV head.
  [[nodiscard]] std::size_t groups() const noexcept { return shape_.groups.count(tokens_); }
  /// Bytes that a choice by signs reads.
  [[nodiscard]] std::size_t bytes_of_signs() const noexcept;
  /// Bytes that estimates of what is not selected read.
  [[nodiscard]] std::size_t bytes_of_rests() const noexcept;

  /// Returns the index in memory of a place.
  template <typename Place>
  Result<IndexView> in(Place& place) const {
    TERRACE_ASSIGN(std::byte* const memory, place.copy_of(memory_));
    TERRACE_ASSIGN(std::byte* const* const table,
                   place.copy_of(cut_chunks({memory, memory_.size()}, chunk_bytes())));
    return IndexView{.chunks = table, .chunk_tokens = chunk_tokens, .token_count = tokens_};
  }

  /// Returns the rests of an attention to the rows with these positions.
  template <typename Place>
  Result<GroupRests> rests_in(Place& place, std::span<const std::uint32_t> ids) const {
    const std::size_t entries = measured_layer.kv_heads * groups();
    GroupRests rests{
        .candidates = {0, tokens_}, .groups = shape_.groups, .index = {}, .most = groups()};
    TERRACE_ASSIGN(rests.index, in(place));
    TERRACE_ASSIGN(rests.ids, place.copy_of(ids));
    TERRACE_ASSIGN(rests.means,
                   place.template room_for<std::byte>(entries * measured_layer.row_bytes()));
    TERRACE_ASSIGN(rests.pseudo.rows, place.template room_for<const std::byte*>(entries));
    TERRACE_ASSIGN(rests.pseudo.bias, place.template room_for<float>(entries));
    TERRACE_ASSIGN(rests.pseudo.count,
                   place.template room_for<std::uint32_t>(measured_layer.kv_heads));
    rests.pseudo.stride = groups();
    TERRACE_ASSIGN(rests.scratch, place.template room_for<float>(estimate_scratch_floats(
                                      measured_layer, shape_.groups, tokens_)));
    return rests;
  }

 private:
  static constexpr std::size_t chunk_tokens = 256;  // as policies have them

  explicit GroupIndex(std::size_t tokens);
  [[nodiscard]] std::size_t chunk_bytes() const noexcept;
  struct Tables {
    BlockTable rows;
    IndexView index;
  };
  Status write_page(const Tables& tables, std::size_t head, std::size_t page) const;

  SignShape shape_;
  std::size_t tokens_;
  std::vector<std::byte> memory_;
};

}  // namespace terrace::bench
