#include "sequence_retention.hpp"

#include <algorithm>

#include "layer/layer.hpp"
#include "terrace/core/bytes.hpp"

namespace terrace {

namespace {

using LayerSpan = std::span<const std::unique_ptr<Layer>>;

/// Layers that retention is for: all but the dense ones.
LayerSpan retaining(const RuntimePlan& plan, LayerSpan layers) noexcept {
  return plan.retains() ? layers.subspan(plan.options.dense_layers) : LayerSpan{};
}

}  // namespace

SequenceRetention::SequenceRetention(const SequenceServices& services, LayerSpan layers) noexcept
    : inputs(services),
      weights(services, retaining(services.plan, layers)),
      plan_(services.plan),
      progress_(services.progress),
      work_(services.work),
      memory_(services.memory),
      threads_(services.threads),
      layers_(retaining(services.plan, layers)) {}

Status SequenceRetention::reserve() {
  for (const auto& layer : layers_) TERRACE_TRY(inputs.reserve(*layer));
  return {};
}

bool SequenceRetention::deciding() const noexcept { return progress_.flush_end() > 0; }

bool SequenceRetention::is_due() const noexcept {
  const policies::BudgetSplit& split = progress_.split();
  const std::size_t decided = std::max(progress_.retained_end(), split.sinks + split.kept);
  // After a prompt the window shrinks to its size; while decoding it first grows to twice that.
  const std::size_t most = progress_.is_behind_prompt() ? split.window : 2 * split.window - 1;
  return progress_.length() > decided + most && progress_.length() >= progress_.flushes_from();
}

Status SequenceRetention::start_if_due() {
  if (layers_.empty() || deciding() || !is_due()) return {};
  // Once a decision is under way it is that of all layers.
  for (const auto& layer : layers_) {
    const EntryLayout layout{plan_.shape(), rooms(*layer)};
    TERRACE_TRY(memory_.make_room(
        [&] { return layer->retention.entries.next().reserve(work_.backend, layout); }));
  }
  const std::size_t end = leaving_end();
  for (const auto& layer : layers_) TERRACE_TRY(start(*layer, end));
  progress_.begin_flush(end);
  return {};
}

std::size_t SequenceRetention::leaving_end() const noexcept {
  std::size_t end = progress_.window_at(progress_.length()).begin;
  if (plan_.drops()) return end;
  // Tokens that wait in a window to be indexed are attended to there.
  for (const auto& layer : layers_) end = std::min(end, layer->window_at(progress_.length()).begin);
  return end;
}

std::vector<std::size_t> SequenceRetention::rooms(const Layer& layer) const {
  return plan_.entry_rooms(layer.id(), progress_.split(), progress_.budget().context);
}

Status SequenceRetention::start(Layer& layer, std::size_t leaving_end) {
  LayerRetention& mine = layer.retention;
  const KvShape& shape = plan_.shape();
  const RetentionPolicy& policy = *plan_.retention;
  const std::size_t sinks = progress_.sinks_at(progress_.length()).end;
  Flush flush{.shape = shape,
              .layer = layer.id(),
              .sinks = sinks,
              .leaving = {std::max(sinks, progress_.retained_end()), leaving_end},
              .length = progress_.length(),
              .decoding = !progress_.is_behind_prompt(),
              .keep = rooms(layer),
              .seed = plan_.options.seed,
              .block_tokens = plan_.block_tokens()};
  // A copy: steps that do not wait for the decision bring more queries.
  flush.last_queries = mine.queries.before(progress_.length());
  const std::size_t blocks = divide_up(progress_.length(), plan_.block_tokens());
  TERRACE_ASSIGN(const HostRows rows, layer.host_rows({0, progress_.length()}));
  for (std::size_t b = 0; b < blocks; ++b) flush.blocks.push_back(rows.page(b));
  TERRACE_TRY(mine.ratings.rate({plan_, work_.lanes.cluster(), threads_}, layer.id(), mine.scores));
  Queue& queue = work_.lanes.cluster();
  TERRACE_TRY(queue.wait_for(layer.tickets().offloaded));
  auto work = [&policy, &mine, flush = std::move(flush),
               clock = &work_.clock()]() -> Result<std::size_t> {
    const TimePoint begin = clock->now();
    const Result<FlushCount> made = decide(policy, flush, {mine.entries, mine.scores});
    // The queue goes on: a failed decision loses no row.
    mine.decision = {.status = made.map([](FlushCount) {}),
                     .count = made.value_or(FlushCount{}),
                     .taken = clock->now() - begin};
    return 0;
  };
  TERRACE_ASSIGN(mine.decided, queue.call(Phase::cluster, std::move(work)));
  return {};
}

bool SequenceRetention::ready() const noexcept {
  return !deciding() || std::ranges::all_of(layers_, [](const auto& layer) {
    return poll(layer->retention.decided).value_or(true);
  });
}

Status SequenceRetention::await_scores() {
  if (layers_.empty()) return {};
  for (const auto& layer : layers_) {
    LayerRetention& mine = layer->retention;
    TERRACE_TRY(
        mine.ratings.rate({plan_, work_.lanes.cluster(), threads_}, layer->id(), mine.scores));
  }
  TERRACE_ASSIGN(const Ticket all, work_.lanes.cluster().record());
  return work_.await(WaitReason::retention, all);
}

Status SequenceRetention::await() {
  for (const auto& layer : layers_) {
    TERRACE_TRY(work_.await(WaitReason::retention, layer->retention.decided));
  }
  return take_over();
}

Status SequenceRetention::outcome() const {
  for (const auto& layer : layers_) {
    const Result<bool> decided = poll(layer->retention.decided);
    TERRACE_TRY(decided.map([](bool) {}));
    TERRACE_TRY(layer->retention.decision.status);
    layer->retention.decided = {};
  }
  return {};
}

Status SequenceRetention::take_over() {
  if (deciding() && ready()) {
    const Status decided = outcome();
    progress_.end_flush(decided.has_value());
    if (decided) publish();
    if (!decided) return tl::unexpected(decided.error().while_doing("retention failed"));
  }
  return refresh_device();
}

void SequenceRetention::publish() {
  ++flushes_;
  for (const auto& layer : layers_) {
    LayerRetention& mine = layer->retention;
    mine.entries.take_next();
    busy_ += mine.decision.taken;
    if (!plan_.drops()) continue;
    dropped_ += mine.decision.count.dropped;
    release_rows(*layer);
  }
}

void SequenceRetention::release_rows(Layer& layer) const {
  const std::size_t size = plan_.block_tokens();
  const std::size_t end = progress_.retained_end() / size;
  for (std::size_t block = divide_up(progress_.split().sinks, size); block < end; ++block) {
    layer.drop_block(block);
    layer.rows.drop_page(block);
  }
}

Status SequenceRetention::refresh_device() {
  std::vector<CopyExtent> extents;
  for (const auto& layer : layers_) {
    extents.clear();
    TERRACE_TRY(memory_.make_room(
        [&] { return layer->retention.entries.refresh_device(work_.backend, extents); }));
    if (extents.empty()) continue;
    TERRACE_ASSIGN(layer->retention.uploaded, work_.lanes.refill().copy(Phase::refill, extents));
    for (const CopyExtent& extent : extents) work_.counters.bytes.refill += extent.bytes;
  }
  return {};
}

Status SequenceRetention::check_cut(std::size_t length) const {
  if (!plan_.drops()) return {};
  const std::size_t least = std::max(progress_.retained_end(), progress_.flush_end());
  if (length == 0 || length >= least) return {};
  return fail(
      Errc::invalid_argument,
      "what retention.policy has dropped does not come back: of {} tokens keep at least {}, "
      "or none",
      progress_.length(), least);
}

void SequenceRetention::cut() noexcept {
  const bool all = progress_.length() == 0;
  const bool entries = all || (plan_.holds() && progress_.retained_end() > leaving_end());
  for (const auto& layer : layers_) {
    layer->retention.scores.cut(progress_.length());
    if (!entries) continue;
    layer->retention.entries.clear();
    layer->retention.queries.clear();
    if (all) layer->retention.scores.clear();
  }
  if (!entries) return;
  progress_.forget_decisions();
}

void SequenceRetention::mark_stale() noexcept {
  for (const auto& layer : layers_) layer->retention.entries.mark_stale();
}

RetentionReport SequenceRetention::report() const {
  RetentionReport report{.flushes = flushes_, .dropped = dropped_, .busy = busy_};
  for (const auto& layer : layers_) {
    for (const EntryList& list : layer->retention.entries.now().heads) {
      for (std::size_t i = 0; i < list.size(); ++i) {
        ++(list.is_token(i) ? report.kept : report.merged);
      }
    }
  }
  report.lists = layers_.size() * plan_.shape().kv_heads;
  return report;
}

}  // namespace terrace
