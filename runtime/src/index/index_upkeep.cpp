#include "index_upkeep.hpp"

#include <algorithm>

#include "layer/layer.hpp"

namespace terrace {

bool IndexUpkeep::takes_batches() const noexcept { return plan_.traits().batch_tokens_max > 1; }

Result<Ticket> IndexUpkeep::enqueue(const BuildRequest& request, bool wakes_others) {
  return work_.lanes.cluster().call(Phase::update,
                                    [threads = &threads_, policy = plan_.policy.get(), request,
                                     wakes_others]() -> Result<std::size_t> {
                                      Serial alone;
                                      TERRACE_TRY(wakes_others ? threads->build(*policy, request)
                                                               : policy->build(request, alone));
                                      return 0;
                                    });
}

Status IndexUpkeep::extend(Layer& layer, std::size_t end, bool of_prompt) {
  LayerIndex& index = layer.index;
  IndexCoverage& coverage = index.image.coverage;
  const TokenRange tokens{coverage.tokens().end, end};
  if (tokens.empty()) return {};
  // Should it fail, an extension before it that is still under way fails with it.
  const Result<bool> coded = poll(index.coded);
  if (coded && *coded) coverage.note_coded();
  TERRACE_TRY(room_.prepare_extension(layer, tokens));
  TERRACE_ASSIGN(const HostRows rows, layer.host_rows({read_again_from(coverage), tokens.end}));
  TERRACE_TRY(work_.lanes.cluster().wait_for(layer.tickets().offloaded));
  TERRACE_TRY(work_.lanes.cluster().wait_for(index.uploaded));
  BuildRequest request = builder_.request(layer, tokens, rows);
  // After a cut nothing may be left of an index but what it has learnt.
  request.anew = !request.extends() && coverage.trained() > 0;
  TERRACE_ASSIGN(index.coded, enqueue(request, of_prompt));
  coverage.extend_to(end, takes_batches() || !request.extends());
  room_.ready = false;  // what is on its way lacks them
  index.clusters.note_change();
  const Result<std::size_t> bytes = room_.device().stage(layer, tokens, /*with_fixed=*/false);
  if (!bytes) {
    room_.device().mark_stale(layer);
    return tl::unexpected(bytes.error());
  }
  if (!of_prompt) work_.counters.bytes.index += *bytes;
  return {};
}

std::size_t IndexUpkeep::read_again_from(const IndexCoverage& coverage) const noexcept {
  if (plan_.layout.chunk_clusters > 0) return coverage.tokens().begin;
  return coverage.tokens().end - coverage.tokens().size() % plan_.traits().read_together;
}

Status IndexUpkeep::add_prompt(Layer& layer, TokenRange tokens, TokenRange hidden_by) {
  LayerIndex& index = layer.index;
  const bool first = index.image.coverage.tokens().empty();
  const bool anew = first || is_outgrown(index, tokens.size());
  TERRACE_TRY(anew ? builder_.build(layer, tokens, hidden_by)
                   : extend(layer, tokens.end, /*of_prompt=*/true));
  return room_.device().send();
}

Status IndexUpkeep::code_layers(FunctionRef<Status(Layer&)> code) {
  Status coded;
  for (std::size_t i = 0; coded && i < layers_.size(); ++i) coded = code(*layers_[i]);
  // The codes of all layers go at once, also those of layers before one that failed.
  TERRACE_TRY(room_.device().send());
  return coded;
}

Status IndexUpkeep::code_passed_tokens() {
  // Tokens of a prompt are indexed together, whatever pieces they come in. They may select.
  if (progress_.in_prompt()) return code_layers([&](Layer& layer) { return renew(layer); });
  return code_layers([&](Layer& layer) { return code_passed_tokens(layer, progress_.length()); });
}

Status IndexUpkeep::renew(Layer& layer) {
  const LayerIndex& index = layer.index;
  if (!has_index(layer) || index.image.coverage.tokens().empty() || index.building) return {};
  return room_.device().renew(layer).map([](std::size_t) {});
}

Status IndexUpkeep::code_lost_tokens() {
  return code_layers([&](Layer& layer) { return code_lost_tokens(layer); });
}

Status IndexUpkeep::code_lost_tokens(Layer& layer) {
  IndexCoverage& coverage = layer.index.image.coverage;
  while (!coverage.lost_ends().empty()) {
    TERRACE_TRY(extend(layer, coverage.lost_ends().front()));
    coverage.find_first_lost();
  }
  return {};
}

Status IndexUpkeep::code_passed_tokens(Layer& layer, std::size_t length) {
  if (!has_index(layer)) return {};
  const TokenRange& coded = layer.index.image.coverage.tokens();
  TERRACE_TRY(renew(layer));
  TERRACE_TRY(code_lost_tokens(layer));
  if (takes_batches() && !coded.empty()) {
    return batch_is_due(layer, length) ? extend(layer, length) : Status{};
  }
  const TokenRange middle = middle_at(length);
  if (build_is_due(layer, length)) return builder_.build(layer, {middle.begin, length}, {});
  return lacks(layer, middle) ? extend(layer, middle.end) : Status{};
}

bool IndexUpkeep::lacks(const Layer& layer, TokenRange middle) noexcept {
  return !middle.empty() && middle.end > layer.index.image.coverage.tokens().end;
}

TokenRange IndexUpkeep::middle_at(std::size_t length) const noexcept {
  return {progress_.sinks_at(length).end, progress_.window_at(length).begin};
}

bool IndexUpkeep::has_index(const Layer& layer) const noexcept {
  return !plan_.layout.empty() && progress_.list_rows() > 0 && !plan_.is_dense(layer.number);
}

bool IndexUpkeep::build_is_due(const Layer& layer, std::size_t length) const noexcept {
  const TokenRange middle = middle_at(length);
  const bool first = layer.index.image.coverage.tokens().empty();
  return lacks(layer, middle) && (first || is_outgrown(layer.index, middle.size()));
}

void IndexUpkeep::begin_draft() const {
  for (const auto& layer : layers_) {
    layer->index.forget_kept();
    layer->index.image.coverage.begin_draft();
  }
}

Status IndexUpkeep::follow_draft(Layer& layer, std::size_t position, std::size_t last) {
  // Tokens of a prompt are indexed together, once all are there.
  if (progress_.in_prompt() || !has_index(layer)) return {};
  LayerIndex& index = layer.index;
  const std::size_t end_before = index.image.coverage.tokens().end;
  const bool builds = !takes_batches() && build_is_due(layer, position);
  if (builds) {
    TERRACE_TRY(work_.await(WaitReason::index, index.coded));
    TERRACE_TRY(work_.await(WaitReason::upload, index.uploaded));
    TERRACE_TRY(index.keep(work_.backend));
  }
  TERRACE_TRY(code_passed_tokens(layer, position));
  TERRACE_TRY(room_.device().send());
  if (builds) index.image.coverage.begin_draft();
  if (index.image.coverage.tokens().end == end_before) return {};
  // Later tokens of the draft may have something to select where this one has nothing.
  return room_.device().prefetch(layer, last);
}

Status IndexUpkeep::reject_draft() {
  for (const auto& layer : layers_) {
    if (!has_index(*layer)) continue;
    TERRACE_TRY(work_.await(WaitReason::index, layer->index.coded));
    reject_draft(*layer);
  }
  return room_.device().send();
}

void IndexUpkeep::reject_draft(Layer& layer) {
  LayerIndex& index = layer.index;
  IndexCoverage& coverage = index.image.coverage;
  const std::size_t length = progress_.length();
  if (index.has_kept() && coverage.draft_begin() > length) {
    index.put_back();
    room_.device().mark_stale(layer);
  }
  index.forget_kept();
  // Without the rejected tokens so many would be indexed by now.
  const std::size_t end =
      takes_batches() ? length : std::max(coverage.draft_begin(), middle_at(length).end);
  if (coverage.tokens().end <= end) return;
  index.clusters.rename();
  coverage.forget_lost_behind(end);
  const std::size_t kept = takes_batches()
                               ? coverage.batch_of(end)
                               : coverage.remembered_from(end, plan_.traits().indexed_together);
  cut_at(layer, kept);
  // Where it fails, the next step codes it, and reports.
  if (kept < end && !takes_batches()) static_cast<void>(extend(layer, end));
}

void IndexUpkeep::cut() {
  const std::size_t together = plan_.traits().indexed_together;
  const std::size_t length = progress_.length();
  for (const auto& layer : layers_) {
    IndexCoverage& coverage = layer->index.image.coverage;
    layer->index.clusters.note_change();
    coverage.forget_lost_behind(length);
    if (coverage.tokens().end <= length) continue;
    // No part of the index that stands for several tokens may remember one that is gone. If
    // indexing the remaining tokens again fails, it is tried again, and reported, when the next
    // step begins.
    const std::size_t kept = coverage.remembered_from(length, together);
    const bool nothing_is_left = kept == coverage.tokens().begin && kept < length;
    if (nothing_is_left && builder_.build(*layer, {kept, length}, {})) continue;
    cut_at(*layer, kept);
    // A policy that takes batches indexes the rest with the tokens that come next, as before.
    const bool goes_on = !nothing_is_left && kept < length && !takes_batches();
    if (goes_on) static_cast<void>(extend(*layer, length));
  }
  static_cast<void>(room_.device().send());
}

void IndexUpkeep::cut_at(Layer& layer, std::size_t end) {
  IndexCoverage& coverage = layer.index.image.coverage;
  coverage.end_at(end);
  if (coverage.tokens().empty()) return;
  const Result<bool> changed = cut_index(layer, end);
  if (!changed) {
    coverage.clear();  // the next step builds it anew
  } else if (*changed) {
    room_.device().mark_stale(layer);
  }
}

Result<bool> IndexUpkeep::cut_index(Layer& layer, std::size_t end) {
  TERRACE_TRY(room_.prepare_cut(layer, end));
  TERRACE_ASSIGN(const HostRows rows,
                 layer.host_rows({read_again_from(layer.index.image.coverage), end}));
  return plan_.policy->cut(builder_.request(layer, {end, end}, rows));
}

void IndexUpkeep::forget_lost_coding() {
  for (const auto& layer : layers_) {
    LayerIndex& index = layer->index;
    IndexCoverage& coverage = index.image.coverage;
    room_.device().mark_stale(*layer);
    if (index.building) continue;     // the call that waits for the build handles it
    if (poll(index.coded)) continue;  // done, or still under way
    index.coded = {};
    const std::vector<std::size_t> lost = coverage.ends_behind(coverage.coded_before());
    cut_at(*layer, coverage.coded_before());
    if (coverage.tokens().empty()) {
      coverage.clear();
    } else {
      coverage.lose(lost);
    }
  }
}

bool IndexUpkeep::is_outgrown(const LayerIndex& index, std::size_t tokens) const noexcept {
  const std::size_t trained = index.image.coverage.trained();
  return trained < plan_.traits().training_tokens && tokens >= 2 * trained;
}

std::size_t IndexUpkeep::batch_tokens(const policies::BudgetSplit& split) const noexcept {
  const RetrievalTraits& traits = plan_.traits();
  // As many tokens as the window holds anyway cost no budget while they wait. Beyond these they
  // take the place of selected ones: of half of them at most, half a batch of delay included.
  const std::size_t batch =
      std::clamp(split.window, traits.batch_tokens_min, traits.batch_tokens_max);
  const std::size_t most = (2 * split.window + split.selected) / 3;
  return std::max<std::size_t>(1, std::min(batch, most));
}

bool IndexUpkeep::batch_is_due(const Layer& layer, std::size_t length) const noexcept {
  const policies::BudgetSplit split = progress_.split_at(length);
  const std::size_t batch = batch_tokens(split);
  const std::size_t waiting = length - std::min(length, layer.index.image.coverage.tokens().end);
  // Layers take turns: one batch of one layer is too little work to hold a step up.
  const bool on_turn = (length + layer.number * batch / layers_.size()) % batch == 0;
  // After a cut more may wait than half the selected tokens could make room for.
  const std::size_t most = std::min(2 * batch, split.window + split.selected / 2);
  return waiting >= std::max<std::size_t>(1, most) || (on_turn && 2 * waiting >= batch);
}

}  // namespace terrace
