#include "chunk_service.hpp"

namespace terrace::node {
namespace {

constexpr std::uint64_t parts_most = std::uint64_t{1} << 21;  ///< 64 MiB of them

}  // namespace

std::shared_ptr<const tiers::Manifest> ManifestCache::find(const tiers::ChunkKey& key) {
  const std::lock_guard lock(mutex_);
  const auto known = by_key_.find(key);
  if (known == by_key_.end()) return nullptr;
  entries_.splice(entries_.begin(), entries_, known->second);
  return entries_.front();
}

void ManifestCache::keep(const tiers::Manifest& manifest) {
  auto entry = std::make_shared<const tiers::Manifest>(manifest);
  const std::lock_guard lock(mutex_);
  const auto [known, is_new] = by_key_.try_emplace(manifest.chunk(), Entries::iterator{});
  if (!is_new) {
    parts_ -= (*known->second)->parts().size();
    entries_.erase(known->second);
  }
  entries_.push_front(std::move(entry));
  known->second = entries_.begin();
  parts_ += manifest.parts().size();
  while (parts_ > parts_most && entries_.size() > 1) {
    parts_ -= entries_.back()->parts().size();
    by_key_.erase(entries_.back()->chunk());
    entries_.pop_back();
  }
}

void ManifestCache::forget(const tiers::ChunkKey& key) {
  const std::lock_guard lock(mutex_);
  const auto known = by_key_.find(key);
  if (known == by_key_.end()) return;
  parts_ -= (*known->second)->parts().size();
  entries_.erase(known->second);
  by_key_.erase(known);
}

}  // namespace terrace::node
