// `terrace bench drift`: how well policies find rows as a long output leaves the prompt's topic,
// with and without indexes built anew.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "document.hpp"
#include "progress.hpp"
#include "run/options.hpp"
#include "terrace/policies/iteration_planner.hpp"

namespace terrace::apps {

struct DriftOptions {
  RunOptions run;
  std::string turn_file;  ///< what the output turns to; empty = another part of the default text
  std::size_t turn_after = 500;  ///< decoded tokens
  std::size_t refresh_tokens = 256;
  std::size_t span = 100;  ///< steps that a figure is the mean of
  bool quick = false;      ///< figures say only that it works
};

/// A figure for each span of steps; nothing if no step of the span has the figure.
using DriftCurve = std::vector<std::optional<double>>;

/// Wall time of steps, in seconds.
struct StepSpread {
  double median = 0;
  double p99 = 0;
  double longest = 0;
};

/// A policy on the text whose topic changes.
struct DriftRun {
  std::string policy;
  std::size_t refresh_tokens = 0;  ///< 0 = indexes only grow
  std::uint64_t refreshes = 0;
  StepSpread step = {};                                ///< with nothing beside it but refreshes
  std::optional<policies::CostModel> planned_by = {};  ///< where iterations were planned
  DriftCurve recall = {};
  DriftCurve mass = {};
  DriftCurve bits = {};  ///< per token

  /// Recall in the second half of the steps after the turn; nothing if the policy selects no rows.
  std::optional<double> settled_recall = {};
};

struct DriftStudy {
  Config config;
  std::string model;
  std::string gpu;  ///< name of the device in use; empty = no device
  std::size_t context = 0;
  std::size_t decode = 0;
  std::size_t turn_after = 0;
  std::size_t span = 0;
  bool quick = false;
  std::vector<DriftRun> runs = {};
};

/// Errors: those of prepare_job and of any policy's run.
Result<DriftStudy> study_drift(const DriftOptions& options, Progress& progress);

/// Returns one row for each run: its settled recall, and its lists under "figures".
Json drift_rows(const DriftStudy& study);

std::string drift_table(const DriftStudy& study);

}  // namespace terrace::apps
