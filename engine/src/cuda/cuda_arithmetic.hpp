// A decoder's arithmetic as kernels on the compute queue's stream. Weights and activations lie in
// device memory; what the host wants to see is copied behind the kernels that make it.
#pragma once

#include <optional>

#include "arithmetic.hpp"
#include "cuda/cublas.hpp"
#include "cuda/model_kernels.hpp"
#include "prompt_place.hpp"

namespace terrace::engine {

class CudaArithmetic final : public Arithmetic {
 public:
  /// Errors   unsupported: heads of more than cuda::prefill_dims_max dimensions; out_of_memory
  static Result<std::unique_ptr<Arithmetic>> create(const LlamaModel& model, Backend& backend,
                                                    Queue& compute,
                                                    const ArithmeticOptions& options);
  ~CudaArithmetic() override;

  [[nodiscard]] std::string_view gemm() const noexcept override {
    return cublas_ != nullptr ? "cuBLAS" : "own kernels";
  }
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
  Status speculate_prompt(std::size_t layer, RowRange rows) override;
  Status speculate_step(std::size_t layer, std::size_t position) override;
  [[nodiscard]] const float* speculated_query() const noexcept override {
    return speculated_.as<float>();
  }
  [[nodiscard]] const float* step_query(std::size_t layer) const noexcept override;
  [[nodiscard]] KvTensors step_rows() const noexcept override;
  Status keep_pre_rope_keys() override;
  Result<std::span<const float>> read_pre_rope_keys(std::size_t rows) override;
  [[nodiscard]] float* attention() noexcept override { return attention_.as<float>(); }
  Status keep_attention(std::size_t layer) override;
  Status finish_step(std::size_t layer) override;

  Status predict(std::size_t token) override;
  [[nodiscard]] std::span<const float> logits() const noexcept override;
  Status show_checks() override;
  [[nodiscard]] Status check_stored_rows() const override;
  [[nodiscard]] std::span<const float> query(std::size_t layer) const noexcept override;
  [[nodiscard]] std::span<const float> kept_attention(std::size_t layer) const noexcept override;
  Result<KvTensors> read_rows(const KvTensors& rows, std::size_t first, std::size_t count) override;

 private:
  CudaArithmetic(const LlamaModel& model, Backend& backend, Queue& compute,
                 const ArithmeticOptions& options);

  Status reserve();
  /// Takes cuBLAS for products of many rows, where it is there and takes the device.
  Status use_cublas();
  Status upload(std::span<const std::byte> source, Buffer& target);
  Result<Buffer> allocate(std::size_t bytes, Tier tier = Tier::device);
  Result<Buffer> allocate_floats(std::size_t floats, Tier tier = Tier::device);

  /// Enqueues kernels(launch), as one piece of work.
  template <typename Kernels>
  Status enqueue(Kernels kernels);
  Status copy(std::span<const CopyExtent> extents);
  /// Makes room for `rows` rows that are computed, and for the ids, keys and values of `tokens`
  /// tokens.
  Status reserve_prompt(std::size_t rows, std::size_t tokens);
  Status embed(std::span<const TokenId> tokens, float* hidden);
  [[nodiscard]] std::uint32_t* unfit_of(std::size_t layer) const noexcept {
    return unfit_.as<std::uint32_t>() + layer;
  }
  Status speculate(std::size_t layer, const float* hidden, std::size_t rows, RowRange rotated);
  /// Projects `rows` rows, of which those from place_.before on are rotated.
  Status project(std::size_t layer, const float* hidden, std::size_t rows,
                 cuda::RotateAndPack rotation);
  Status finish_layer(std::size_t layer, std::size_t rows, float* hidden);

  [[nodiscard]] Status multiply(const MatrixProduct& product, const cuda::Launch& launch) const;

  /// A product with a weight of the model.
  [[nodiscard]] MatrixProduct product(const MatrixProduct& on_host) const noexcept;
  /// Adds a bias of the model, where there is one.
  Status add_bias(const float* bias, std::size_t rows, std::size_t size, float* target,
                  const cuda::Launch& launch) const;
  /// The norms of heads behind a projection, if the model has them.
  [[nodiscard]] std::optional<cuda::NormaliseHeads> head_norms(const LayerWeights& weights,
                                                               std::size_t rows) const noexcept;
  [[nodiscard]] cuda::Normalise normalisation(const float* source, const float* weight,
                                              std::size_t rows) const noexcept;

  /// Where a weight of the model lies on the device.
  [[nodiscard]] const float* on_device(const float* weight) const noexcept {
    return weights_.as<float>() + (weight - model_.weights().values().data());
  }
  [[nodiscard]] KvTensors tensors(const Buffer& rows, std::size_t capacity) const noexcept;
  [[nodiscard]] float* hidden_of(std::size_t row) const noexcept {
    return hidden_.as<float>() + row * model_.config().hidden_size;
  }

  const LlamaModel& model_;
  Backend& backend_;
  Queue& compute_;
  KvShape shape_;
  std::size_t chunk_;
  Duration deadline_;  ///< of each wait
  Rope rope_;
  std::size_t prompt_tokens_ = 0;  ///< that prompt_rows_ have room for
  PromptPlace place_;
  std::unique_ptr<cuda::Cublas> cublas_;  ///< null where there is none

  // Device memory. Rows of a chunk are those that are computed with it.
  Buffer cublas_workspace_;
  Buffer weights_;             ///< as LlamaWeights::values
  Buffer frequencies_;         ///< f64 [head_dim / 2]
  Buffer hidden_;              ///< [prompt or chunk rows, hidden_size]
  Buffer step_hidden_;         ///< [hidden_size]
  Buffer normed_;              ///< [chunk rows, hidden_size]
  Buffer qkv_;                 ///< [chunk rows, query_size + 2 kv_size]
  Buffer gate_up_;             ///< [chunk rows, 2 intermediate]
  Buffer activated_;           ///< [chunk rows, intermediate]
  Buffer chunk_query_;         ///< [chunk, query_size]
  Buffer attention_;           ///< [chunk rows, query_size]
  Buffer seen_pre_rope_keys_;  ///< host [chunk, kv_size], once some are kept
  Buffer kept_attention_;      ///< host [layers, query_size], once some is kept
  Buffer speculated_;          ///< [chunk, query_size], once some is speculated
  Buffer speculated_rows_;     ///< [kv_heads, chunk] rows that nobody reads
  Buffer step_query_;          ///< [layers, query_size]
  Buffer logits_;              ///< [vocabulary]
  Buffer prompt_rows_[2];      ///< [kv_heads, tokens] rows of the KV dtype
  Buffer step_rows_;           ///< [kv_heads] rows of the KV dtype
  Buffer unfit_;               ///< u32 [layers]: 1 where a row is not finite in the KV dtype
  // Locked host memory.
  Buffer tokens_;  ///< u32 [prompt tokens], or one
  Buffer seen_chunk_query_;
  Buffer seen_step_query_;
  Buffer seen_logits_;
  Buffer seen_unfit_;
  Buffer seen_rows_;  ///< [kv_heads, chunk] rows
};

}  // namespace terrace::engine
