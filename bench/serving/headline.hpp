// The headline: how many tokens a second an engine gets at equal device memory. Rows of
// `terrace bench serving --headline`.
//
// Batches are measured with one layer and with several. Their difference is the cost of a layer,
// the rest a step's own; a model's step is the rest and all its layers
// (docs/decisions/0138-the-headline-is-at-equal-device-memory.md).
#pragma once

#include <cstddef>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "serving/headline_run.hpp"
#include "serving/questions.hpp"

namespace terrace::bench {

/// A policy at one length of sequences.
struct HeadlinePolicy {
  ServingPolicy policy;  ///< with the shape of as many layers as are measured
  /// All rows are in device memory; batches that do not fit there have their rows streamed.
  bool keeps_everything = false;
  std::size_t fits = 0;  ///< sequences in the device memory given
  std::optional<std::size_t> fits_host =
      {};                                 ///< in the host memory configured, if that has a limit
  std::size_t device_bytes_sequence = 0;  ///< all layers of the model
  std::size_t device_bytes_shared = 0;    ///< once for all sequences
  /// Sequences of the measured layers that this machine's host has room for.
  std::size_t room = std::numeric_limits<std::size_t>::max();
};

struct HeadlineContext {
  std::size_t tokens = 0;
  std::vector<HeadlinePolicy> policies;
  std::vector<std::size_t> batches;  ///< ascending, not empty
};

struct HeadlineSettings {
  std::vector<HeadlineContext> contexts;
  std::size_t steps = 64;
  std::size_t prefill_chunk = 512;
  std::size_t model_layers = 32;
  std::size_t model_device_bytes = 0;
  Json parameters = Json::object();  ///< of all rows
  Say say = [](const std::string& /*words*/) {};
};

/// A batch with one layer and with several.
struct HeadlineCost {
  HeadlinePoint few;
  HeadlinePoint many;
  bool streamed = false;

  /// Seconds that a further layer adds to a step of the batch.
  [[nodiscard]] double marginal() const;
  /// Seconds of a step of the batch that do not grow with its layers.
  [[nodiscard]] double fixed() const { return few.step_seconds() - marginal() * few_layers(); }
  [[nodiscard]] double model_step(std::size_t layers) const {
    return marginal() * static_cast<double>(layers) + fixed();
  }

 private:
  [[nodiscard]] double few_layers() const noexcept { return static_cast<double>(few.layers); }
};

/// The batches of a policy at one length.
struct HeadlineCosts {
  std::vector<HeadlineCost> points;
  std::optional<HeadlineFigures> device;  ///< of the larger run whose rows no step streams

  /// Returns null where the batch was not measured.
  [[nodiscard]] const HeadlineCost* of(std::size_t sequences) const noexcept;
};

/// Returns the sizes of batches that are measured: those asked for, and as many sequences as fit.
std::vector<std::size_t> headline_batches(const HeadlineContext& context,
                                          const HeadlinePolicy& policy);

Result<HeadlineCosts> measure_headline(const HeadlineSettings& settings,
                                       const HeadlineContext& context,
                                       const HeadlinePolicy& policy);

/// `settings` must outlive the questions.
std::vector<Question> headline_questions(const HeadlineSettings& settings);

}  // namespace terrace::bench
