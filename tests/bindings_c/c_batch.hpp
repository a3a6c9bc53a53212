// Sequences that go through steps together by calls of C: what tests/runtime/batch.hpp does by
// calls of C++, of the same traffic, so that outputs can be compared.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "bindings_c/handles.hpp"
#include "runtime/batch.hpp"

namespace terrace::testing {

class CBatch {
 public:
  /// Sequence i is fed by traffic of seed i + 1. Queries and outputs are of `dtype`.
  CBatch(terrace_runtime* runtime, terrace_queue* compute, const KvShape& shape, std::size_t count,
         Dtype dtype = Dtype::f32);

  /// Takes a step of these sequences and keeps so many tokens of each; empty = all. Returns the
  /// status of each.
  std::vector<terrace_status> step(std::span<const BatchMember> members,
                                   std::span<const std::size_t> accepted = {});

  /// The tensors of one layer of a step, and memory that they point to: a copy would point to the
  /// original's.
  struct Layer {
    Layer() = default;
    Layer(Layer&&) = default;
    Layer& operator=(Layer&&) = default;

    std::vector<std::byte> queries;
    std::vector<float> speculated;  // the same
    std::vector<std::byte> rows;
    std::vector<std::byte> outputs;
    std::vector<std::vector<float>> windows;
    std::vector<terrace_prompt_hints> hints;
    std::vector<const terrace_prompt_hints*> hint_pointers;
    terrace_tensors tensors = TERRACE_TENSORS_INIT;
  };
  [[nodiscard]] Layer layer(std::size_t layer, std::span<const BatchMember> members) const;
  [[nodiscard]] StepHandle begin(std::span<const BatchMember> members);

  [[nodiscard]] SequenceHandle& sequence(std::size_t i) noexcept { return sequences_[i]; }
  [[nodiscard]] const Traffic& traffic(std::size_t i) const noexcept { return traffics_[i]; }
  /// Returns the outputs of each token that was kept: [layers, query_heads, head_dim].
  [[nodiscard]] const std::vector<StepOutput>& outputs(std::size_t i) const noexcept {
    return outputs_[i];
  }

 private:
  void keep(const std::vector<Layer>& layers, std::size_t member, std::size_t first,
            std::size_t count);

  terrace_runtime* runtime_;
  terrace_queue* compute_;
  KvShape shape_;
  Dtype dtype_;
  std::vector<Traffic> traffics_;
  std::vector<SequenceHandle> sequences_;
  std::vector<std::vector<StepOutput>> outputs_;
};

}  // namespace terrace::testing
