// `terrace bench serving --headline`: what its policies have room for, and its questions.
#pragma once

#include "bench_serving_options.hpp"
#include "serving/headline.hpp"

namespace terrace::apps {

/// The backend that is measured.
struct MeasuredBackend {
  std::string device;          ///< its name; empty where the host computes
  std::size_t host_bytes = 0;  ///< limit of its host memory
};

/// Returns `config` with the policies that are compared, unless it names some.
Config headline_config(Config config);

/// Returns the most layers that are measured; one layer is measured, too.
/// Errors: invalid_argument naming the flag.
Result<std::size_t> headline_layers(const ServingBenchOptions& options, const KvShape& model);

/// `measured` has the layers that headline_layers() says.
/// Errors: invalid_argument naming the flag; those of size_policy().
Result<bench::HeadlineSettings> headline_settings(const ServingBenchOptions& options,
                                                  const Config& config, const KvShape& measured,
                                                  const MeasuredBackend& backend);

}  // namespace terrace::apps
