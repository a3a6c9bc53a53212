// A model that decodes through a runtime of its own.
#pragma once

#include <memory>
#include <string>
#include <utility>

#include "terrace/engine/decoder.hpp"
#include "terrace/offload/host_backend.hpp"
#include "terrace/runtime/runtime.hpp"

namespace terrace::engine {

inline constexpr TokenBudget whole_context{.kind = TokenBudget::Kind::tokens, .value = 8192};
inline constexpr TokenBudget small_budget{.kind = TokenBudget::Kind::tokens, .value = 40};

struct DecodingOptions {
  std::string policy;
  TokenBudget budget = whole_context;
  Dtype kv_dtype = Dtype::f32;
  std::size_t rope_length = 0;
  std::size_t piece_tokens = 0;
  std::size_t chunk_tokens = 512;
  std::shared_ptr<const RetrievalPolicy> own_policy = nullptr;
  std::string retention = "none";
  PromptAttention prompts = PromptAttention::exact;
};

struct Decoding {
  Decoding(const LlamaModel& model, const DecodingOptions& options,
           std::unique_ptr<Backend> backend = offload::HostBackend::create({}).value())
      : piece_tokens(options.piece_tokens) {
    runtime = Runtime::open({.shape = model.config().kv_shape(options.kv_dtype),
                             .policy = options.policy,
                             .own_policy = options.own_policy,
                             .retention_policy = options.retention,
                             .budget = options.budget,
                             .sink_tokens = 8,
                             .prompts = options.prompts,
                             .until_ready = UntilReady::wait},
                            std::move(backend))
                  .value();
    decoder =
        Decoder::create(model, *runtime,
                        {.chunk_tokens = options.chunk_tokens, .rope_length = options.rope_length})
            .value();
    sequence = runtime->open_sequence().value();
  }

  Status prefill(std::span<const TokenId> tokens, std::size_t to_come = 0) {
    return decoder->prefill(*sequence, tokens, {.piece_tokens = piece_tokens, .to_come = to_come});
  }
  Status step(TokenId token) { return decoder->step(*sequence, token); }
  [[nodiscard]] std::vector<float> logits() const {
    return {decoder->logits().begin(), decoder->logits().end()};
  }

  std::size_t piece_tokens;
  std::unique_ptr<Runtime> runtime;
  std::unique_ptr<Decoder> decoder;
  std::unique_ptr<Sequence> sequence;
};

}  // namespace terrace::engine
