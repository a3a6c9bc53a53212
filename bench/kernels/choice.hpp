// Benches of selections share these: the buffers of one KV head, and selecting by whole keys.
#pragma once

#include <vector>

#include "kernels/expected.hpp"
#include "kernels/sample_rows.hpp"
#include "terrace/core/ops.hpp"
#include "terrace/kernels/rows.hpp"
#include "terrace/kernels/select.hpp"

namespace terrace::bench {

/// The buffers of one KV head's selection among `tokens` rows, and what it is to select.
class Choice {
 public:
  Choice(const KvShape& shape, std::size_t tokens, std::size_t count)
      : shape_(shape),
        tokens_(tokens),
        query_(normal_numbers(shape.query_heads * shape.head_dim, 10)),
        ids_(count),
        scratch_(selection_scratch_floats(shape, tokens)) {}

  [[nodiscard]] const KvShape& shape() const { return shape_; }
  [[nodiscard]] std::size_t tokens() const { return tokens_; }
  [[nodiscard]] std::size_t count() const { return ids_.size(); }

  [[nodiscard]] SelectCommon common() {
    return {.shape = shape_,
            .query = query_.data(),
            .candidates = {0, tokens_},
            .count = {.mean = ids_.size()},
            .ids = ids_.data(),
            .id_count = &id_count_,
            .id_stride = ids_.size(),
            .scratch = scratch_.data()};
  }

  /// Makes the present selection the expected one.
  void expect() { expected_ = ids_; }

  /// All but `wrong` are as expected: rounding may swap neighbours in rank.
  [[nodiscard]] Status verify(std::size_t wrong) const {
    return check_selected({ids_.data(), id_count_}, expected_, wrong);
  }
  [[nodiscard]] Status verify_count() const {
    return id_count_ == ids_.size() ? Status{} : fail(Errc::corrupt, "not as many as wanted");
  }

 private:
  KvShape shape_;
  std::size_t tokens_;
  std::vector<float> query_;
  std::vector<std::uint32_t> ids_;
  std::uint32_t id_count_ = 0;
  std::vector<float> scratch_;
  std::vector<std::uint32_t> expected_;
};

/// An index of whole keys.
class WholeKeys {
 public:
  WholeKeys(WholeKeys&&) noexcept = default;
  WholeKeys& operator=(WholeKeys&&) noexcept = default;

  static Result<WholeKeys> create(const KvShape& shape, std::size_t tokens,
                                  const SampleRows& rows) {
    WholeKeys keys(shape, tokens);
    Serial alone;
    TERRACE_TRY(kernels::host::key_copy({shape, rows.table(), {0, tokens}, keys.view()}, alone));
    return keys;
  }

  [[nodiscard]] IndexView view() const {
    return {.chunks = chunks_.data(), .chunk_tokens = chunk_tokens, .token_count = tokens_};
  }

 private:
  static constexpr std::size_t chunk_tokens = 64;

  WholeKeys(const KvShape& shape, std::size_t tokens)
      : tokens_(tokens),
        memory_(tokens * shape.token_bytes() / 2),
        chunks_(cut_chunks(memory_, chunk_tokens * shape.token_bytes() / 2)) {}

  std::size_t tokens_;
  std::vector<std::byte> memory_;
  std::vector<std::byte*> chunks_;
};

}  // namespace terrace::bench
