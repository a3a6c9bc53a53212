#include "layer_index.hpp"

#include "services/sequence_services.hpp"

namespace terrace {

Status LayerIndex::keep(Backend& backend) {
  Kept kept{.image = {},
            .pre_rope_keys = build.hints.pre_rope_keys.size(),
            .query_window = build.hints.query_window,
            .attention_scores = build.hints.attention_scores};
  TERRACE_TRY(image.share_with(kept.image, backend));
  kept_ = std::move(kept);
  return {};
}

void LayerIndex::put_back() {
  put_back_hints();
  if (kept_->image.coverage.tokens().empty()) {
    image.coverage = std::move(kept_->image.coverage);  // there is memory, and may be more by now
  } else {
    image = std::move(kept_->image);
  }
  kept_.reset();
  coded = {};  // it may have failed
  building = false;
  clusters.rename();
}

void LayerIndex::put_back_hints() {
  build.hints.pre_rope_keys.resize(kept_->pre_rope_keys);
  build.hints.query_window = std::move(kept_->query_window);
  build.hints.attention_scores = std::move(kept_->attention_scores);
}

void ClusterNames::read_members(const RuntimePlan& plan, const IndexImage& image) {
  if (!members_stale_) return;
  members_.read(*plan.policy, plan.shape(), plan.layout, image.view(plan.layout));
  members_stale_ = false;
}

}  // namespace terrace
