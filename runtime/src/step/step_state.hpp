// The state of a Step: which sequences take part, and where their tokens lie in its tensors.
#pragma once

#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "step_batch.hpp"
#include "terrace/runtime/step.hpp"

namespace terrace {

class Step::State {
 public:
  State(std::shared_ptr<RuntimeState> runtime, Queue& compute, const StepOptions& options);
  ~State();
  State(const State&) = delete;
  State& operator=(const State&) = delete;

  /// Begins a step; a sequence that cannot begin does not take part.
  Status begin(std::span<const StepMember> members);
  Status attend(LayerId layer, const StepTensors& tensors);
  Status gather(LayerId layer, const StepTensors& tensors, std::span<KvView> views);
  Status append(LayerId layer, const StepTensors& tensors);
  Status end(std::span<const std::size_t> accepted);
  [[nodiscard]] const Status& status(std::size_t sequence) const noexcept;
  [[nodiscard]] std::size_t sequences() const noexcept { return statuses_.size(); }

 private:
  [[nodiscard]] Status check_members(std::span<const StepMember> members) const;
  void begin_member(SequenceState& sequence, std::size_t tokens);
  [[nodiscard]] Status check(std::string_view call, const StepTensors& tensors) const;
  [[nodiscard]] Status check_queries(std::string_view call, const StepTensors& tensors) const;
  [[nodiscard]] Status check_outputs(const StepTensors& tensors) const;
  [[nodiscard]] Status check_gather(std::size_t views) const;
  /// The tensors with strides in place of 0.
  [[nodiscard]] StepTensors with_strides(StepTensors tensors) const noexcept;
  /// Says each member which part of the tensors is its own: `firsts` are the members' first tokens.
  void hand_out(const StepTensors& tensors, std::span<const std::size_t> firsts);
  /// Enqueues a layer whose queries and outputs are not f32.
  Status attend_converted(LayerId layer, const StepTensors& tensors);
  /// Has queries as f32, in the step's memory.
  Status convert_queries(const StepTensors& tensors);
  Status enqueue_converted(LayerId layer, const StepTensors& tensors);
  Status reserve_converted();
  /// Hands out f32 in place of the engine's tensors.
  void hand_out_in_f32(const StepTensors& tensors);
  /// Tokens of the step, and the places of each member's first one: where the engine has them, or
  /// converted, where those of members alone follow each other.
  struct Converting {
    ConvertQueries all;
    std::span<const std::size_t> from;
    std::span<const std::size_t> to;
  };
  /// Converts those whose sequences have not failed.
  Result<Ticket> convert(const Converting& tokens);
  /// Returns the tokens of all sequences.
  [[nodiscard]] std::size_t token_count() const noexcept;
  /// Numbers of a query token.
  [[nodiscard]] std::size_t numbers() const noexcept {
    return runtime_.plan.shape().query_heads * runtime_.plan.shape().head_dim;
  }
  [[nodiscard]] Status check_accepted(std::span<const std::size_t> accepted) const;
  void give_up();
  void take_statuses();
  /// Returns the tokens of prompts, if most tokens of the step are of prompts that have not failed.
  [[nodiscard]] std::size_t prompt_tokens() const;

  std::shared_ptr<RuntimeState> kept_runtime_;  ///< a step may outlive Runtime and sequences
  RuntimeState& runtime_;
  Queue& compute_;
  StepOptions options_;
  std::vector<Status> statuses_;     ///< of those that do not take part, and of all at the end
  std::vector<std::size_t> places_;  ///< per member of the batch: its place among the sequences
  std::vector<std::size_t> tokens_;  ///< per sequence
  std::vector<std::size_t> firsts_;  ///< per member: its first token's place in the tensors
  std::vector<std::size_t> packed_firsts_;  ///< the same where members alone have a place
  std::size_t packed_tokens_ = 0;
  LentStepMemory memory_;
  StepBatch batch_;
  std::vector<StepInput> inputs_;
  std::vector<StepOutput> outputs_;
  std::vector<ConvertQueries> conversions_;
  std::vector<std::size_t> kept_;  ///< per member: accepted tokens
  TimePoint begun_{};
  Duration waited_before_{};  ///< HostTier::waited() then
  bool ended_ = true;
};

}  // namespace terrace
