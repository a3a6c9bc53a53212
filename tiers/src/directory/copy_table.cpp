#include "copy_table.hpp"

namespace terrace::tiers {
namespace {

void set_state(CopyRecord& copy, CopyState state) noexcept {
  copy.state = static_cast<std::uint64_t>(state) & 3;
}

}  // namespace

RecordNumber CopyTable::find(CopyHandle handle, CopyState state) const noexcept {
  if (handle.copy == no_record || handle.copy >= pool_.state().fresh) return no_record;
  const bool is_it = pool_[handle.copy].generation == handle.generation;
  return is_it && has_state(handle.copy, state) ? handle.copy : no_record;
}

RecordNumber CopyTable::reserve(RecordNumber chunk, std::size_t tier,
                                std::uint64_t bytes) noexcept {
  const RecordNumber number = pool_.allocate();
  if (number == no_record) return number;
  CopyRecord& copy = pool_[number];
  copy = {.bytes = bytes & Directory::copy_bytes_max,
          .tier = tier & 3,
          .chunk = chunk,
          .generation = copy.generation};
  set_state(copy, CopyState::reserved);
  chunks_[chunk].copies[tier] = number;
  for (TierGauges* gauges : gauges_of(copy)) gauges->in_flight += bytes;
  return number;
}

void CopyTable::publish(RecordNumber number, const PublishedCopy& published) noexcept {
  CopyRecord& copy = pool_[number];
  copy.place = published.place;
  copy.checksum = published.checksum;
  set_state(copy, CopyState::resident);
  for (TierGauges* gauges : gauges_of(copy)) {
    gauges->in_flight -= copy.bytes;
    gauges->resident += copy.bytes;
    ++gauges->copies;
  }
  push_newest(list_of(copy), number);
}

void CopyTable::leave_residents(RecordNumber number) noexcept {
  CopyRecord& copy = pool_[number];
  if (copy.pins == 0) remove(list_of(copy), number);
  for (TierGauges* gauges : gauges_of(copy)) {
    if (copy.pins > 0) gauges->pinned -= copy.bytes;
    gauges->resident -= copy.bytes;
    --gauges->copies;
  }
  copy.pins = 0;
}

void CopyTable::drop(RecordNumber number) noexcept {
  leave_residents(number);
  CopyRecord& copy = pool_[number];
  set_state(copy, CopyState::leaving);
  for (TierGauges* gauges : gauges_of(copy)) gauges->in_flight += copy.bytes;
  push_newest(header_->leaving, number);
}

void CopyTable::erase(RecordNumber number) noexcept {
  CopyRecord& copy = pool_[number];
  if (has_state(number, CopyState::resident)) {
    leave_residents(number);
  } else {
    if (has_state(number, CopyState::leaving)) remove(header_->leaving, number);
    for (TierGauges* gauges : gauges_of(copy)) gauges->in_flight -= copy.bytes;
  }
  chunks_[copy.chunk].copies[copy.tier] = no_record;
  set_state(copy, CopyState::free);
  ++copy.generation;
  pool_.release(number);
}

void CopyTable::pin(RecordNumber number) noexcept {
  CopyRecord& copy = pool_[number];
  if (copy.pins == 0) {
    remove(list_of(copy), number);
    for (TierGauges* gauges : gauges_of(copy)) gauges->pinned += copy.bytes;
  }
  ++copy.pins;
}

void CopyTable::unpin(RecordNumber number) noexcept {
  CopyRecord& copy = pool_[number];
  --copy.pins;
  if (copy.pins > 0) return;
  push_newest(list_of(copy), number);
  for (TierGauges* gauges : gauges_of(copy)) gauges->pinned -= copy.bytes;
}

void CopyTable::use(RecordNumber number) noexcept {
  const CopyRecord& copy = pool_[number];
  if (copy.pins > 0) return;
  remove(list_of(copy), number);
  push_newest(list_of(copy), number);
}

void CopyTable::push_newest(ListEnds& list, RecordNumber number) noexcept {
  CopyRecord& copy = pool_[number];
  copy.older = list.newest;
  copy.newer = no_record;
  (list.newest == no_record ? list.oldest : pool_[list.newest].newer) = number;
  list.newest = number;
  ++list.count;
}

void CopyTable::remove(ListEnds& list, RecordNumber number) noexcept {
  const CopyRecord& copy = pool_[number];
  (copy.older == no_record ? list.oldest : pool_[copy.older].newer) = copy.newer;
  (copy.newer == no_record ? list.newest : pool_[copy.newer].older) = copy.older;
  --list.count;
}

}  // namespace terrace::tiers
