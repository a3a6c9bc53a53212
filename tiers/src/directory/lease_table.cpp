#include "lease_table.hpp"

namespace terrace::tiers {
namespace {

std::int64_t nanoseconds(TimePoint time) noexcept { return time.time_since_epoch().count(); }

}  // namespace

LeaseHandle LeaseTable::begin(RecordNumber copy, TimePoint until) noexcept {
  const std::size_t last = heap_size();
  const RecordNumber number = pool_.allocate();
  LeaseRecord& lease = pool_[number];
  lease.until = nanoseconds(until);
  lease.copy = copy;
  put(last, number);
  rise(last);
  return {.lease = number, .generation = lease.generation};
}

bool LeaseTable::holds(LeaseHandle lease, TimePoint now) const noexcept {
  if (lease.lease == no_record || lease.lease >= pool_.state().fresh) return false;
  const LeaseRecord& record = pool_[lease.lease];
  return record.copy != no_record && record.generation == lease.generation &&
         record.until > nanoseconds(now);
}

RecordNumber LeaseTable::end(LeaseHandle lease) noexcept {
  LeaseRecord& record = pool_[lease.lease];
  const std::size_t place = record.heap_place;
  const std::size_t last = heap_size() - 1;
  if (place != last) {
    put(place, heap_[last]);
    sink(place, last);
    rise(place);
  }
  const RecordNumber copy = record.copy;
  record.copy = no_record;
  ++record.generation;
  pool_.release(lease.lease);
  return copy;
}

std::optional<LeaseHandle> LeaseTable::expired(TimePoint now) const noexcept {
  if (heap_size() == 0 || until_at(0) > nanoseconds(now)) return std::nullopt;
  return LeaseHandle{.lease = heap_[0], .generation = pool_[heap_[0]].generation};
}

void LeaseTable::put(std::size_t place, RecordNumber lease) noexcept {
  heap_[place] = lease;
  pool_[lease].heap_place = static_cast<std::uint32_t>(place);
}

void LeaseTable::rise(std::size_t place) noexcept {
  const RecordNumber lease = heap_[place];
  while (place > 0) {
    const std::size_t above = (place - 1) / 2;
    if (until_at(above) <= pool_[lease].until) break;
    put(place, heap_[above]);
    place = above;
  }
  put(place, lease);
}

void LeaseTable::sink(std::size_t place, std::size_t size) noexcept {
  const RecordNumber lease = heap_[place];
  for (std::size_t below = 2 * place + 1; below < size; below = 2 * place + 1) {
    if (below + 1 < size && until_at(below + 1) < until_at(below)) ++below;
    if (pool_[lease].until <= until_at(below)) break;
    put(place, heap_[below]);
    place = below;
  }
  put(place, lease);
}

bool LeaseTable::is_whole(RecordNumber copies) const noexcept {
  for (std::size_t place = 0; place < heap_size(); ++place) {
    const RecordNumber lease = heap_[place];
    if (lease == no_record || lease >= pool_.state().fresh) return false;
    const LeaseRecord& record = pool_[lease];
    if (record.heap_place != place || record.copy == no_record || record.copy >= copies) {
      return false;
    }
    if (place > 0 && until_at((place - 1) / 2) > record.until) return false;
  }
  return true;
}

}  // namespace terrace::tiers
