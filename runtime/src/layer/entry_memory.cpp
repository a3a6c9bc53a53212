#include "entry_memory.hpp"

namespace terrace {

Status EntryMemory::reserve(Backend& backend, const EntryLayout& layout, Tier tier) {
  if (is_there() && layout_ == layout) return {};
  reset();
  TERRACE_ASSIGN(memory_, backend.allocate({.bytes = layout.bytes(), .tier = tier}));
  layout_ = layout;
  return {};
}

void EntryMemory::list_copies(const EntryMemory& from, std::vector<CopyExtent>& extents) const {
  for (std::size_t head = 0; head < layout_.shape.kv_heads; ++head) {
    const std::size_t rows = from.counts()[head];
    if (rows == 0) continue;
    extents.push_back({row(head, 0), from.row(head, 0), rows * layout_.shape.row_bytes()});
  }
  const std::size_t behind = layout_.pointers_at();
  extents.push_back(
      {memory_.data() + behind, from.memory_.data() + behind, layout_.bytes() - behind});
}

}  // namespace terrace
