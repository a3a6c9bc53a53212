#include <algorithm>
#include <cstring>
#include <functional>
#include <map>
#include <span>
#include <utility>
#include <vector>

#include "terrace/kernels/reference.hpp"
#include "terrace/kernels/row_address.hpp"

namespace terrace::kernels::reference {
namespace {

/// Returns the slots of a head by age: those whose rows no call has found for longest come first.
std::vector<std::uint32_t> slots_by_age(const ResolveRows& op, std::uint32_t head,
                                        std::uint32_t call) {
  std::vector<std::uint32_t> numbers;
  numbers.reserve(op.slots.count);
  for (std::uint32_t slot = 0; slot < op.slots.count; ++slot) {
    numbers.push_back(slot_number(op.shape, op.cached, head, slot));
  }
  const auto age = [&](std::uint32_t number) {
    return std::min(call - op.slots.each[number - 1].found, RowSlots::oldest_age);
  };
  std::erase_if(numbers, [&](std::uint32_t number) { return age(number) == 0; });
  std::ranges::stable_sort(numbers, std::ranges::greater(), age);
  return numbers;
}

/// Gives rows of a head that were missed, in their order, slots.
void admit_rows(const ResolveRows& op, std::uint32_t head, std::span<MissedRow> missed) {
  RowSlotCounts& counts = op.slot_counts[head];
  const std::uint32_t call = op.slots.calls[head];
  std::vector<std::uint32_t> freed = slots_by_age(op, head, call);
  freed.resize(std::min(freed.size(), missed.size()));
  std::ranges::sort(freed);
  counts.admitted = static_cast<std::uint32_t>(freed.size());
  for (std::size_t i = 0; i < freed.size(); ++i) {
    RowSlot& slot = op.slots.each[freed[i] - 1];
    if (slot.held != 0) {
      op.cached.numbers[cached_place(op.shape, head, slot.held - 1)] = 0;
      ++counts.evicted;
    }
    slot.held = missed[i].position + 1;
    slot.found = call;
    op.cached.numbers[cached_place(op.shape, head, missed[i].position)] = freed[i];
    missed[i].target = cached_row(op.shape, op.cached, freed[i]);
  }
}

/// The lists of one KV head.
void resolve_head(const ResolveRows& op, std::uint32_t head) {
  const std::size_t group = lists_per_kv_head(op.shape, op.scope);
  const bool keeps = op.slots.count > 0;
  if (keeps) op.slot_counts[head] = {};
  const std::uint32_t call = keeps ? ++op.slots.calls[head] : 0;
  std::map<std::uint32_t, std::size_t> staged;  // position -> number of its miss
  const std::size_t before = *op.missed_count;
  const auto for_each_place = [&](auto visit) {
    for (std::size_t list = head * group; list < (head + 1) * group; ++list) {
      for (std::size_t i = 0; i < op.id_count[list]; ++i) visit(list * op.id_stride + i);
    }
  };
  for_each_place([&](std::size_t place) {
    const std::uint32_t position = op.ids[place];
    op.rows[place] = find_row(op, head, position);
    if (op.rows[place] != nullptr) {
      const bool resident = row_address(op.shape, op.resident, head, position) != nullptr;
      if (resident || !keeps) return;
      std::uint32_t& found = op.slots.each[cached_number(op, head, position) - 1].found;
      if (std::exchange(found, call) != call) ++op.slot_counts[head].found;
    } else if (staged.try_emplace(position, *op.missed_count).second) {
      op.missed[(*op.missed_count)++] = {position, head, op.staging + place * op.shape.row_bytes()};
    }
  });
  if (keeps) admit_rows(op, head, {op.missed + before, *op.missed_count - before});
  for_each_place([&](std::size_t place) {
    if (op.rows[place] == nullptr) op.rows[place] = op.missed[staged.at(op.ids[place])].target;
  });
}

}  // namespace

void resolve_rows(const ResolveRows& op) {
  *op.missed_count = 0;
  for (std::uint32_t head = 0; head < op.shape.kv_heads; ++head) resolve_head(op, head);
}

void fetch_rows(const FetchRows& op) {
  for (std::size_t i = 0; i < *op.missed_count; ++i) {
    const MissedRow& missed = op.missed[i];
    std::memcpy(missed.target, row_address(op.shape, op.source, missed.head, missed.position),
                op.shape.row_bytes());
  }
}

void map_queries(const MapQueries& op) {
  const std::size_t dims = op.shape.head_dim;
  for (std::size_t q = 0; q < op.shape.query_heads; ++q) {
    const float* const map = op.maps + q / op.shape.group() * dims * dims;
    for (std::size_t k = 0; k < dims; ++k) {
      double sum = 0;
      for (std::size_t i = 0; i < dims; ++i) {
        sum += double{op.query[q * dims + i]} * double{map[i * dims + k]};
      }
      op.mapped[q * dims + k] = static_cast<float>(sum);
    }
  }
}

void convert_queries(const ConvertQueries& op) {
  for (std::size_t token = 0; token < op.tokens; ++token) {
    const std::byte* const source = op.source + token * op.source_stride;
    std::byte* const target = op.target + token * op.target_stride;
    for (std::size_t i = 0; i < op.shape.query_heads * op.shape.head_dim; ++i) {
      store_f32(target, op.to, i, load_f32(source, op.from, i));
    }
  }
}

}  // namespace terrace::kernels::reference
