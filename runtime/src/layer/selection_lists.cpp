#include "selection_lists.hpp"

#include "plan/runtime_plan.hpp"

namespace terrace {

SelectionSize selection_size(const RuntimePlan& plan, std::size_t rows) noexcept {
  return {.lists = plan.lists(), .rows = rows, .heads = plan.shape().kv_heads};
}

Status SelectionLists::reserve(Backend& backend, const SelectionSize& size) {
  const bool fits =
      size.lists == size_.lists && size.rows <= size_.rows && size.heads == size_.heads;
  if (host_ && fits) return {};
  AllocationRequest request{.bytes = size.bytes(), .purpose = Purpose::staging};
  TERRACE_ASSIGN(Buffer device, backend.allocate(request));
  request.tier = Tier::host;
  TERRACE_ASSIGN(host_, backend.allocate(request));
  device_ = std::move(device);
  size_ = size;
  return {};
}

SelectionBuffers SelectionLists::parts_of(const Buffer& memory) const noexcept {
  auto* const words = memory.as<std::uint32_t>();
  auto* const slots = reinterpret_cast<RowSlotCounts*>(words + size_.lists * size_.rows);
  auto* const counts = reinterpret_cast<std::uint32_t*>(slots + size_.heads);
  return {.ids = words,
          .slots = slots,
          .counts = counts,
          .missed_count = counts + size_.lists,
          .pseudo_counts = counts + size_.lists + 1};
}

}  // namespace terrace
