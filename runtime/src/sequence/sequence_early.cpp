// Rows fetched a step ahead. The selection of a step is taken for that of the next one: as soon as
// its attention is done its rows are fetched again into memory of their own, while other layers
// compute. The next step selects as ever; what both selections want is there already, the rest is
// fetched as without. Lists whose query has not turned may attend what was fetched instead.
//
// Source: FreeKV (arXiv 2505.13109), idea.
#include "../sequence_state.hpp"

namespace terrace {
namespace {

// No cosine reaches it.
constexpr float never_alike = 2.0F;

}  // namespace

Status SequenceState::reserve_early(LayerState& layer) {
  if (!fetches_early() || layer.early.staging) return {};
  const KvShape& shape = runtime_.shape();
  const std::size_t rows = lists() * list_rows();
  const auto allocate = [&](std::size_t bytes) {
    return runtime_.backend->allocate({.bytes = bytes, .purpose = Purpose::staging});
  };
  EarlyRows early;
  for (Buffer& one : early.lists) {
    TERRACE_ASSIGN(one, allocate((rows + lists() + 1) * sizeof(std::uint32_t)));
  }
  TERRACE_ASSIGN(early.rows, allocate(rows * sizeof(std::byte*)));
  TERRACE_ASSIGN(early.missed, allocate(rows * sizeof(MissedRow)));
  TERRACE_ASSIGN(early.used, allocate(rows));
  TERRACE_ASSIGN(early.last_query, allocate(shape.query_heads * shape.head_dim * sizeof(float)));
  TERRACE_ASSIGN(early.staging, allocate(rows * shape.row_bytes()));
  layer.early = std::move(early);
  return {};
}

EarlyLists SequenceState::early_lists(const Buffer& buffer) const noexcept {
  auto* const words = buffer.as<std::uint32_t>();
  std::uint32_t* const counts = words + lists() * list_rows();
  return {.ids = words, .counts = counts, .missed_count = counts + lists()};
}

Result<Ticket> SequenceState::resolve_early(LayerState& layer, ResolveRows resolve, RowCounts count,
                                            const float* query, Queue& compute) {
  EarlyRows& early = layer.early;
  const EarlyLists before = early_lists(early.lists[early.latest]);
  early.latest = 1 - early.latest;
  const EarlyLists wanted = early_lists(early.lists[early.latest]);
  const SelectionBuffers attended = selection_buffers(layer.selection);
  resolve.ids = wanted.ids;
  resolve.id_count = wanted.counts;
  TERRACE_TRY(compute.wait_for(early.arrival));
  // Entries that stand for clusters, and bounds of mass, are those of one selection.
  const RetrievalTraits& traits = runtime_.policy->traits();
  const bool corrects_all = runtime_.options.early_fetch == EarlyFetch::exact ||
                            traits.gives_pseudo_entries || traits.bounds_mass;
  const ResolveEarlyRows op{
      .resolve = resolve,
      .ids = attended.ids,
      .id_count = attended.counts,
      .count = count,
      .early_ids = early.fetched ? before.ids : nullptr,
      .early_count = before.counts,
      .early_rows = early.rows.as<std::byte*>(),
      .early_staging = early.staging.data(),
      .early_missed = before.missed_count,
      .early_used = early.used.as<std::uint8_t>(),
      .query = query,
      .last_query = early.last_query.as<float>(),
      .likeness_min =
          corrects_all ? never_alike : static_cast<float>(runtime_.options.early_likeness),
      .outcome = attended.early};
  return runtime_.backend->ops().resolve_early_rows(compute, Phase::fetch, op);
}

Status SequenceState::fetch_ahead(LayerState& layer, Queue& compute) {
  EarlyRows& early = layer.early;
  if (!fetches_early()) return {};
  early.fetched = layer.selected;
  if (!layer.selected) return {};
  const Ops& ops = runtime_.backend->ops();
  const EarlyLists lists = early_lists(early.lists[early.latest]);
  ResolveRows resolve = resolve_request(layer);
  resolve.ids = lists.ids;
  resolve.id_count = lists.counts;
  resolve.staging = early.staging.data();
  resolve.rows = early.rows.as<std::byte*>();
  resolve.missed = early.missed.as<MissedRow>();
  resolve.missed_count = lists.missed_count;
  TERRACE_ASSIGN(layer.attended, ops.resolve_rows(compute, Phase::fetch, resolve));
  TERRACE_TRY(early_queue_->wait_for(layer.attended));
  TERRACE_ASSIGN(early.arrival, ops.fetch_rows(*early_queue_, Phase::fetch,
                                               {.shape = runtime_.shape(),
                                                .missed = resolve.missed,
                                                .missed_count = resolve.missed_count,
                                                .source = table(layer.host_blocks)}));
  return {};
}

Status SequenceState::await_early(const LayerState& layer) {
  const Status arrived = wait(layer.early.arrival, deadline());
  if (arrived || arrived.error().code == Errc::not_ready) return arrived;
  static_cast<void>(early_queue_->drain(deadline()));
  TERRACE_TRY(early_queue_->clear_error());
  for (LayerState& other : layers_) {
    other.early.fetched = false;
    other.early.arrival = {};
  }
  return {};
}

void SequenceState::count_early(const LayerState& layer) {
  if (!fetches_early()) return;
  const EarlyOutcome& outcome = *selection_buffers(layer.selection_host).early;
  counters_.early.lists += lists();
  counters_.early.corrected += outcome.corrected;
  counters_.early.useful += outcome.useful;
  counters_.early.late += outcome.late;
  counters_.early.wasted += outcome.wasted;
  counters_.bytes.demand += outcome.fetched * runtime_.shape().row_bytes();
  counters_.cache.rows_missed += outcome.fetched - outcome.wasted;
}

}  // namespace terrace
