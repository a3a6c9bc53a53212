// The work of each queue over time, as a trace that browsers draw (chrome://tracing, Perfetto).
#pragma once

#include <atomic>
#include <filesystem>
#include <mutex>
#include <string>
#include <vector>

#include "terrace/core/queue.hpp"
#include "terrace/core/replace_file.hpp"

namespace terrace::apps {

/// Threads  on_work from any thread; the rest from one
class Timeline final : public WorkObserver {
 public:
  /// From now on work belongs to `policy`, a process of its own in the picture.
  void record(const std::string& policy);

  /// Ignores what comes until the next record().
  void pause() noexcept { recording_.store(false, std::memory_order_relaxed); }

  void on_work(const WorkRecord& record) override;

  /// Writes the trace, which has yet to be published. Errors: io_error naming the file.
  [[nodiscard]] Result<PendingFile> write(const std::filesystem::path& file) const;

 private:
  struct Event {
    std::size_t policy = 0;
    std::size_t queue = 0;
    Phase phase = Phase::model;
    TimePoint begin{};
    TimePoint end{};
    std::size_t bytes = 0;
  };

  std::atomic<bool> recording_{false};
  mutable std::mutex mutex_;
  std::vector<std::string> policies_;
  std::vector<std::string> queues_;
  std::vector<Event> events_;
};

}  // namespace terrace::apps
