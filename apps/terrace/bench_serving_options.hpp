// The options of `terrace bench serving`, and what its runs are made of.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "bench_rows.hpp"
#include "model_shapes.hpp"
#include "serving/questions.hpp"

namespace terrace::apps {

struct ServingBenchOptions : BenchOptions {
  std::string shape = named_shapes().front().name;
  std::string model;      ///< folder; empty = the shape
  std::string sequences;  ///< sizes of batches; empty = the run's own
  std::string contexts;   ///< empty = the run's own; --headline alone takes several
  std::string prompt = "computed";
  std::optional<std::size_t> layers;  ///< measured; none = the run's own
  std::size_t steps = 64;
  std::size_t prefill_chunk = 512;
  bool prefix = false;
  bool headline = false;
  std::string model_device_memory = "64GB";  ///< of --headline, as are the model's layers
  std::size_t model_layers = 0;              ///< 0 = the shape's

  [[nodiscard]] const std::string& shape_name() const noexcept {
    return model.empty() ? shape : model;
  }
};

/// Returns the whole model's shape, in the config's dtype. Errors: those of find_shape().
Result<KvShape> model_shape(const ServingBenchOptions& options, const Config& config);

/// Returns the numbers in a list that a flag was given, without those that come twice.
/// Errors: invalid_argument naming the flag.
Result<std::vector<std::size_t>> read_counts(const char* flag, const std::string& list,
                                             std::size_t most);
Result<std::vector<std::size_t>> read_sequences(const std::string& list);
Result<std::vector<std::size_t>> read_contexts(const std::string& list);

/// Errors: invalid_argument naming the flag whose count cannot be.
Status check_counts(const ServingBenchOptions& options);

struct PolicyQuery {
  KvShape shape;
  std::string name;
  std::size_t tokens = 0;  ///< that a sequence gets at most
  bool times = true;       ///< BackendContext::times
};

/// A policy as the config sets it.
Result<bench::ServingPolicy> serving_policy(Config config, const PolicyQuery& query);

/// Parameters of all rows.
bench::Json parameters_of(const ServingBenchOptions& options, const Config& config,
                          const KvShape& shape);

}  // namespace terrace::apps
