// The later a token, the sooner it stays: StreamingLLM's rule, the plainest.
#include "keep_best.hpp"
#include "rows.hpp"

namespace terrace::policies {
namespace {

class Recency final : public Importance {
 public:
  [[nodiscard]] RetentionTraits traits() const noexcept override { return {}; }

  [[nodiscard]] std::vector<float> rate(const RetainRequest& request,
                                        std::size_t head) const override {
    std::vector<float> places(request.heads[head].size());
    for (std::size_t i = 0; i < places.size(); ++i) places[i] = static_cast<float>(i);
    return places;
  }
};

}  // namespace

MadeRetentionPolicy make_recent(const RetentionOptions& options) {
  return keep_best("recent", std::make_unique<Recency>(), options);
}

}  // namespace terrace::policies
