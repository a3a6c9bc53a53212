// Keeps indexes up with a sequence: adds tokens that have left the window, cuts what is truncated
// or rejected, codes again what was lost.
#pragma once

#include "index_builder.hpp"
#include "services/sequence_services.hpp"
#include "terrace/policies/budget.hpp"

namespace terrace {

class IndexUpkeep {
 public:
  IndexUpkeep(const SequenceServices& services, LayerSpan layers, IndexRoom& room,
              IndexBuilder& builder) noexcept
      : plan_(services.plan),
        progress_(services.progress),
        work_(services.work),
        threads_(services.threads),
        layers_(layers),
        room_(room),
        builder_(builder) {}

  /// Enqueues the coding of tokens up to `end` that are not coded yet, and stages the copying.
  /// A prompt's tokens are worth waking other threads for, a step's are not.
  Status extend(Layer& layer, std::size_t end, bool of_prompt = false);
  /// Builds the index of a prompt's tokens, or extends it by them.
  Status add_prompt(Layer& layer, TokenRange tokens, TokenRange hidden_by);

  /// Codes in all layers the tokens that have left the window since the last step.
  Status code_passed_tokens();
  /// Codes lost tokens again, in the same batches: other batches would give other clusters.
  Status code_lost_tokens();
  Status code_lost_tokens(Layer& layer);

  // A draft: several tokens of one step. Each token sees the index as if it had its own step.

  /// The first token of the first layer is next.
  void begin_draft() const;
  /// Enqueues the changes of the index between two tokens of a draft. The second of the two is at
  /// `position`, the draft's last token at `last`.
  Status follow_draft(Layer& layer, std::size_t position, std::size_t last);
  /// Undoes in all layers the changes by rejected tokens, those from the sequence's length on.
  /// Their work is done. Errors: not_ready, those of coding.
  Status reject_draft();

  /// Forgets in all layers the tokens indexed from the sequence's length on.
  void cut();
  /// After a failure: what may have been lost is forgotten, to be coded again.
  void forget_lost_coding();

 private:
  /// Calls `code` for each layer up to one that fails, and sends what is to be copied.
  Status code_layers(FunctionRef<Status(Layer&)> code);
  /// Has the device's copy of an index whole.
  Status renew(Layer& layer);
  /// Codes passed tokens in one layer, of a sequence of `length` tokens.
  Status code_passed_tokens(Layer& layer, std::size_t length);
  void reject_draft(Layer& layer);
  [[nodiscard]] Result<Ticket> enqueue(const BuildRequest& request, bool wakes_others);
  /// The first token whose row an extension reads, or a cut at the end.
  [[nodiscard]] std::size_t read_again_from(const IndexCoverage& coverage) const noexcept;
  /// Forgets what is indexed of a layer from `end` on, where a batch of an extension begins.
  void cut_at(Layer& layer, std::size_t end);
  /// Has the policy cut a layer's index, whose coverage ends at `end`. Returns whether a chunk
  /// changed.
  Result<bool> cut_index(Layer& layer, std::size_t end);

  [[nodiscard]] bool takes_batches() const noexcept;
  /// Tokens that wait in the window for each other before they are indexed.
  [[nodiscard]] std::size_t batch_tokens(const policies::BudgetSplit& split) const noexcept;
  [[nodiscard]] bool batch_is_due(const Layer& layer, std::size_t length) const noexcept;
  /// Whether the index is built anew before the token at `length`, or for the first time.
  [[nodiscard]] bool build_is_due(const Layer& layer, std::size_t length) const noexcept;
  [[nodiscard]] bool has_index(const Layer& layer) const noexcept;
  /// Whether some of these tokens are not indexed.
  [[nodiscard]] static bool lacks(const Layer& layer, TokenRange middle) noexcept;
  /// Tokens that are indexed, at most, before the token at `length`.
  [[nodiscard]] TokenRange middle_at(std::size_t length) const noexcept;
  /// Whether an index of so many tokens was trained on too few of them.
  [[nodiscard]] bool is_outgrown(const LayerIndex& index, std::size_t tokens) const noexcept;

  const RuntimePlan& plan_;
  const SequenceProgress& progress_;
  SequenceWork& work_;
  ClusterThreads& threads_;
  LayerSpan layers_;
  IndexRoom& room_;
  IndexBuilder& builder_;
};

}  // namespace terrace
