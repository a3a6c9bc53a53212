#pragma once

#include <vector>

#include "device_indexes.hpp"
#include "layer/index_memory.hpp"

namespace terrace {

/// Every layer's index has a copy in device memory, to which changed chunks are copied.
class ResidentIndexes final : public DeviceIndexes {
 public:
  ResidentIndexes(const RuntimePlan& plan, const SequenceProgress& progress, SequenceWork& work,
                  LayerSpan layers);

  [[nodiscard]] bool streams() const noexcept override { return false; }
  Status reserve(std::size_t chunks) override;
  void trim(std::size_t chunks) override;
  void reset() override;
  Result<std::size_t> stage(Layer& layer, TokenRange tokens, bool with_fixed) override;
  Status send() override;
  void forget_staged() noexcept override;
  void mark_stale(const Layer& layer) override;
  Result<std::size_t> renew(Layer& layer) override;
  Status prefetch(Layer& /*layer*/, std::size_t /*position*/) override { return {}; }
  Result<IndexView> view(Layer& layer, Queue& compute) override;
  void note_read(const Layer& /*layer*/, Ticket /*read*/) noexcept override {}
  void come_to_rest() override;

 private:
  struct Copy {
    IndexMemory memory{Tier::device};
    bool stale = false;
  };

  std::vector<Copy> copies_;         ///< per layer
  std::vector<CopyExtent> extents_;  ///< staged
  std::vector<Layer*> staged_;       ///< whose they are
};

}  // namespace terrace
