#include "terrace/offload/memory_ledger.hpp"

#include <fmt/format.h>

#include <string>

#include "terrace/core/assert.hpp"
#include "terrace/core/bytes.hpp"

namespace terrace::offload {
namespace {

std::size_t slot(Purpose purpose) noexcept { return static_cast<std::size_t>(purpose); }

}  // namespace

Status MemoryLedger::take(std::size_t bytes, Purpose purpose) noexcept {
  if (purpose != Purpose::model) TERRACE_TRY(take_limited(bytes, purpose));
  by_purpose_[slot(purpose)].fetch_add(bytes, std::memory_order_relaxed);
  return {};
}

Status MemoryLedger::take_limited(std::size_t bytes, Purpose purpose) noexcept {
  std::size_t before = in_use_.load(std::memory_order_relaxed);
  const std::size_t limit = limit_.load(std::memory_order_relaxed);
  do {
    if (bytes > limit || before > limit - bytes) return refuse(bytes, purpose);
  } while (!in_use_.compare_exchange_weak(before, before + bytes, std::memory_order_relaxed));
  std::size_t peak = peak_.load(std::memory_order_relaxed);
  while (peak < before + bytes &&
         !peak_.compare_exchange_weak(peak, before + bytes, std::memory_order_relaxed)) {
  }
  return {};
}

Status MemoryLedger::refuse(std::size_t bytes, Purpose purpose) const noexcept {
  std::string holders;
  for (std::size_t i = 0; i < static_cast<std::size_t>(Purpose::model); ++i) {
    const auto holder = static_cast<Purpose>(i);
    if (in_use(holder) == 0) continue;
    holders += fmt::format("{}{} {}", holders.empty() ? " (" : ", ", to_string(holder),
                           format_size(in_use(holder)));
  }
  if (!holders.empty()) holders += ')';
  const MemoryUsage now = usage();
  return fail(Errc::out_of_memory, "{} is {}, {} in use{}; {} more wanted for {}: raise it",
              setting_, format_size(now.limit), format_size(now.in_use), holders,
              format_size(bytes), to_string(purpose));
}

void MemoryLedger::give(std::size_t bytes, Purpose purpose) noexcept {
  [[maybe_unused]] const std::size_t before =
      by_purpose_[slot(purpose)].fetch_sub(bytes, std::memory_order_relaxed);
  TERRACE_ASSERT(before >= bytes);
  if (purpose != Purpose::model) in_use_.fetch_sub(bytes, std::memory_order_relaxed);
}

MemoryUsage MemoryLedger::usage() const noexcept {
  return {.in_use = in_use_.load(std::memory_order_relaxed),
          .peak = peak_.load(std::memory_order_relaxed),
          .limit = limit_.load(std::memory_order_relaxed)};
}

std::size_t MemoryLedger::in_use(Purpose purpose) const noexcept {
  return by_purpose_[slot(purpose)].load(std::memory_order_relaxed);
}

void MemoryLedger::reset_peak() noexcept {
  peak_.store(in_use_.load(std::memory_order_relaxed), std::memory_order_relaxed);
}

}  // namespace terrace::offload
