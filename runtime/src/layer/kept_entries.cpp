#include "kept_entries.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <utility>

namespace terrace {

Status HostEntries::reserve(Backend& backend, const EntryLayout& layout) {
  TERRACE_TRY(memory_.reserve(backend, layout, Tier::host));
  heads.assign(layout.shape.kv_heads, {});
  return {};
}

void HostEntries::list_rows(std::size_t head, std::vector<const std::byte*>& rows) const {
  for (std::size_t i = 0; i < heads[head].size(); ++i) rows.push_back(memory_.row(head, i));
}

void HostEntries::describe_for(const EntryMemory& device) const {
  const std::size_t capacity = memory_.layout().capacity;
  for (std::size_t head = 0; head < heads.size(); ++head) {
    const EntryList& list = heads[head];
    memory_.counts()[head] = static_cast<std::uint32_t>(list.size());
    std::ranges::copy(list.positions, memory_.positions() + head * capacity);
    for (std::size_t i = 0; i < capacity; ++i) {
      const bool is_there = i < list.size();
      memory_.pointers()[head * capacity + i] = is_there ? device.row(head, i) : nullptr;
      memory_.bias()[head * capacity + i] =
          is_there ? std::log(static_cast<float>(list.degrees[i])) : 0;
    }
  }
}

void KeptEntries::take_next() noexcept {
  std::swap(now_, next_);
  mark_stale();
}

Status KeptEntries::refresh_device(Backend& backend, std::vector<CopyExtent>& extents) {
  if (now_.heads.empty() || !stale_) return {};
  TERRACE_TRY(device_.reserve(backend, now_.memory().layout(), Tier::device));
  now_.describe_for(device_);
  device_.list_copies(now_.memory(), extents);
  stale_ = false;
  return {};
}

PseudoEntries KeptEntries::view() const noexcept {
  if (now_.heads.empty()) return {};
  return {.rows = device_.pointers(),
          .bias = device_.bias(),
          .count = device_.counts(),
          .stride = device_.layout().capacity};
}

HeldPositions KeptEntries::held() const noexcept {
  if (now_.heads.empty()) return {};
  return {.positions = device_.positions(),
          .count = device_.counts(),
          .stride = device_.layout().capacity};
}

std::size_t KeptEntries::size() const noexcept {
  return std::accumulate(now_.heads.begin(), now_.heads.end(), std::size_t{0},
                         [](std::size_t sum, const EntryList& list) { return sum + list.size(); });
}

const std::byte* KeptEntries::row_of(std::size_t head, std::size_t position) const noexcept {
  const EntryList& list = now_.heads[head];
  const auto at = std::ranges::lower_bound(list.positions, position);
  if (at == list.positions.end() || *at != position) return nullptr;
  const auto entry = static_cast<std::size_t>(at - list.positions.begin());
  return list.is_token(entry) ? now_.memory().row(head, entry) : nullptr;
}

Status KeptEntries::copy_from(const KeptEntries& other, Backend& backend) {
  if (other.now_.heads.empty()) return {};
  const EntryMemory& source = other.now_.memory();
  TERRACE_TRY(now_.reserve(backend, source.layout()));
  now_.heads = other.now_.heads;
  for (std::size_t head = 0; head < now_.heads.size(); ++head) {
    std::memcpy(now_.memory().row(head, 0), source.row(head, 0),
                now_.heads[head].size() * source.layout().shape.row_bytes());
  }
  mark_stale();
  return {};
}

void KeptEntries::clear() noexcept {
  now_ = {};
  next_ = {};
  give_up_device_memory();
}

}  // namespace terrace
