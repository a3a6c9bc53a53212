// A decoder's arithmetic as kernels on the compute queue's stream. Weights and activations lie in
// device memory; results that the host needs are copied after the kernels that make them.
#pragma once

#include <optional>

#include "arithmetic.hpp"
#include "cuda/cublas.hpp"
#include "cuda/model_kernels.hpp"
#include "piece_rows.hpp"

namespace terrace::engine {

class CudaArithmetic final : public Arithmetic {
 public:
  /// Errors   out_of_memory
  static Result<std::unique_ptr<Arithmetic>> create(const LlamaModel& model, Backend& backend,
                                                    Queue& compute,
                                                    const ArithmeticOptions& options);
  ~CudaArithmetic() override;

  [[nodiscard]] std::string_view gemm() const noexcept override {
    return cublas_ != nullptr ? "cuBLAS" : "own kernels";
  }
  Status begin(const PieceSetup& piece) override;
  void release() noexcept override;
  Status project(std::size_t layer) override;
  [[nodiscard]] const float* query() const noexcept override { return query_.as<float>(); }
  [[nodiscard]] KvTensors rows() const noexcept override;
  [[nodiscard]] float* attention() noexcept override;
  Result<std::span<const float>> read_queries(std::size_t count) override;
  [[nodiscard]] std::span<const float> read_pre_rope_keys() const noexcept override;
  Result<KvTensors> read_rows() override;
  Status speculate(std::size_t layer) override;
  [[nodiscard]] const float* speculated_query() const noexcept override {
    return speculated_.as<float>();
  }
  Status keep(std::size_t layer) override;
  Status finish(std::size_t layer) override;
  Status predict() override;
  [[nodiscard]] std::span<const float> logits() const noexcept override;
  Status show_checks() override;
  [[nodiscard]] Status check_stored_rows() const override;
  [[nodiscard]] std::span<const float> kept_query(std::size_t layer) const noexcept override;
  [[nodiscard]] std::span<const float> kept_attention(std::size_t layer) const noexcept override;

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
  /// Makes a buffer of another size anew; 0 rows leave it empty.
  Status resize(Buffer& buffer, std::size_t rows, std::size_t row_bytes, Tier tier = Tier::device);
  Status reserve(const PieceSetup& piece);
  Status embed(std::span<const TokenId> tokens);
  [[nodiscard]] std::uint32_t* unfit_of(std::size_t layer) const noexcept {
    return unfit_.as<std::uint32_t>() + layer;
  }
  /// Projects a chunk. `rotation` says where its tokens go.
  Status project(std::size_t layer, const PieceRows::Chunk& chunk, cuda::RotateAndPack rotation);
  /// Copies a chunk's keys before RoPE to the host.
  Status read_pre_rope_keys(const PieceRows::Chunk& chunk);
  Status finish(std::size_t layer, const PieceRows::Chunk& chunk);
  /// Calls call(chunk) for all chunks of the piece.
  template <typename Call>
  Status for_each_chunk(Call call);

  [[nodiscard]] Status multiply(const MatrixProduct& product, const cuda::Launch& launch) const;

  /// A product with a weight of the model.
  [[nodiscard]] MatrixProduct product(const MatrixProduct& on_host) const noexcept;
  /// The product of a chunk's rows of `source` that is added to what the layers leave.
  [[nodiscard]] MatrixProduct added_to_hidden(const PieceRows::Chunk& chunk, const float* weight,
                                              const float* source,
                                              std::size_t inputs) const noexcept;
  /// Adds a bias of the model, if the model has it.
  Status add_bias(const float* bias, std::size_t rows, std::size_t size, float* target,
                  const cuda::Launch& launch) const;
  /// The norms of heads after a projection, if the model has them.
  [[nodiscard]] std::optional<cuda::NormaliseHeads> head_norms(const LayerWeights& weights,
                                                               std::size_t rows) const noexcept;
  [[nodiscard]] cuda::Normalise normalisation(const float* source, const float* weight,
                                              std::size_t rows) const noexcept;

  /// The place of a model's weight on the device.
  [[nodiscard]] const float* on_device(const float* weight) const noexcept {
    return weights_.as<float>() + (weight - model_.weights().values().data());
  }
  [[nodiscard]] KvTensors tensors(const Buffer& rows) const noexcept;
  [[nodiscard]] float* hidden_of(std::size_t row) const noexcept {
    return hidden_.as<float>() + row * model_.config().hidden_size;
  }

  const LlamaModel& model_;
  Backend& backend_;
  Queue& compute_;
  KvShape shape_;
  std::size_t chunk_rows_;
  Duration deadline_;  ///< of each wait
  Rope rope_;
  PieceRows piece_;
  std::unique_ptr<cuda::Cublas> cublas_;  ///< null if the library is missing

  // Device memory.
  Buffer cublas_workspace_;
  Buffer weights_;          ///< as LlamaWeights::values
  Buffer frequencies_;      ///< f64 [head_dim / 2]
  Buffer normed_;           ///< [chunk rows, hidden_size]
  Buffer qkv_;              ///< [chunk rows, query_size + 2 kv_size]
  Buffer gate_up_;          ///< [chunk rows, 2 intermediate]
  Buffer activated_;        ///< [chunk rows, intermediate]
  Buffer logits_;           ///< [vocabulary]
  Buffer unfit_;            ///< u32 [layers]: 1 where a row is not finite in the KV dtype
  Buffer hidden_;           ///< [piece rows, hidden_size]
  Buffer query_;            ///< [piece tokens, query_size]
  Buffer attention_;        ///< [piece rows, query_size]
  Buffer rows_;             ///< [kv_heads, piece tokens] rows of the KV dtype
  Buffer speculated_;       ///< [piece tokens, query_size], of a piece that speculates
  Buffer speculated_rows_;  ///< [kv_heads, chunk rows] rows that are never read
  // Locked host memory.
  Buffer seen_logits_;
  Buffer seen_unfit_;
  Buffer kept_;                ///< [layers, 2, query_size]: query, attention; once some are kept
  Buffer tokens_;              ///< u32 [piece tokens]
  Buffer seen_pre_rope_keys_;  ///< [piece tokens, kv_size], of a piece that keeps them
  Buffer seen_query_;          ///< [tokens, query_size], after the first request for it
  Buffer seen_rows_;           ///< [kv_heads, piece tokens] rows, likewise
};

}  // namespace terrace::engine
