#include "terrace/offload/sim_backend.hpp"

#include <utility>

#include "sim_ops.hpp"
#include "stepped_queue.hpp"

namespace terrace::offload {

/// Discrete events: pieces begin as soon as they can, and the clock goes from end to end.
class SimBackend::Timeline final : public Stepper {
 public:
  explicit Timeline(SimCosts costs) : costs_(std::move(costs)) {}

  [[nodiscard]] const Clock& clock() const noexcept { return clock_; }

  Status run_until(SteppedQueue& queue, std::uint64_t number, Duration timeout) override {
    const TimePoint deadline = after(timeout);
    while (!queue.is_done(number)) {
      SteppedQueue* const next = next_to_end();
      if (next == nullptr) return deadlock(queue, number);
      if (next->running()->ends > deadline) {
        move_to(deadline);
        return fail(Errc::not_ready, "queue {}: piece {} is not done in time", queue.name(),
                    number);
      }
      end(*next);
    }
    return queue.outcome(number);
  }

  void run_some() override {
    if (SteppedQueue* const next = next_to_end()) end(*next);
  }

  void advance(Duration by) {
    const TimePoint until = after(by);
    for (auto* next = next_to_end(); next != nullptr && next->running()->ends <= until;
         next = next_to_end()) {
      end(*next);
    }
    move_to(until);
  }

 private:
  [[nodiscard]] TimePoint after(Duration time) const noexcept {
    return time > TimePoint::max() - clock_.now() ? TimePoint::max() : clock_.now() + time;
  }
  void move_to(TimePoint time) noexcept {
    if (time > clock_.now()) clock_.advance(time - clock_.now());
  }

  void end(SteppedQueue& queue) {
    move_to(queue.running()->ends);
    queue.end();
  }

  /// Begins what can begin now; returns the queue whose piece ends first, the older one of equals.
  SteppedQueue* next_to_end() {
    SteppedQueue* next = nullptr;
    for (SteppedQueue* const queue : queues_) {
      if (queue->can_begin()) {
        SteppedQueue::Running& running = queue->begin();
        running.ends = end_of(*queue, running);
      }
      const auto* const running = queue->running();
      if (running == nullptr) continue;
      if (next == nullptr || running->ends < next->running()->ends) next = queue;
    }
    return next;
  }

  [[nodiscard]] TimePoint end_of(SteppedQueue& queue, const SteppedQueue::Running& running) {
    TimePoint end = running.began;
    if (running.skipped || running.kind == Piece::Kind::wait_for) return end;
    if (running.kind == Piece::Kind::call) {
      end += costs_.cost_of_call ? costs_.cost_of_call(running.phase, running.bytes)
                                 : costs_.call[static_cast<std::size_t>(running.phase)];
    }
    const auto direction = Link::direction_of(running.phase);
    if (direction && queue.link() != nullptr && running.bytes != 0) {
      end = queue.link()->reserve(*direction, end, running.bytes);
    }
    return end;
  }

  SimCosts costs_;
  ManualClock clock_;
};

Result<std::unique_ptr<SimBackend>> SimBackend::create(const SimBackendOptions& options) {
  const LinkOptions& link = options.costs.link;
  if (link.bandwidth_bytes_per_second < 0 || link.latency < Duration{}) {
    return fail(Errc::invalid_argument, "link: bandwidth and latency must not be negative");
  }
  TERRACE_ASSIGN(auto memory, HostMemory::create({.huge_pages = HugePages::off, .touch = false}));
  return std::unique_ptr<SimBackend>(new SimBackend(options, std::move(memory)));
}

SimBackend::SimBackend(const SimBackendOptions& options, std::unique_ptr<HostMemory> memory)
    : timeline_(std::make_unique<Timeline>(options.costs)),
      link_(options.costs.link),
      device_("device.memory", options.device_memory_limit),
      host_("host.memory", options.host_memory_limit),
      memory_(std::move(memory)) {}

SimBackend::~SimBackend() = default;

const Ops& SimBackend::ops() const noexcept { return sim_ops(); }
const Clock& SimBackend::clock() const noexcept { return timeline_->clock(); }
void SimBackend::advance(Duration by) { timeline_->advance(by); }

Result<std::unique_ptr<Queue>> SimBackend::make_queue(const QueueOptions& options) {
  return std::make_unique<SteppedQueue>(SteppedQueueSetup{.name = options.name,
                                                          .stepper = timeline_.get(),
                                                          .threads = &serial_,
                                                          .clock = &timeline_->clock(),
                                                          .link = &link_,
                                                          .moves_bytes = false});
}

Result<std::unique_ptr<Queue>> SimBackend::make_host_queue(const QueueOptions& options) {
  return std::make_unique<SteppedQueue>(SteppedQueueSetup{.name = options.name,
                                                          .stepper = timeline_.get(),
                                                          .threads = &serial_,
                                                          .clock = &timeline_->clock(),
                                                          .moves_bytes = false});
}

MemoryUsage SimBackend::memory(Tier tier) const noexcept {
  if (tier == Tier::device) return device_.usage();
  return tier == Tier::host ? host_.usage() : MemoryUsage{};
}

void SimBackend::reset_peak() noexcept {
  device_.reset_peak();
  host_.reset_peak();
}

Result<std::byte*> SimBackend::do_allocate(const AllocationRequest& request) {
  TERRACE_TRY(ledger(request.tier).take(request.bytes, request.purpose));
  auto data = memory_->allocate(request.bytes, request.alignment);
  if (!data) ledger(request.tier).give(request.bytes, request.purpose);
  return data;
}

void SimBackend::do_release(std::byte* data, const AllocationRequest& request) noexcept {
  memory_->release(data, request.bytes);
  ledger(request.tier).give(request.bytes, request.purpose);
}

}  // namespace terrace::offload
