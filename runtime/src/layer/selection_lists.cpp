#include "selection_lists.hpp"

namespace terrace {

Status SelectionLists::reserve(Backend& backend, std::size_t lists, std::size_t rows) {
  if (host_ && lists == lists_ && rows <= rows_) return {};
  AllocationRequest request{.bytes = bytes_for(lists, rows), .purpose = Purpose::staging};
  TERRACE_ASSIGN(Buffer device, backend.allocate(request));
  request.tier = Tier::host;
  TERRACE_ASSIGN(host_, backend.allocate(request));
  device_ = std::move(device);
  lists_ = lists;
  rows_ = rows;
  return {};
}

SelectionBuffers SelectionLists::parts_of(const Buffer& memory) const noexcept {
  auto* const words = memory.as<std::uint32_t>();
  std::uint32_t* const counts = words + lists_ * rows_;
  return {.ids = words,
          .counts = counts,
          .missed_count = counts + lists_,
          .pseudo_counts = counts + lists_ + 1};
}

}  // namespace terrace
