// Groups and signs in the chunks of an index.
#pragma once

#include <vector>

#include "kernels/block_store.hpp"
#include "terrace/kernels/estimate.hpp"
#include "terrace/kernels/rows.hpp"
#include "terrace/kernels/signs.hpp"

namespace terrace::testing {

/// Rows in groups at random; rows of a page that is not full have no group.
class SignIndex {
 public:
  SignIndex(const BlockStore& store, std::size_t groups, std::size_t page_tokens,
            std::size_t chunk_tokens, TokenRange tokens)
      : shape_(store.shape()) {
    signs_.groups = {.page_tokens = page_tokens, .groups = groups, .chunk_begin = 4};
    signs_.chunk_begin =
        align_up(signs_.groups.chunk_begin + signs_.groups.chunk_bytes(shape_, chunk_tokens), 4);
    for (std::size_t begin = 0; begin < tokens.size(); begin += chunk_tokens) {
      memory_.emplace_back(signs_.chunk_begin + signs_.chunk_bytes(shape_, chunk_tokens));
      chunks_.push_back(memory_.back().data());
    }
    view_ = {.chunks = chunks_.data(),
             .chunk_tokens = chunk_tokens,
             .first_token = tokens.begin,
             .token_count = tokens.size()};
    Rng random(seed(), {95});
    for (std::size_t head = 0; head < shape_.kv_heads; ++head) {
      for (std::size_t page = 0; page < tokens.size() / page_tokens; ++page) {
        std::vector<std::uint8_t> group_of(page_tokens);
        for (std::uint8_t& group : group_of)
          group = static_cast<std::uint8_t>(random.below(groups));
        group_of[random.below(page_tokens)] = GroupShape::none;
        kernels::host::average_groups({.shape = shape_,
                                       .groups = signs_.groups,
                                       .index = view_,
                                       .head = head,
                                       .page = page,
                                       .rows = store.table(),
                                       .group_of = group_of});
      }
      const std::size_t full = tokens.begin + tokens.size() / page_tokens * page_tokens;
      encode(store, head, {tokens.begin, full}, true);
      encode(store, head, {full, tokens.end}, false);
    }
  }

  void encode(const BlockStore& store, std::size_t head, TokenRange tokens, bool grouped) {
    std::vector<float> keys(tokens.size() * shape_.head_dim);
    const Status read = kernels::host::read_keys({.shape = shape_,
                                                  .rows = store.table(),
                                                  .tokens = tokens,
                                                  .head = head,
                                                  .dims = shape_.head_dim},
                                                 keys.data());
    EXPECT_TRUE(read.has_value());
    kernels::host::sign_encode({.shape = shape_,
                                .signs = signs_,
                                .index = view_,
                                .head = head,
                                .tokens = tokens,
                                .grouped = grouped,
                                .keys = keys.data()});
  }

  [[nodiscard]] const IndexView& view() const { return view_; }
  [[nodiscard]] const SignShape& signs() const { return signs_; }
  [[nodiscard]] const std::vector<std::vector<std::byte>>& memory() const { return memory_; }

 private:
  KvShape shape_;
  SignShape signs_;
  std::vector<std::vector<std::byte>> memory_;
  std::vector<std::byte*> chunks_;
  IndexView view_;
};

}  // namespace terrace::testing
