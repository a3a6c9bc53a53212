#include "attention_sums.hpp"

#include "layer/layer.hpp"
#include "memory/reserve_buffer.hpp"

namespace terrace {

std::size_t AttentionSums::lists() const noexcept {
  return plan_.retention->traits().score_heads(plan_.shape());
}

Status AttentionSums::begin_step(const Tokens& tokens) {
  tokens_ = tokens;
  TERRACE_TRY(reserve_device(tokens.columns));
  for (const auto& layer : layers_) {
    LayerWeights& weights = layer->retention.weights;
    const bool sums = tokens.of_prompt && !tokens.together;
    weights.sums = sums ? std::make_shared<PositionScores>() : nullptr;
    TERRACE_TRY(reserve_host(weights));
  }
  return {};
}

Status AttentionSums::reserve_device(std::size_t columns) {
  if (columns <= columns_) return {};
  Backend& backend = work_.backend;
  const std::size_t room = with_room(columns);
  const std::size_t bytes = lists() * room * sizeof(float);
  columns_ = 0;
  for (Place& place : places_) {
    // Weights of the last step may still be on their way from there.
    TERRACE_TRY(work_.await(WaitReason::retention, place.copied));
    TERRACE_TRY(reserve_buffer(backend, place.memory, bytes, Purpose::staging));
  }
  const std::size_t floats = attention_weights_scratch_floats(plan_.shape(), room);
  TERRACE_TRY(reserve_buffer(backend, scratch_, floats * sizeof(float), Purpose::staging));
  columns_ = room;
  return {};
}

Status AttentionSums::reserve_host(LayerWeights& weights) {
  const std::size_t places = tokens_.together ? 1 : weights.sums ? 2 : tokens_.count;
  if (weights.tokens.size() < places) weights.tokens.resize(places);  // no pointer refers to them
  for (HostWeights& place : std::span(weights.tokens).first(places)) {
    if (place.memory.bytes() >= lists() * columns_ * sizeof(float)) continue;
    // Weights of the last step may still come, of tokens that were rejected, too, or be added.
    TERRACE_TRY(work_.await(WaitReason::retention, place.copied));
    TERRACE_TRY(work_.await(WaitReason::retention, place.added));
    place.memory.reset();
    TERRACE_ASSIGN(
        place.memory,
        work_.backend.allocate({.bytes = lists() * columns_ * sizeof(float), .tier = Tier::host}));
  }
  return {};
}

void AttentionSums::give_up_memory() noexcept {
  places_ = {};
  scratch_.reset();
  columns_ = 0;
  for (const auto& layer : layers_) layer->retention.weights = {};
}

Result<AttentionWeights> AttentionSums::next(Queue& compute) {
  const Place& place = places_[turn_ % 2];
  TERRACE_TRY(compute.wait_for(place.copied));
  const bool apart = plan_.retention->traits().scores_of_query_heads;
  return AttentionWeights{.scope = apart ? ListScope::query_head : ListScope::kv_head,
                          .sums = place.memory.as<float>(),
                          .stride = columns_};
}

Result<AttentionWeights> AttentionSums::next_sums(Layer& layer, std::size_t columns,
                                                  Queue& compute) {
  const HostWeights& from = layer.retention.weights.tokens.front();
  const auto write = [to = from.memory.as<float>(), &scores = layer.retention.scores, columns,
                      lists = lists(), stride = columns_]() -> Result<std::size_t> {
    for (std::size_t list = 0; list < lists; ++list) {
      scores.write(list, {to + list * stride, columns});
    }
    return 0;
  };
  Queue& cluster = work_.lanes.cluster();
  // Weights of tokens that were rejected may still be on their way there.
  TERRACE_TRY(cluster.wait_for(from.copied));
  TERRACE_ASSIGN(const Ticket written, cluster.call(Phase::update, write));
  TERRACE_TRY(compute.wait_for(written));
  TERRACE_ASSIGN(const AttentionWeights weights, next(compute));
  std::vector<CopyExtent> extents;
  for (std::size_t list = 0; list < lists(); ++list) {
    const std::size_t at = list * columns_ * sizeof(float);
    extents.push_back({reinterpret_cast<std::byte*>(weights.sums) + at, from.memory.data() + at,
                       columns * sizeof(float)});
  }
  TERRACE_TRY(compute.copy(Phase::update, extents));
  return weights;
}

Status AttentionSums::send(Layer& layer, std::size_t token, const WeightColumns& columns,
                           Ticket written) {
  LayerWeights& weights = layer.retention.weights;
  HostWeights& to = weights.tokens[weights.sums ? token % 2 : token];
  Place& from = places_[turn_++ % 2];
  Queue& offload = work_.lanes.offload();
  TERRACE_TRY(offload.wait_for(written));
  TERRACE_TRY(offload.wait_for(to.added));
  to.weights = {to.memory.as<float>(), lists(), columns_, columns};
  std::vector<CopyExtent> extents;
  const std::size_t bytes = columns.size() * sizeof(float);
  for (std::size_t list = 0; list < lists(); ++list) {
    const std::size_t at = list * columns_ * sizeof(float);
    extents.push_back({to.memory.data() + at, from.memory.data() + at, bytes});
  }
  TERRACE_ASSIGN(from.copied, offload.copy(Phase::offload, extents));
  work_.counters.bytes.index += lists() * bytes;
  to.copied = from.copied;
  if (weights.sums == nullptr) return {};
  Queue& cluster = work_.lanes.cluster();
  TERRACE_TRY(cluster.wait_for(to.copied));
  const auto add = [one = to.weights, sums = weights.sums,
                    &scores = layer.retention.scores]() -> Result<std::size_t> {
    // Tokens add to the scores so far one after the other, however a prompt is cut.
    if (sums->empty()) *sums = scores;
    one.add_to(*sums);
    return 0;
  };
  TERRACE_ASSIGN(to.added, cluster.call(Phase::update, add));
  return {};
}

Status AttentionSums::keep(std::size_t accepted) {
  // Sums cannot be taken apart.
  if ((tokens_.together || tokens_.of_prompt) && accepted < tokens_.count) return {};
  if (accepted == 0) return {};
  const std::size_t places = tokens_.together ? 1 : accepted;
  struct Addition {
    PositionScores* scores;
    std::vector<TokenWeights> tokens;
    std::shared_ptr<PositionScores> sums;
  };
  std::vector<Addition> additions;
  Queue& cluster = work_.lanes.cluster();
  for (const auto& layer : layers_) {
    LayerWeights& weights = layer->retention.weights;
    Addition& one = additions.emplace_back(Addition{&layer->retention.scores, {}, weights.sums});
    for (std::size_t i = 0; weights.sums == nullptr && i < places; ++i) {
      TERRACE_TRY(cluster.wait_for(weights.tokens[i].copied));
      one.tokens.push_back(weights.tokens[i].weights);
    }
  }
  const auto add = [additions = std::move(additions),
                    together = tokens_.together]() -> Result<std::size_t> {
    for (const Addition& one : additions) {
      if (one.sums != nullptr) *one.scores = std::move(*one.sums);
      for (const TokenWeights& token : one.tokens) {
        together ? token.replace(*one.scores) : token.add_to(*one.scores);
      }
    }
    return 0;
  };
  TERRACE_ASSIGN(const Ticket added, cluster.call(Phase::update, add));
  for (const auto& layer : layers_) {
    for (HostWeights& one : layer->retention.weights.tokens) one.added = added;
  }
  return {};
}

void AttentionSums::forget_tickets() noexcept {
  for (Place& place : places_) place.copied = {};
  for (const auto& layer : layers_) {
    for (HostWeights& one : layer->retention.weights.tokens) one.copied = one.added = {};
  }
}

}  // namespace terrace
