#pragma once

#include <array>
#include <vector>

#include "device_indexes.hpp"
#include "layer/index_memory.hpp"

namespace terrace {

/// The live chunks of a layer's index are copied to one of two places while the layer before it
/// computes.
class StreamedIndexes final : public DeviceIndexes {
 public:
  using DeviceIndexes::DeviceIndexes;

  [[nodiscard]] bool streams() const noexcept override { return true; }
  Status reserve(std::size_t chunks) override;
  void trim(std::size_t /*chunks*/) override {}
  void reset() override { stages_ = {}; }
  Result<std::size_t> stage(Layer& /*layer*/, TokenRange /*tokens*/, bool /*with_fixed*/) override {
    return 0;
  }
  Status send() override { return {}; }
  void mark_stale(const Layer& /*layer*/) override {}
  Result<std::size_t> renew(Layer& /*layer*/) override { return 0; }
  Status prefetch(Layer& layer, std::size_t position) override;
  Result<IndexView> view(Layer& layer, Queue& compute) override;
  void note_read(const Layer& layer, Ticket read) noexcept override;
  void end_step() noexcept override;
  void come_to_rest() override;

 private:
  struct Stage {
    IndexMemory memory{Tier::device};
    Ticket streamed;
    Ticket read;
  };

  [[nodiscard]] Stage& stage_of(const Layer& layer) noexcept;

  std::array<Stage, 2> stages_;
  std::vector<CopyExtent> extents_;
};

}  // namespace terrace
