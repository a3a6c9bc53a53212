// A decoder's arithmetic as functions of the compute queue, on the backend's device threads.
#pragma once

#include "arithmetic.hpp"
#include "piece_rows.hpp"

namespace terrace::engine {

class HostArithmetic final : public Arithmetic {
 public:
  static Result<std::unique_ptr<Arithmetic>> create(const LlamaModel& model, Backend& backend,
                                                    Queue& compute,
                                                    const ArithmeticOptions& options);

  [[nodiscard]] std::string_view gemm() const noexcept override { return "OpenBLAS"; }
  Status begin(const PieceSetup& piece) override;
  void release() noexcept override;
  Status project(std::size_t layer) override;
  [[nodiscard]] const float* query() const noexcept override;
  [[nodiscard]] KvTensors rows() const noexcept override;
  [[nodiscard]] float* attention() noexcept override;
  Result<std::span<const float>> read_queries(std::size_t count) override;
  [[nodiscard]] std::span<const float> read_pre_rope_keys() const noexcept override;
  Result<KvTensors> read_rows() override { return rows(); }
  Status speculate(std::size_t layer) override;
  [[nodiscard]] const float* speculated_query() const noexcept override;
  Status keep(std::size_t layer) override;
  Status finish(std::size_t layer) override;
  Status predict() override;
  [[nodiscard]] std::span<const float> logits() const noexcept override { return logits_.span(); }
  [[nodiscard]] std::span<const float> kept_query(std::size_t layer) const noexcept override;
  [[nodiscard]] std::span<const float> kept_attention(std::size_t layer) const noexcept override;

 private:
  HostArithmetic(const LlamaModel& model, Queue& compute, const ArithmeticOptions& options);

  /// Enqueues work(threads), which returns nothing or a Status.
  template <typename Work>
  Status enqueue(Work work);
  /// Enqueues work(chunk, threads) for all chunks of the piece, each by itself.
  template <typename Work>
  Status enqueue_chunks(Work work);
  /// Rounds a chunk's keys and values, but those of rows without a token, to the KV dtype.
  /// Errors: those of check_rows
  Status pack_rows(std::size_t layer, const PieceRows::Chunk& chunk) noexcept;
  [[nodiscard]] float* hidden_of(std::size_t row) noexcept {
    return hidden_.data() + row * model_.config().hidden_size;
  }

  const LlamaModel& model_;
  Queue& compute_;
  KvShape shape_;
  std::size_t chunk_rows_;
  Workspace workspace_;
  PieceRows piece_;

  FloatArray hidden_;         ///< [piece rows, hidden_size]
  FloatArray query_;          ///< [piece rows, query_size]
  FloatArray attention_;      ///< [piece rows, query_size]
  FloatArray speculated_;     ///< [piece rows, query_size], of a piece that speculates
  FloatArray pre_rope_keys_;  ///< [piece rows, kv_size], of a piece that keeps them
  FloatArray rows_;           ///< [kv_heads, piece tokens] rows of the KV dtype
  FloatArray key_;            ///< [chunk rows, kv_size]
  FloatArray value_;          ///< [chunk rows, kv_size]
  FloatArray kept_;           ///< [layers, 2, query_size]: query, attention; once some are kept
  FloatArray logits_;         ///< [vocabulary]
};

}  // namespace terrace::engine
