#include <fmt/core.h>

#include <algorithm>
#include <memory>
#include <string>
#include <utility>

#include "serving/headline_rows.hpp"
#include "serving/shared_run.hpp"
#include "terrace/core/version.hpp"

namespace terrace::bench {
namespace {

using SharedCosts = std::shared_ptr<Once<HeadlineCosts>>;

/// A policy whose tokens a second the others' are compared with.
struct Baseline {
  const HeadlinePolicy* policy = nullptr;
  SharedCosts costs;
};

/// The questions about all policies at one length.
class ContextQuestions {
 public:
  ContextQuestions(const HeadlineSettings& settings, const HeadlineContext& context,
                   std::vector<Question>& all)
      : settings_(settings), context_(context), all_(all) {}

  void add_all() {
    for (const HeadlinePolicy& policy : context_.policies) {
      const auto costs = std::make_shared<Once<HeadlineCosts>>(
          [this_settings = &settings_, this_context = &context_, &policy] {
            return measure_headline(*this_settings, *this_context, policy);
          });
      if (policy.keeps_everything && baseline_.policy == nullptr) baseline_ = {&policy, costs};
      add_fits(policy);
      for (const std::size_t batch : headline_batches(context_, policy)) {
        for (const PointRow& point : point_rows()) add_point(policy, costs, batch, point);
      }
      add_device_bytes(policy, costs);
      add_first_token(policy);
    }
    // After all policies, so that the baseline may be the last.
    for (const auto& [policy, costs] : asked_) add_tokens_per_second(*policy, costs);
  }

 private:
  struct RowKind {
    std::string name;
    const char* unit;
    Better better = Better::lower;
  };

  void add(const RowKind& kind, const HeadlinePolicy& policy, std::function<Status(Row&)> count) {
    Json parameters = settings_.parameters;
    parameters["policy"] = policy.policy.name;
    parameters["context"] = context_.tokens;
    parameters["steps"] = settings_.steps;
    parameters["prefill_chunk"] = settings_.prefill_chunk;
    parameters["prompt"] = "given";
    parameters["model_layers"] = settings_.model_layers;
    parameters["model_device_memory"] = settings_.model_device_bytes;
    all_.push_back(
        {.name = fmt::format("headline_{}_n{}_{}", kind.name, context_.tokens, policy.policy.name),
         .unit = kind.unit,
         .better = kind.better,
         .parameters = std::move(parameters),
         .count = std::move(count)});
  }

  void add_fits(const HeadlinePolicy& policy) {
    add({"fits", "sequences", Better::higher}, policy,
        [&policy](Row& row) { return put_fits(row, policy); });
  }

  void add_point(const HeadlinePolicy& policy, const SharedCosts& costs, std::size_t batch,
                 const PointRow& point) {
    const auto put = [batch, &point, &policy](Row& row, const HeadlineCosts& figures) -> Status {
      row.parameters["sequences"] = batch;
      row.parameters["fits"] = batch <= policy.fits;
      const HeadlineCost* const cost = figures.of(batch);
      if (cost != nullptr) return point.put(row, *cost);
      return fail(Errc::unsupported, "host.memory has room for {} of {} sequences", policy.room,
                  batch);
    };
    add({fmt::format("{}_b{}", point.name, batch), point.unit, point.better}, policy,
        answer(costs, put));
  }

  void add_device_bytes(const HeadlinePolicy& policy, const SharedCosts& costs) {
    add({"device_bytes", "B"}, policy, answer(costs, put_headline_device_bytes));
    asked_.emplace_back(&policy, costs);
  }

  void add_first_token(const HeadlinePolicy& policy) {
    const auto run = std::make_shared<Once<FirstTokenFigures>>([this_settings = &settings_,
                                                                tokens = context_.tokens, &policy] {
      const Say say = [&](const std::string& words) {
        this_settings->say(fmt::format("{} at {} tokens: {}", policy.policy.name, tokens, words));
      };
      return time_first_tokens(policy.policy.options,
                               {.context = tokens, .prefill_chunk = this_settings->prefill_chunk},
                               say);
    });
    const auto put = [this_settings = &settings_, &policy](Row& row,
                                                           const FirstTokenFigures& figures) {
      put_first_token(row, *this_settings, policy, figures);
    };
    add({"ttft", "s"}, policy, answer(run, put));
  }

  void add_tokens_per_second(const HeadlinePolicy& policy, const SharedCosts& costs) {
    const auto put = [this_settings = &settings_, &policy, baseline = baseline_](
                         Row& row, const HeadlineCosts& figures) -> Status {
      TERRACE_TRY(put_tokens_per_second(row, *this_settings, policy, figures));
      if (baseline.policy == nullptr || baseline.policy == &policy) return {};
      Row peer;
      const Result<HeadlineCosts>& of_peer = baseline.costs->get();
      if (of_peer && put_tokens_per_second(peer, *this_settings, *baseline.policy, *of_peer)) {
        row.peer = {baseline.policy->policy.name, std::string(version()), *peer.value};
        row.parameters["peer_rows"] = peer.parameters["rows"];
      }
      return {};
    };
    add({"tokens_per_second", "1/s", Better::higher}, policy, answer(costs, put));
  }

  const HeadlineSettings& settings_;
  const HeadlineContext& context_;
  std::vector<Question>& all_;
  Baseline baseline_;
  std::vector<std::pair<const HeadlinePolicy*, SharedCosts>> asked_;
};

}  // namespace

std::vector<Question> headline_questions(const HeadlineSettings& settings) {
  std::vector<Question> all;
  for (const HeadlineContext& context : settings.contexts) {
    ContextQuestions(settings, context, all).add_all();
  }
  return all;
}

}  // namespace terrace::bench
