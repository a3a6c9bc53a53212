// A backend that passes everything on to another one: what stands-in of backends derive from.
#pragma once

#include <cstddef>
#include <memory>
#include <mutex>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "terrace/core/backend.hpp"

namespace terrace::doubles {

/// Threads  as the backend below
class WrappedBackend : public Backend {
 public:
  explicit WrappedBackend(std::unique_ptr<Backend> inner) : inner_(std::move(inner)) {}

  [[nodiscard]] std::string_view name() const noexcept override { return inner_->name(); }
  [[nodiscard]] Capabilities capabilities() const noexcept override {
    return inner_->capabilities();
  }
  [[nodiscard]] const Ops& ops() const noexcept override { return inner_->ops(); }
  [[nodiscard]] const Clock& clock() const noexcept override { return inner_->clock(); }
  [[nodiscard]] Parallel& device_threads() noexcept override { return inner_->device_threads(); }
  [[nodiscard]] Result<std::unique_ptr<Queue>> make_queue(const QueueOptions& options) override {
    return inner_->make_queue(options);
  }
  [[nodiscard]] Result<std::unique_ptr<Queue>> make_host_queue(
      const QueueOptions& options) override {
    return inner_->make_host_queue(options);
  }
  [[nodiscard]] MemoryUsage memory(Tier tier) const noexcept override {
    return inner_->memory(tier);
  }
  void set_limit(Tier tier, std::size_t bytes) noexcept override { inner_->set_limit(tier, bytes); }
  void reset_peak() noexcept override { inner_->reset_peak(); }

 protected:
  [[nodiscard]] Backend& inner() noexcept { return *inner_; }
  Result<std::byte*> do_allocate(const AllocationRequest& request) override {
    TERRACE_ASSIGN(Buffer buffer, inner_->allocate(request));
    std::byte* const data = buffer.data();
    const std::scoped_lock lock(mutex_);
    buffers_.emplace(data, std::move(buffer));
    return data;
  }
  void do_release(std::byte* data, const AllocationRequest& /*request*/) noexcept override {
    const std::scoped_lock lock(mutex_);
    buffers_.erase(data);
  }

 private:
  std::unique_ptr<Backend> inner_;
  std::mutex mutex_;                                // guards buffers_
  std::unordered_map<std::byte*, Buffer> buffers_;  // of inner_
};

}  // namespace terrace::doubles
