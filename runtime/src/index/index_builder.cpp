#include "index_builder.hpp"

#include <algorithm>

#include "layer/layer.hpp"

namespace terrace {

IndexBuilder::IndexBuilder(const SequenceServices& services, LayerSpan layers, IndexRoom& room)
    : plan_(services.plan),
      work_(services.work),
      threads_(services.threads),
      iteration_limits_(services.iteration_limits),
      layers_(layers),
      room_(room),
      hidden_until_(layers.size()) {}

BuildRequest IndexBuilder::request(const Layer& layer, TokenRange tokens,
                                   const HostRows& rows) const {
  const LayerIndex& index = layer.index;
  const TokenRange& coded = index.image.coverage.tokens();
  const std::size_t first = coded.empty() ? tokens.begin : coded.begin;
  BuildRequest request{.shape = plan_.shape(),
                       .layer = layer.id(),
                       .rows = rows.table(),
                       .tokens = tokens,
                       .fixed = index.image.memory.fixed(),
                       .index = index.image.memory.view(plan_.layout, first),
                       .iterations = iteration_limits_.limit_of(
                           layer.number, {.rows = tokens.size(), .prompt = tokens}, {}),
                       .seed = plan_.options.seed};
  request.index.token_count = tokens.begin - first;
  return request;
}

Status IndexBuilder::build(Layer& layer, TokenRange tokens, TokenRange hidden_by) {
  if (tokens.empty() || plan_.is_dense(layer.number)) return {};
  LayerIndex& index = layer.index;
  Queue& queue = work_.lanes.cluster();
  TERRACE_TRY(room_.prepare_build(layer, tokens));
  TERRACE_ASSIGN(const HostRows rows, layer.host_rows(tokens));
  TERRACE_TRY(note_arrival(layer));
  TERRACE_TRY(queue.wait_for(index.uploaded));  // it may still read the old index
  const bool anew = index.image.coverage.trained() > 0;
  room_.ready = false;  // what is on its way is the old index
  index.clusters.rename();
  index.image.coverage.clear();
  index.hidden_by = hidden_by;
  BuildRequest wanted = request(layer, tokens, rows);
  wanted.anew = anew;
  wanted.cancelled = &cancelled_;
  TERRACE_ASSIGN(index.coded,
                 queue.call(Phase::cluster, [this, &layer, wanted]() -> Result<std::size_t> {
                   run(layer, wanted);
                   return 0;
                 }));
  index.building = true;
  ++work_.counters.builds;
  index.image.coverage.start(tokens);
  const Result<std::size_t> staged = room_.device().stage(layer, tokens, /*with_fixed=*/true);
  if (!staged) {
    room_.device().mark_stale(layer);
    return tl::unexpected(staged.error());
  }
  return room_.device().send();
}

Status IndexBuilder::note_arrival(Layer& layer) {
  Queue& offload = work_.lanes.offload();
  TERRACE_TRY(offload.wait_for(layer.tickets().offloaded));
  const auto note = [record = &layer.index.build, clock = &work_.clock()]() -> Result<std::size_t> {
    record->rows_arrived = clock->now();
    return 0;
  };
  TERRACE_ASSIGN(const Ticket arrived, offload.call(Phase::offload, note));
  return work_.lanes.cluster().wait_for(arrived);
}

void IndexBuilder::run(Layer& layer, BuildRequest request) {
  const Clock& clock = work_.clock();
  LayerIndex& index = layer.index;
  // Compute wrote them before the rows left for the host.
  const KeptHints& hints = index.build.hints;
  request.hints = {hints.pre_rope_keys, hints.query_window, hints.attention_scores};
  index.build.begin = clock.now();
  // Planned here, where it is known how long earlier layers took and how late this one begins.
  const std::size_t rows = request.tokens.size();
  const TokenRange prompt = index.hidden_by.empty() ? request.tokens : index.hidden_by;
  request.iterations = iteration_limits_.limit_of(layer.number, {.rows = rows, .prompt = prompt},
                                                  index.build.begin - index.build.rows_arrived);
  const auto report = threads_.build(*plan_.policy, request);
  index.build.end = clock.now();
  // The queue goes on: a failed index loses no row.
  index.build.status = report.map([](const BuildReport&) {});
  if (!report) return;
  index.build.report = *report;
  iteration_limits_.note_clustering(rows, report->mean_iterations,
                                    index.build.end - index.build.begin);
}

bool IndexBuilder::building() const noexcept {
  return std::ranges::any_of(layers_, [](const auto& layer) { return layer->index.building; });
}

bool IndexBuilder::ready() const noexcept {
  return std::ranges::none_of(layers_, [](const auto& layer) {
    return layer->index.building && !poll(layer->index.coded).value_or(true);
  });
}

Status IndexBuilder::await(FunctionRef<void()> come_to_rest) {
  Status first_failure;
  std::vector<Layer*> failed;
  for (const auto& layer : layers_) {
    LayerIndex& index = layer->index;
    if (!index.building) continue;
    const Status built = await_one(*layer);
    if (!built && built.error().code == Errc::not_ready) return built;
    if (!built) {
      if (failed.empty()) first_failure = built;
      failed.push_back(layer.get());
      continue;
    }
    index.building = false;
    index.build.hints.query_window = {};  // what a policy learns lies in the index's fixed part
    observe(*layer);
  }
  cancelled_.store(false, std::memory_order_relaxed);
  if (failed.empty()) return {};
  TERRACE_TRY(build_again(failed, come_to_rest));
  return tl::unexpected(first_failure.error().while_doing("building the index failed"));
}

Status IndexBuilder::build_again(std::span<Layer* const> failed, FunctionRef<void()> come_to_rest) {
  // The rows are all there. A failure also fails the later work on its queue.
  come_to_rest();
  for (const auto& layer : layers_) room_.device().mark_stale(*layer);
  for (Layer* const layer : failed) {
    layer->index.building = false;
    TERRACE_TRY(build(*layer, layer->index.image.coverage.tokens(), {}));
  }
  return {};
}

Status IndexBuilder::await_one(Layer& layer) {
  const TimePoint begin = work_.clock().now();
  // With planned iterations a build that is late stops after the iteration it is in.
  if (iteration_limits_.follow_times()) cancel();
  if (layer.number + 1 == layers_.size()) hidden_until_[layer.number] = begin;
  const Status coded = work_.await(WaitReason::index, layer.index.coded);
  waited_ += work_.clock().now() - begin;
  return coded ? layer.index.build.status : coded;
}

void IndexBuilder::forget() noexcept {
  for (const auto& layer : layers_) {
    layer->index.building = false;
    layer->index.build.status = {};
  }
  cancelled_.store(false, std::memory_order_relaxed);
}

void IndexBuilder::observe(const Layer& layer) {
  const LayerIndex& index = layer.index;
  const std::size_t i = layer.number;
  if (index.hidden_by.empty()) return;
  if (index.build.end > hidden_until_[i]) ++late_layers_;
  // The time after the last layer includes the caller's work, so it does not measure a layer.
  if (i == 0 || i + 1 == layers_.size()) return;
  iteration_limits_.note_compute(
      {.rows = index.image.coverage.tokens().size(), .prompt = index.hidden_by},
      hidden_until_[i] - hidden_until_[i - 1]);
}

void IndexBuilder::start_prompt() { hidden_until_.assign(layers_.size(), TimePoint::max()); }

Status IndexBuilder::note_compute(const Layer& layer, Queue& compute) {
  TimePoint* const until = &hidden_until_[layer.number];
  const Clock* const clock = &work_.clock();
  return compute
      .call(Phase::update,
            [until, clock]() -> Result<std::size_t> {
              *until = clock->now();
              return 0;
            })
      .map([](Ticket) {});
}

ClusteringReport IndexBuilder::report() const {
  ClusteringReport report{
      .planned = iteration_limits_.follow_times(), .late_layers = late_layers_, .waited = waited_};
  for (const auto& layer : layers_) {
    const BuildRecord& build = layer->index.build;
    report.iterations.push_back(build.report.iterations);
    report.busy += build.end - build.begin;
  }
  return report;
}

}  // namespace terrace
