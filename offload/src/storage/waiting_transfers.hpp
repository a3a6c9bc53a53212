// Transfers that have not begun.
#pragma once

#include <deque>
#include <span>

#include "terrace/offload/file_queue.hpp"

namespace terrace::offload {

/// Gives them in the order they came, those in the background last.
class WaitingTransfers {
 public:
  void add(std::span<const FileTransfer> transfers) {
    for (const FileTransfer& each : transfers) {
      (each.is_background ? background_ : others_).push_back(each);
    }
  }
  [[nodiscard]] bool empty() const noexcept { return others_.empty() && background_.empty(); }
  void clear() noexcept {
    others_.clear();
    background_.clear();
  }
  /// There must be one.
  FileTransfer take() {
    std::deque<FileTransfer>& from = others_.empty() ? background_ : others_;
    const FileTransfer first = from.front();
    from.pop_front();
    return first;
  }

 private:
  std::deque<FileTransfer> others_;
  std::deque<FileTransfer> background_;
};

}  // namespace terrace::offload
