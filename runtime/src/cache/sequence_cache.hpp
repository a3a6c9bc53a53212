// A sequence's share of the runtime's cache, dealt out over its layers.
#pragma once

#include <cstddef>
#include <span>

#include "cache_scratch.hpp"
#include "services/sequence_services.hpp"

namespace terrace {

class Layer;

class SequenceCache {
 public:
  using LayerSpan = std::span<const std::unique_ptr<Layer>>;

  SequenceCache(const SequenceServices& services, LayerSpan layers) noexcept
      : plan_(services.plan),
        progress_(services.progress),
        work_(services.work),
        memory_(services.memory),
        all_sharers_(services.sharers),
        layers_(layers),
        scratch_(SelectionCount(services.plan, services.progress)) {}

  /// Makes room for a sequence of `length` tokens; joins the sequences that share the cache.
  Status reserve(std::size_t length);
  /// Takes the sequence's present share, after other sequences have joined or left.
  Status fit();
  void leave();

  /// Whether the sequence takes part.
  [[nodiscard]] bool joined() const noexcept { return sharers_ != 0; }
  /// Returns the capacity that the sequence has in each layer.
  [[nodiscard]] std::size_t capacity_tokens() const noexcept { return tokens_; }

  /// Keeps the last blocks of a prompt on the device that its cache will take over.
  void place_seeds(TokenRange prompt);
  /// Has device memory ready for what caches may hold of so many tokens, as far as there is any:
  /// mapping it takes longer than a step.
  void reserve_blocks(std::size_t length);

  /// Begins to copy what caches of these layers need from the host.
  Status send_changes(LayerSpan layers);

  [[nodiscard]] CacheScratch& scratch() noexcept { return scratch_; }

 private:
  [[nodiscard]] std::size_t slot_tokens() const noexcept;
  [[nodiscard]] std::size_t slots() const noexcept { return tokens_ / slot_tokens(); }
  void place_seed(Layer& layer, std::size_t block);

  const RuntimePlan& plan_;
  const SequenceProgress& progress_;
  SequenceWork& work_;
  const SequenceMemory& memory_;
  CacheSharers& all_sharers_;
  LayerSpan layers_;
  CacheScratch scratch_;
  std::size_t tokens_ = 0;
  std::size_t sharers_ = 0;    ///< as of the last step; 0 = not in the deal
  std::size_t list_rows_ = 0;  ///< that the cache's size was chosen for
};

}  // namespace terrace
