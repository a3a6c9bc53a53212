// A question that a benchmark answers with one figure, and asking it.
//
//   const std::vector<Question> questions = kernel_questions();
//   for (const Question& question : questions) rows.push_back(ask(question, {.quick = true}));
//
// Google Benchmark decides how often a run is repeated; a question and its peer take turns at
// random, so that a change of the machine's speed meets both. Every run's result is checked.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "harness/row.hpp"
#include "terrace/core/result.hpp"

namespace terrace::bench {

/// A way to do the work: ours or a peer's.
struct Contender {
  std::string name;
  std::string version;
  double bytes = 0;  ///< that a run reads or moves, or how often it does its work: for rates
  std::function<void()> run;            ///< timed
  std::function<Status()> verify = {};  ///< of the last run's result; not timed
  std::function<void()> before = {};    ///< what a run finds going on; not timed
};

struct Contest {
  Contender ours;
  std::optional<Contender> peer;
};

struct Question {
  std::string name;
  std::string unit;  ///< "s"; "B/s" or "1/s" for Contender::bytes over seconds
  Better better = Better::lower;
  Json parameters = Json::object();
  /// Makes the data and both ways; small sizes if `quick`.
  std::function<Result<Contest>(bool quick)> prepare;
  /// Instead of prepare: fills in what is counted and not timed.
  std::function<Status(Row& row)> count = {};
  /// About how long each way may run, checks included: for checks that take longer than the work
  /// that they check. 0: 15 samples of 50 ms, whatever checks take.
  double seconds_each = 0;
};

struct AskOptions {
  bool quick = false;  ///< small and short: to see that it works, not how fast
};

/// Returns the figure; without one, and with the reason, if it could not be prepared or a run's
/// result was wrong.
///
/// Threads  one at a time: Google Benchmark keeps its settings per process
Row ask(const Question& question, const AskOptions& options);

}  // namespace terrace::bench
