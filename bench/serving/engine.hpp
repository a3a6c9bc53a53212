// An engine with continuous batching whose model is made up: it has keys, values and queries, and
// no weights. All time that it takes is Terrace's.
//
//   auto engine = ServingEngine::create(options);
//   auto one = (*engine)->admit({.tokens = 4096, .piece_tokens = 512, .seed = 1});
//   auto other = (*engine)->admit({.tokens = 3000, .piece_tokens = 512, .seed = 2});
//   auto times = (*engine)->step({{one->get(), other->get()}});
//   (*engine)->check_outputs(0);                    // of `one`
//
// Sequences work on the engine's compute queue: close them before it.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "serving/traffic.hpp"
#include "terrace/runtime/runtime.hpp"

namespace terrace::bench {

struct ServingOptions {
  RuntimeOptions runtime;
  std::function<Result<std::unique_ptr<Backend>>()> backend;
};

struct MadeUpPrompt {
  std::size_t tokens = 0;
  std::size_t piece_tokens = 512;  ///< that are given at once; the last piece may be shorter
  std::uint64_t seed = 0;          ///< names the traffic
};

/// A sequence that is served.
struct ServedSequence {
  Traffic traffic;
  std::unique_ptr<Sequence> sequence;
  Duration prompt{};  ///< that its prompt took, without making the rows
};

struct StepTimes {
  Duration wall{};  ///< from beginning the step to its end
  Duration busy{};  ///< of that, the compute queue worked
};

/// Threads  one at a time
class ServingEngine {
 public:
  static Result<std::unique_ptr<ServingEngine>> create(const ServingOptions& options);
  ~ServingEngine();
  ServingEngine(const ServingEngine&) = delete;
  ServingEngine& operator=(const ServingEngine&) = delete;

  /// Opens a sequence and gives it a prompt, layer by layer in pieces. Its index may still be under
  /// way then.
  Result<std::unique_ptr<ServedSequence>> admit(const MadeUpPrompt& prompt);

  /// Takes one step of all of these. Errors: also what failed of one of them, naming its place.
  Result<StepTimes> step(std::span<ServedSequence* const> batch);

  /// Checks what the last step gave the sequence at a place of its batch.
  ///
  /// Errors   corrupt: an output is wrong; attention_check.hpp says when
  /// Cost     far more than the step
  Status check_outputs(std::size_t place);

  [[nodiscard]] Runtime& runtime() noexcept { return *runtime_; }

 private:
  /// Tensors as a model would have computed them: written on the host, read on the device.
  struct Tensor {
    Buffer host;
    Buffer device;

    Status reserve(Backend& backend, std::size_t bytes);
    [[nodiscard]] CopyExtent to_device(std::size_t bytes) const noexcept {
      return {device.data(), host.data(), bytes};
    }
    [[nodiscard]] CopyExtent to_host(std::size_t bytes) const noexcept {
      return {host.data(), device.data(), bytes};
    }
  };

  ServingEngine(const ServingOptions& options, std::unique_ptr<Runtime> runtime,
                std::unique_ptr<Queue> compute);

  [[nodiscard]] const KvShape& shape() const noexcept { return runtime_->options().shape; }
  [[nodiscard]] std::size_t floats_per_token() const noexcept {
    return shape().query_heads * shape().head_dim;
  }
  Status copy_now(std::span<const CopyExtent> extents);
  Status give_prompt(ServedSequence& served, const MadeUpPrompt& prompt);
  Status append_layer(ServedSequence& served, std::size_t layer, const MadeUpPrompt& prompt);
  PromptHints hints(const ServedSequence& served, std::size_t layer, TokenRange last_piece);
  Status fill_inputs();
  Status attend(Step& step);
  [[nodiscard]] Duration busy() const;

  std::unique_ptr<Runtime> runtime_;
  std::unique_ptr<Queue> compute_;
  RowPool pool_;
  Tensor prompt_;                       ///< [tokens, kv_heads, 2, head_dim], of one layer
  std::vector<float> prompt_queries_;   ///< of its end
  Tensor rows_;                         ///< [layers, batch, kv_heads, 2, head_dim]
  Tensor queries_;                      ///< f32 [layers, batch, query_heads, head_dim]
  Tensor outputs_;                      ///< the same
  std::vector<ServedSequence*> batch_;  ///< of the last step
};

}  // namespace terrace::bench
