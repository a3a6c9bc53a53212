#include "serving/questions.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <utility>

#include "harness/samples.hpp"
#include "serving/shared_run.hpp"
#include "terrace/core/version.hpp"

namespace terrace::bench {
namespace {

PeerFigure peer(std::string name, const std::vector<double>& samples) {
  return {std::move(name), std::string(version()), median(samples)};
}

void put_step(Row& row, const ServingFigures& figures) {
  put_samples(row, figures.step);
  row.peer = peer("one sequence alone", figures.alone);
  row.parameters["arrivals"] = figures.arrivals;
  row.parameters["one_by_one_seconds"] = median(figures.one_by_one);
}

void put_device_bytes(Row& row, const ServingFigures& figures) {
  row.value = static_cast<double>(figures.device_bytes);
  row.samples = 1;
  row.parameters["prompts_bytes"] = figures.prompt_device_bytes;
}

void put_outside(Row& row, const ServingFigures& figures) { put_samples(row, figures.outside); }

void put_prompt(Row& row, const PromptFigures& figures) {
  put_samples(row, figures.pieces);
  row.peer = peer("one piece", figures.one_piece);
  row.parameters["clustering_seconds"] = median(figures.clustering);
}

void put_behind_a_prefix(Row& row, const PrefixFigures& figures) {
  put_samples(row, figures.behind);
  row.peer = peer("without the prefix", figures.computed);
  row.parameters["found"] = figures.found;
  row.parameters["bytes_read"] = figures.bytes_read;
  row.parameters["publish_seconds"] = median(figures.published);
}

void put_beside(Row& row, const BesideFigures& figures) {
  std::vector<double> ratios;
  ratios.reserve(figures.beside.size());
  for (std::size_t i = 0; i < figures.beside.size(); ++i) {
    ratios.push_back(figures.beside[i] / (figures.step[i] + figures.piece[i]));
  }
  put_samples(row, ratios);
  row.parameters["seconds_beside"] = median(figures.beside);
  row.parameters["seconds_step"] = median(figures.step);
  row.parameters["seconds_piece"] = median(figures.piece);
}

void put_while_indexing(Row& row, const IndexingFigures& figures) {
  put_samples(row, figures.during);
  const double without = median(figures.without);
  row.parameters["seconds_while_indexing"] = *row.value;
  row.parameters["seconds_without"] = without;
  *row.value /= without;
}

/// Collects the rows of all policies.
class Questions {
 public:
  explicit Questions(const ServingSettings& settings)
      : settings_(settings), sizes_(settings.sizes), batches_(settings.sequences) {
    if (!settings.quick) return;
    sizes_.context = std::min<std::size_t>(sizes_.context, 600);
    sizes_.steps = std::min<std::size_t>(sizes_.steps, 4);
    sizes_.prefill_chunk = std::min<std::size_t>(sizes_.prefill_chunk, 200);
    for (std::size_t& sequences : batches_) sequences = std::min<std::size_t>(sequences, 3);
    std::ranges::sort(batches_);
    const auto [first, last] = std::ranges::unique(batches_);
    batches_.erase(first, last);
  }

  std::vector<Question> all() {
    for (const ServingPolicy& policy : settings_.policies) {
      add_prompt(policy);
      for (const std::size_t sequences : batches_) add_batch(policy, sequences);
      add_beside_a_piece(policy);
      if (policy.builds_index) add_while_indexing(policy);
      if (settings_.prefix) add_behind_a_prefix(policy);
    }
    return std::move(all_);
  }

 private:
  [[nodiscard]] ServingSizes of_batch(std::size_t sequences) const noexcept {
    ServingSizes sizes = sizes_;
    sizes.sequences = sequences;
    return sizes;
  }

  void add(std::string name, const char* unit, const ServingPolicy& policy,
           const ServingSizes& sizes, std::function<Status(Row&)> count) {
    Json parameters = settings_.parameters;
    parameters["policy"] = policy.name;
    parameters["sequences"] = sizes.sequences;
    parameters["context"] = sizes.context;
    parameters["steps"] = sizes.steps;
    parameters["prefill_chunk"] = sizes.prefill_chunk;
    parameters["prompt"] = sizes.given_prompts ? "given" : "computed";
    all_.push_back({.name = std::move(name),
                    .unit = unit,
                    .better = Better::lower,
                    .parameters = std::move(parameters),
                    .count = std::move(count)});
  }

  void add_prompt(const ServingPolicy& policy) {
    const ServingSizes sizes = of_batch(1);
    const auto run = std::make_shared<Once<PromptFigures>>(
        [options = policy.options, sizes] { return give_prompts(options, sizes); });
    add(fmt::format("serving_prompt_n{}_{}", sizes.context, policy.name), "s", policy, sizes,
        answer(run, put_prompt));
  }

  void add_batch(const ServingPolicy& policy, std::size_t sequences) {
    const ServingSizes sizes = of_batch(sequences);
    const auto run = std::make_shared<Once<ServingFigures>>(
        [options = policy.options, sizes] { return serve(options, sizes); });
    const auto name = [&](const char* what) {
      return fmt::format("serving_{}_b{}_n{}_{}", what, sequences, sizes.context, policy.name);
    };
    add(name("step"), "s", policy, sizes, answer(run, put_step));
    add(name("outside_kernels"), "share", policy, sizes, answer(run, put_outside));
    add(name("device_bytes"), "B", policy, sizes, answer(run, put_device_bytes));
    // The number of threads does not depend on the policy.
    if (&policy != &settings_.policies.front()) return;
    const auto put_threads = [configured = settings_.threads](Row& row,
                                                              const ServingFigures& figures) {
      row.value = static_cast<double>(figures.threads - std::min(figures.threads, configured));
      row.samples = 1;
      row.parameters["configured_threads"] = configured;
    };
    add(fmt::format("serving_threads_b{}", sequences), "threads", policy, sizes,
        answer(run, put_threads));
  }

  void add_beside_a_piece(const ServingPolicy& policy) {
    const ServingSizes sizes = of_batch(std::ranges::max(batches_));
    const auto run = std::make_shared<Once<BesideFigures>>(
        [options = policy.options, sizes] { return step_beside_a_piece(options, sizes); });
    add(fmt::format("serving_step_beside_a_piece_{}", policy.name), "ratio", policy, sizes,
        answer(run, put_beside));
  }

  void add_while_indexing(const ServingPolicy& policy) {
    const ServingSizes sizes = of_batch(1);
    const auto run = std::make_shared<Once<IndexingFigures>>(
        [options = policy.options, sizes] { return step_while_indexing(options, sizes); });
    add(fmt::format("serving_step_while_indexing_{}", policy.name), "ratio", policy, sizes,
        answer(run, put_while_indexing));
  }

  void add_behind_a_prefix(const ServingPolicy& policy) {
    const ServingSizes sizes = of_batch(1);
    const auto run = std::make_shared<Once<PrefixFigures>>(
        [options = policy.options, sizes] { return question_behind_a_prefix(options, sizes); });
    add(fmt::format("serving_question_behind_prefix_n{}_{}", sizes.context, policy.name), "s",
        policy, sizes, answer(run, put_behind_a_prefix));
  }

  const ServingSettings& settings_;
  ServingSizes sizes_;
  std::vector<std::size_t> batches_;  ///< sizes of batches
  std::vector<Question> all_;
};

}  // namespace

std::vector<Question> serving_questions(const ServingSettings& settings) {
  return Questions(settings).all();
}

}  // namespace terrace::bench
