#include "harness/question.hpp"

#include <benchmark/benchmark.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>

#include "harness/samples.hpp"

namespace terrace::bench {
namespace {

/// Google Benchmark takes its settings from a command line.
void set_up_library() {
  static const bool done = [] {
    std::array<char, 10> name{"terrace"};
    std::array<char, 48> interleave{"--benchmark_enable_random_interleaving=true"};
    std::array<char*, 3> arguments{name.data(), interleave.data(), nullptr};
    int count = 2;
    benchmark::Initialize(&count, arguments.data());
    return true;
  }();
  static_cast<void>(done);
}

/// Keeps the seconds per run of each repetition, and prints nothing.
class Collector : public benchmark::BenchmarkReporter {
 public:
  struct Samples {
    std::string name;
    std::vector<double> seconds;
    std::string failure;
  };

  bool ReportContext(const Context& /*context*/) override { return true; }

  void ReportRuns(const std::vector<Run>& report) override {
    for (const Run& run : report) {
      if (run.run_type != Run::RT_Iteration) continue;
      Samples& samples = of(run.run_name.function_name);
      if (run.error_occurred) {
        samples.failure = run.error_message;
      } else {
        samples.seconds.push_back(run.real_accumulated_time / static_cast<double>(run.iterations));
      }
    }
  }

  Samples& of(const std::string& name) {
    auto found = std::ranges::find(all_, name, &Samples::name);
    if (found == all_.end()) found = all_.insert(found, Samples{.name = name});
    return *found;
  }

 private:
  std::vector<Samples> all_;
};

double seconds_of_checked_run(const Contender& contender) {
  const auto begin = std::chrono::steady_clock::now();
  if (contender.before) contender.before();
  contender.run();
  // The runs that count report a wrong result.
  if (contender.verify) static_cast<void>(contender.verify());
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

/// As many samples as fit, 15 at most and 5 at least, of as many runs as then fit.
void limit_runs(benchmark::internal::Benchmark& registered, const Contender& contender,
                double seconds) {
  const double runs = std::max(5.0, seconds / seconds_of_checked_run(contender));
  const double samples = std::min(15.0, std::floor(runs));
  registered.Repetitions(static_cast<int>(samples));
  registered.Iterations(static_cast<benchmark::IterationCount>(std::min(runs / samples, 1000.0)));
}

void register_contender(const std::string& name, const Contender& contender,
                        const Question& question, const AskOptions& options) {
  const auto body = [&contender](benchmark::State& state) {
    for (auto _ : state) {
      if (contender.before) contender.before();
      const auto begin = std::chrono::steady_clock::now();
      contender.run();
      const auto end = std::chrono::steady_clock::now();
      state.SetIterationTime(std::chrono::duration<double>(end - begin).count());
      if (!contender.verify) continue;
      if (const Status right = contender.verify(); !right) {
        state.SkipWithError(std::string(right.error().message()).c_str());
        break;
      }
    }
  };
  auto* const registered = benchmark::RegisterBenchmark(name.c_str(), body);
  registered->UseManualTime()->Repetitions(options.quick ? 2 : 15);
  if (options.quick) {
    registered->Iterations(1);
  } else if (question.seconds_each > 0) {
    limit_runs(*registered, contender, question.seconds_each);
  } else {
    registered->MinTime(0.05);
  }
}

/// A rate or a time, from the seconds of a run.
double figure(const Question& question, const Contender& contender, double seconds) {
  return question.unit == "s" ? seconds : contender.bytes / seconds;
}

Row without_figure(Row row, const Error& error) {
  row.value.reset();
  row.reason = error.message();
  row.failed = error.code != Errc::unsupported;
  return row;
}

}  // namespace

Row ask(const Question& question, const AskOptions& options) {
  Row row{.name = question.name,
          .parameters = question.parameters,
          .unit = question.unit,
          .better = question.better};
  if (options.quick) row.parameters["quick"] = true;
  if (question.count) {
    const Status counted = question.count(row);
    return counted ? row : without_figure(std::move(row), counted.error());
  }
  const Result<Contest> contest = question.prepare(options.quick);
  if (!contest) return without_figure(std::move(row), contest.error());
  set_up_library();
  Collector collector;
  benchmark::ClearRegisteredBenchmarks();
  register_contender("ours", contest->ours, question, options);
  if (contest->peer) register_contender("peer", *contest->peer, question, options);
  benchmark::RunSpecifiedBenchmarks(&collector, ".*");
  benchmark::ClearRegisteredBenchmarks();

  auto& ours = collector.of("ours");
  if (!ours.failure.empty() || ours.seconds.empty()) {
    row.reason = ours.failure.empty() ? "no run was made" : ours.failure;
    row.failed = true;
    return row;
  }
  put_samples(row, ours.seconds);
  row.value = figure(question, contest->ours, *row.value);
  const auto& peers = collector.of("peer").seconds;
  if (contest->peer && !peers.empty()) {
    row.peer = PeerFigure{contest->peer->name, contest->peer->version,
                          figure(question, *contest->peer, median(peers))};
  }
  return row;
}

}  // namespace terrace::bench
