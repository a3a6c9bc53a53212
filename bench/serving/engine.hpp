// An engine with continuous batching whose model is made up: it has keys, values and queries, and
// no weights. All of its time is spent in Terrace.
//
//   auto engine = ServingEngine::create(options);
//   auto one = (*engine)->store({.tokens = 4096, .piece_tokens = 512, .seed = 1});
//   auto other = (*engine)->announce({.tokens = 3000, .piece_tokens = 512, .seed = 2});
//   const ServedMember batch[] = {(*one)->next(), (*other)->next()};  // a token, and a piece
//   auto times = (*engine)->step(batch);
//   (*engine)->check_outputs(1);                    // of `other`
//
// Sequences work on the engine's compute queue: close them before it.
#pragma once

#include <algorithm>
#include <functional>
#include <limits>
#include <memory>
#include <span>
#include <vector>

#include "serving/attention_check.hpp"
#include "serving/traffic.hpp"
#include "terrace/runtime/runtime.hpp"

namespace terrace::bench {

struct ServingOptions {
  RuntimeOptions runtime;
  std::function<Result<std::unique_ptr<Backend>>()> backend;
};

struct MadeUpPrompt {
  std::size_t tokens = 0;
  std::size_t piece_tokens = 512;  ///< that are given at once; the last piece may be shorter. Not 0
  std::uint64_t seed = 0;          ///< names the traffic
};

struct ServedSequence;

/// A sequence that takes part in a step, and with how many tokens.
struct ServedMember {
  ServedSequence* served = nullptr;
  std::size_t tokens = 1;
};

/// A sequence that is served.
struct ServedSequence {
  Traffic traffic;
  std::unique_ptr<Sequence> sequence;
  MadeUpPrompt prompt;

  [[nodiscard]] std::size_t prompt_tokens_left() const noexcept {
    return prompt.tokens - std::min(prompt.tokens, sequence->length());
  }
  /// Returns its part in the next step: a piece of its prompt or, after the prompt, one token.
  [[nodiscard]] ServedMember next() noexcept {
    const std::size_t left = prompt_tokens_left();
    return {this, left == 0 ? 1 : std::min(left, prompt.piece_tokens)};
  }
};

/// Processor time of the thread that takes a step, by the call that took it.
struct StepCpu {
  Duration begin{};
  Duration attend{};  ///< of all layers
  Duration end{};
};

struct StepTimes {
  Duration wall{};  ///< from beginning the step to its end
  Duration busy{};  ///< of that, the compute queue worked
  StepCpu cpu{};
};

/// Threads  one at a time
class ServingEngine {
 public:
  static Result<std::unique_ptr<ServingEngine>> create(const ServingOptions& options);
  ~ServingEngine();
  ServingEngine(const ServingEngine&) = delete;
  ServingEngine& operator=(const ServingEngine&) = delete;

  /// Opens a sequence and stores a prompt in pieces, without attention if the policies allow that,
  /// so that a batch is set up quickly. The prompt's index may still be under way then.
  Result<std::unique_ptr<ServedSequence>> store(const MadeUpPrompt& prompt);

  /// Stores pieces of an announced prompt, as store() does, until there are so many of its tokens.
  /// Returns the time that steps took: making up rows is not in it.
  Result<Duration> store_until(ServedSequence& served, std::size_t tokens);

  /// Opens a sequence that gives its prompt in steps.
  Result<std::unique_ptr<ServedSequence>> announce(const MadeUpPrompt& prompt);

  /// Opens a sequence that begins with what is kept of a prefix, and gives the rest of its prompt
  /// in steps.
  Result<std::unique_ptr<ServedSequence>> find(const MadeUpPrompt& prompt,
                                               const PrefixQuery& prefix);

  /// Takes one step of all of these. Errors: also what failed of one of them, naming its place.
  Result<StepTimes> step(std::span<const ServedMember> batch);
  Result<StepTimes> step(const ServedMember& alone) { return step({&alone, 1}); }

  /// Checks what the last step gave the last token of the sequence at a place of its batch, in so
  /// many of its query heads, evenly spread.
  ///
  /// Errors   corrupt: an output is wrong; attention_check.hpp says when
  /// Cost     far more than the step
  Status check_outputs(std::size_t place,
                       std::size_t heads = std::numeric_limits<std::size_t>::max());

  [[nodiscard]] Runtime& runtime() noexcept { return *runtime_; }
  /// Device memory of queries, rows and outputs, which a model has and Terrace does not count.
  [[nodiscard]] std::size_t tensor_bytes() const noexcept {
    return rows_.device.bytes() + queries_.device.bytes() + outputs_.device.bytes();
  }

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

  /// A member of the last batch, and where its tokens lie among those of a layer.
  struct PlacedMember {
    ServedSequence* served = nullptr;
    TokenRange tokens;      ///< of the sequence
    std::size_t first = 0;  ///< in a layer of the tensors
  };

  ServingEngine(const ServingOptions& options, std::unique_ptr<Runtime> runtime,
                std::unique_ptr<Queue> compute);

  [[nodiscard]] const KvShape& shape() const noexcept { return runtime_->options().shape; }
  [[nodiscard]] std::size_t floats_per_token() const noexcept {
    return shape().query_heads * shape().head_dim;
  }
  Status copy_now(std::span<const CopyExtent> extents);
  Result<std::unique_ptr<ServedSequence>> serve(const MadeUpPrompt& prompt,
                                                std::unique_ptr<Sequence> sequence);
  Result<Duration> store_piece(const ServedMember& piece);

  /// Places the batch's tokens, and makes their rows and, where they are to attend, queries.
  Status lay_out(std::span<const ServedMember> batch);
  Status lay_out_rows(std::span<const ServedMember> batch);
  Status lay_out_queries();
  void fill_rows();
  Status attend(Step& step);
  /// Stores the rows of a piece of a prompt, without attention.
  Status append(Step& step);
  PromptHints hints(std::size_t layer, const PlacedMember& member) const;
  [[nodiscard]] std::size_t place_in_tensors(std::size_t layer, const PlacedMember& member) const {
    return layer * batch_tokens_ + member.first;
  }
  Status check_output(const ServedSequence& served, const AttendedToken& token) const;
  [[nodiscard]] Duration busy() const;

  std::unique_ptr<Runtime> runtime_;
  std::unique_ptr<Queue> compute_;
  RowPool pool_;
  Tensor rows_;                      ///< [layers, tokens of the batch, kv_heads, 2, head_dim]
  Tensor queries_;                   ///< f32 [layers, tokens of the batch, query_heads, head_dim]
  Tensor outputs_;                   ///< the same
  std::vector<PlacedMember> batch_;  ///< of the last step
  std::size_t batch_tokens_ = 0;     ///< all of it
  std::vector<float> last_queries_;  ///< of a stored piece's last positions, as a policy's hints
};

}  // namespace terrace::bench
