// Exact accounting of one tier's memory, by purpose, under a limit.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "terrace/core/backend.hpp"

namespace terrace::offload {

/// Threads  safe from any thread; nothing is taken beyond the limit
class MemoryLedger {
 public:
  /// `setting` names the limit in messages ("host.memory").
  MemoryLedger(std::string_view setting, std::size_t limit_bytes) noexcept
      : setting_(setting), limit_(limit_bytes) {}

  /// Books bytes; a model's are booked apart from all other bytes, under no limit. Errors:
  /// out_of_memory, naming the setting, the limit, what is in use for which purpose, and wanted.
  [[nodiscard]] Status take(std::size_t bytes, Purpose purpose) noexcept;

  /// Gives back what was taken.
  void give(std::size_t bytes, Purpose purpose) noexcept;

  /// Returns the use of memory without a model's bytes.
  [[nodiscard]] MemoryUsage usage() const noexcept;
  [[nodiscard]] std::size_t in_use(Purpose purpose) const noexcept;

  /// Sets the limit. Memory in use beyond a lower limit stays in use.
  void set_limit(std::size_t bytes) noexcept { limit_.store(bytes, std::memory_order_relaxed); }

  /// Sets the peak to the bytes in use now.
  void reset_peak() noexcept;

 private:
  Status take_limited(std::size_t bytes, Purpose purpose) noexcept;
  [[nodiscard]] Status refuse(std::size_t bytes, Purpose purpose) const noexcept;

  std::string_view setting_;
  std::atomic<std::size_t> limit_;
  std::atomic<std::size_t> in_use_{0};
  std::atomic<std::size_t> peak_{0};
  std::array<std::atomic<std::size_t>, purpose_count> by_purpose_{};
};

}  // namespace terrace::offload
