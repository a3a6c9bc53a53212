// Sequences of one runtime that go through steps together, fed by traffic of their own.
#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "runtime/scenario.hpp"
#include "terrace/runtime/step.hpp"

namespace terrace::testing {

/// A sequence of a Batch, by its number, and how many tokens it brings.
struct BatchMember {
  std::size_t sequence = 0;
  std::size_t tokens = 1;
};

std::vector<BatchMember> one_token_each(std::span<const std::size_t> sequences);

class Batch {
 public:
  /// Sequence i is fed by traffic of seed i + 1.
  Batch(Runtime& runtime, std::size_t count);
  /// The same on that queue.
  Batch(Runtime& runtime, std::size_t count, std::unique_ptr<Queue> compute);

  /// Takes a step of these sequences and keeps so many tokens of each; empty = all. Returns the
  /// status of each.
  std::vector<Status> step(std::span<const BatchMember> members,
                           std::span<const std::size_t> accepted = {});
  /// Begins the step, attends in the first `layers` layers, and gives the step up.
  void give_step_up(std::span<const BatchMember> members, std::size_t layers);
  /// Takes a step of one token each; no member may fail.
  void expect_step(std::span<const std::size_t> sequences);
  /// Takes a step of any numbers of tokens; no member may fail.
  void expect_step(std::span<const BatchMember> members,
                   std::span<const std::size_t> accepted = {});

  /// Announces a prompt of sequence i, and gives it in steps of `piece` tokens.
  void expect_prompt(std::size_t i, std::size_t tokens, std::size_t piece);
  /// As expect_prompt, for an engine that attends by itself: only rows are appended. If the queue's
  /// work is done when calls return, each call's rows are overwritten after the call.
  void expect_appended_prompt(std::size_t i, std::size_t tokens, std::size_t piece);

  /// Queries are rounded to `dtype`, and given as such or, with `in_f32`, as f32; outputs likewise.
  void round_queries(Dtype dtype, bool in_f32) {
    dtype_ = dtype;
    in_f32_ = in_f32;
  }

  /// Members bring no hints from now on.
  void leave_hints_out() { has_hints_ = false; }

  /// Queries are those of the traffic times `factor`.
  void scale_queries(float factor) { query_factor_ = factor; }

  /// Closes sequence i, and puts another one in its place.
  void replace(std::size_t i, std::unique_ptr<Sequence> sequence, const Traffic& traffic);

  /// Feeds sequence i with other traffic from now on.
  void go_on_with(std::size_t i, const Traffic& traffic) { *traffics_[i] = traffic; }

  [[nodiscard]] Drive& drive(std::size_t i) noexcept { return *drives_[i]; }
  [[nodiscard]] Sequence& sequence(std::size_t i) noexcept { return drives_[i]->sequence(); }
  [[nodiscard]] const Traffic& traffic(std::size_t i) const noexcept { return *traffics_[i]; }
  [[nodiscard]] Queue& compute() noexcept { return *compute_; }
  /// Returns the outputs of each token that was kept: [layers, query_heads, head_dim].
  [[nodiscard]] const std::vector<StepOutput>& outputs(std::size_t i) const noexcept {
    return outputs_[i];
  }

 private:
  struct LayerData {
    std::vector<float> queries;
    std::vector<std::byte> rows;
    std::vector<float> outputs;
    std::vector<std::byte> given_queries;  ///< as they are given, where that is not f32
    std::vector<std::byte> given_outputs;
    std::vector<PromptHints> hints;
    std::vector<std::vector<float>> windows;  ///< what hints point to
  };

  void fill(LayerData& data, std::size_t layer, std::span<const BatchMember> members) const;
  std::unique_ptr<Step> begin(std::span<const BatchMember> members);
  void attend(Step& step, std::size_t layer, LayerData& data) const;
  void keep(const std::vector<LayerData>& layers, std::size_t member, std::size_t first,
            std::size_t count);

  /// The type of queries and outputs as steps have them.
  [[nodiscard]] Dtype given_dtype() const noexcept { return in_f32_ ? Dtype::f32 : dtype_; }
  void round(LayerData& data) const;
  void take_outputs(LayerData& data) const;

  Runtime& runtime_;
  Dtype dtype_ = Dtype::f32;
  float query_factor_ = 1;
  bool has_hints_ = true;
  bool in_f32_ = true;
  KvShape shape_;
  std::unique_ptr<Queue> compute_;
  std::vector<std::unique_ptr<Traffic>> traffics_;
  std::vector<std::unique_ptr<Drive>> drives_;
  std::vector<std::vector<StepOutput>> outputs_;
};

}  // namespace terrace::testing
