// The measurement of `terrace calibrate`: how many keys of each KV head are unlike all others.
#pragma once

#include <cstddef>
#include <string>

#include "command.hpp"
#include "progress.hpp"
#include "terrace/policies/outlier_heads.hpp"

namespace terrace::apps {

struct CalibrateOptions {
  SharedOptions shared;
  std::string model;  ///< folder; empty = the bundled one
  std::string text_file;
  std::string tokens_file;
  std::string target;           ///< file of the outlier heads; empty = no file is written
  std::size_t window = 2048;    ///< tokens
  std::size_t windows = 8;      ///< one after the other, from the beginning of the text
  double quantile = 0.25;       ///< of the best matches: weaker matches do not count
  double outlier_share = 0.04;  ///< of all KV heads
};

struct Calibration {
  Config config;
  std::string model;
  std::string text;
  std::string gpu;  ///< empty = the host computes
  KvShape shape;
  policies::HeadShares shares;
};

/// Checks everything before any of it costs time, then runs the model over the windows.
/// Errors: invalid_argument for what was typed wrong; those of the model's files and of decoding.
Result<Calibration> calibrate(const CalibrateOptions& options, Progress& progress);

}  // namespace terrace::apps
