// A decoder's arithmetic as functions of the compute queue, on the backend's device threads.
#pragma once

#include "arithmetic.hpp"
#include "prompt_place.hpp"
#include "terrace/engine/prefill_attention.hpp"

namespace terrace::engine {

class HostArithmetic final : public Arithmetic {
 public:
  static Result<std::unique_ptr<Arithmetic>> create(const LlamaModel& model, Backend& backend,
                                                    Queue& compute,
                                                    const ArithmeticOptions& options);

  [[nodiscard]] std::string_view gemm() const noexcept override { return "OpenBLAS"; }
  Status begin_prompt(std::span<const TokenId> tokens) override;
  Status begin_piece(std::span<const TokenId> tokens, std::size_t position) override;
  void end_prompt() noexcept override;
  Status project_prompt(std::size_t layer, RowRange rows) override;
  [[nodiscard]] const float* prompt_query() const noexcept override;
  [[nodiscard]] KvTensors prompt_rows(std::size_t layer) const noexcept override;
  Result<std::span<const float>> read_queries(std::size_t rows) override;
  [[nodiscard]] float* prompt_attention() noexcept override;
  Status attend_prompt(std::size_t layer, RowRange rows) override;
  Status finish_prompt(std::size_t layer, RowRange rows) override;

  Status begin_step(TokenId token) override;
  Status project_step(std::size_t layer, std::size_t position) override;
  [[nodiscard]] const float* step_query(std::size_t layer) const noexcept override;
  [[nodiscard]] KvTensors step_rows() const noexcept override;
  Status keep_pre_rope_keys() override;
  Result<std::span<const float>> read_pre_rope_keys(std::size_t rows) override;
  [[nodiscard]] float* attention() noexcept override { return attention_.data(); }
  Status keep_attention(std::size_t layer) override;
  Status finish_step(std::size_t layer) override;
  Status speculate_prompt(std::size_t layer, RowRange rows) override;
  Status speculate_step(std::size_t layer, std::size_t position) override;
  [[nodiscard]] const float* speculated_query() const noexcept override;

  Status predict(std::size_t token) override;
  [[nodiscard]] std::span<const float> logits() const noexcept override { return logits_.span(); }
  [[nodiscard]] std::span<const float> query(std::size_t layer) const noexcept override;
  [[nodiscard]] std::span<const float> kept_attention(std::size_t layer) const noexcept override;
  Result<KvTensors> read_rows(const KvTensors& rows, std::size_t first, std::size_t count) override;

 private:
  HostArithmetic(const LlamaModel& model, Queue& compute, const ArithmeticOptions& options);

  /// Enqueues work(threads), which returns nothing or a Status.
  template <typename Work>
  Status enqueue(Work work);
  [[nodiscard]] KvTensors tensors(const FloatArray& rows, std::size_t capacity) const noexcept;
  /// Makes room for `rows` rows that are computed, and for the keys and values of `tokens` tokens.
  Status reserve_prompt(std::size_t rows, std::size_t tokens);
  /// Rounds the chunk's keys and values, but those of rows that are nobody's, to the KV dtype, from
  /// token `first` of `rows` on. Errors: those of check_rows
  Status pack_rows(std::size_t layer, FloatArray& rows, std::size_t capacity, std::size_t first,
                   std::size_t count) noexcept;
  Status speculate(std::size_t layer, const float* hidden, RowRange rows);
  [[nodiscard]] float* hidden_of(std::size_t row) noexcept {
    return hidden_.data() + row * model_.config().hidden_size;
  }

  const LlamaModel& model_;
  Queue& compute_;
  KvShape shape_;
  std::size_t chunk_;
  Workspace workspace_;
  PrefillAttention prefill_attention_;
  std::size_t prompt_tokens_ = 0;  ///< that prompt_rows_ have room for
  PromptPlace place_;

  // Rows of a chunk are those that are computed with it.
  FloatArray hidden_;          ///< [prompt or chunk rows, hidden_size], or of one token
  FloatArray chunk_query_;     ///< [chunk rows, query_size]
  FloatArray chunk_key_;       ///< [chunk rows, kv_size]
  FloatArray chunk_value_;     ///< [chunk rows, kv_size]
  FloatArray pre_rope_keys_;   ///< [chunk rows, kv_size], once some are kept
  FloatArray attention_;       ///< [chunk rows, query_size]
  FloatArray kept_attention_;  ///< [layers, query_size], once some is kept
  FloatArray speculated_;      ///< [chunk rows, query_size], once some is speculated
  FloatArray step_query_;      ///< [layers, query_size]
  FloatArray logits_;          ///< [vocabulary]
  FloatArray prompt_rows_[2];  ///< [kv_heads, tokens] rows of the KV dtype
  FloatArray step_rows_;       ///< [kv_heads] rows of the KV dtype
};

}  // namespace terrace::engine
