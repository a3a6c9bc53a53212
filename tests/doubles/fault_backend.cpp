#include "doubles/fault_backend.hpp"

#include <algorithm>
#include <array>
#include <mutex>
#include <thread>
#include <utility>

#include "terrace/core/rng.hpp"

namespace terrace::doubles {

/// The plan under way.
class FaultBackend::Faults {
 public:
  struct Verdict {
    bool fails = false;
    Errc error = Errc::device_error;
    std::uint64_t nth = 0;
    Duration delay{};
  };

  void arm(const FaultPlan& plan) {
    const std::scoped_lock lock(mutex_);
    plan_ = plan;
    rng_ = Rng(plan.seed);
    seen_ = {};
    allocations_ = 0;
    counters_ = {};
  }

  [[nodiscard]] FaultCounters counters() const {
    const std::scoped_lock lock(mutex_);
    return counters_;
  }

  Verdict judge_piece(Phase phase, std::string_view queue) {
    const std::scoped_lock lock(mutex_);
    Verdict verdict{.error = plan_.piece_error, .nth = ++seen_[static_cast<std::size_t>(phase)]};
    verdict.fails = std::ranges::any_of(plan_.pieces, [&](const PieceFault& fault) {
      return fault.phase == phase && (fault.nth == 0 || fault.nth == verdict.nth) &&
             (fault.queue.empty() || fault.queue == queue);
    });
    if (plan_.piece_probability > 0 && rng_.uniform() < plan_.piece_probability) {
      verdict.fails = true;
    }
    if (plan_.delay_phase.value_or(phase) == phase) verdict.delay = plan_.delay;
    counters_.pieces_failed += verdict.fails ? 1U : 0U;
    counters_.pieces_delayed += verdict.delay > Duration{} ? 1U : 0U;
    return verdict;
  }

  Status judge_allocation(const AllocationRequest& request) {
    const std::scoped_lock lock(mutex_);
    if (++allocations_ != plan_.allocation_nth) return {};
    ++counters_.allocations_failed;
    return fail(Errc::out_of_memory, "fault injected: allocation {} of {} bytes in tier '{}'",
                allocations_, request.bytes, to_string(request.tier));
  }

 private:
  mutable std::mutex mutex_;
  FaultPlan plan_;
  Rng rng_{0};
  std::array<std::uint64_t, phase_count> seen_{};
  std::uint64_t allocations_ = 0;
  FaultCounters counters_;
};

/// Puts a failing or a slow piece in place of, or before, the one that is meant.
class FaultBackend::FaultQueue final : public Queue {
 public:
  FaultQueue(std::unique_ptr<Queue> inner, Faults& faults)
      : inner_(std::move(inner)), faults_(&faults) {}

  [[nodiscard]] std::string_view name() const noexcept override { return inner_->name(); }
  [[nodiscard]] Parallel& threads() noexcept override { return inner_->threads(); }
  [[nodiscard]] Status clear_error() override { return inner_->clear_error(); }
  [[nodiscard]] QueueCounters counters() const override { return inner_->counters(); }

 private:
  Result<Ticket> do_copy(Phase phase, std::span<const CopyExtent> extents) override {
    TERRACE_ASSIGN(const auto verdict, judge(phase));
    return outer(verdict.fails ? enqueue_failure(phase, verdict) : inner_->copy(phase, extents));
  }
  Result<Ticket> do_call(Phase phase, Task task) override {
    TERRACE_ASSIGN(const auto verdict, judge(phase));
    return outer(verdict.fails ? enqueue_failure(phase, verdict)
                               : inner_->call(phase, std::move(task)));
  }
  Result<Ticket> do_launch(Phase phase, Task task) override {
    TERRACE_ASSIGN(const auto verdict, judge(phase));
    return outer(verdict.fails ? enqueue_failure(phase, verdict)
                               : inner_->launch(phase, std::move(task)));
  }
  Result<Ticket> do_record() override { return outer(inner_->record()); }
  Status do_wait_for(Ticket ticket) override {
    const auto* const other = dynamic_cast<FaultQueue*>(ticket.queue);
    if (other == nullptr) return inner_->wait_for(ticket);
    return inner_->wait_for({other->inner_.get(), ticket.number});
  }
  Status do_wait_for_event(const Event& event) override { return inner_->wait_for(event); }
  Result<bool> do_poll(Ticket ticket) override {
    return inner_->poll({inner_.get(), ticket.number});
  }
  Status do_wait(Ticket ticket, Duration timeout) override {
    return inner_->wait({inner_.get(), ticket.number}, timeout);
  }

  Result<Faults::Verdict> judge(Phase phase) {
    const Faults::Verdict verdict = faults_->judge_piece(phase, inner_->name());
    if (verdict.delay > Duration{}) {
      const auto late = [delay = verdict.delay] {
        // tidy-allow(library_calls): a made-to-order delay is real time
        std::this_thread::sleep_for(delay);
        return std::size_t{0};
      };
      if (auto ticket = inner_->call(phase, late); !ticket) return tl::unexpected(ticket.error());
    }
    return verdict;
  }
  Result<Ticket> enqueue_failure(Phase phase, const Faults::Verdict& verdict) {
    return inner_->call(phase, [phase, verdict]() -> Result<std::size_t> {
      return fail(verdict.error, "fault injected: piece {} of phase {}", verdict.nth,
                  to_string(phase));
    });
  }
  /// A ticket of the inner queue, as one of this queue: numbers are the same.
  Result<Ticket> outer(Result<Ticket> ticket) {
    if (ticket) ticket->queue = this;
    return ticket;
  }

  std::unique_ptr<Queue> inner_;
  Faults* faults_;
};

std::unique_ptr<FaultBackend> FaultBackend::wrap(std::unique_ptr<Backend> inner) {
  return std::unique_ptr<FaultBackend>(new FaultBackend(std::move(inner)));
}

FaultBackend::FaultBackend(std::unique_ptr<Backend> inner)
    : WrappedBackend(std::move(inner)), faults_(std::make_unique<Faults>()) {}

FaultBackend::~FaultBackend() = default;

void FaultBackend::arm(const FaultPlan& plan) { faults_->arm(plan); }
FaultCounters FaultBackend::counters() const { return faults_->counters(); }

Result<std::unique_ptr<Queue>> FaultBackend::make_queue(const QueueOptions& options) {
  TERRACE_ASSIGN(auto queue, inner().make_queue(options));
  return std::make_unique<FaultQueue>(std::move(queue), *faults_);
}

Result<std::unique_ptr<Queue>> FaultBackend::make_host_queue(const QueueOptions& options) {
  TERRACE_ASSIGN(auto queue, inner().make_host_queue(options));
  return std::make_unique<FaultQueue>(std::move(queue), *faults_);
}

Result<std::byte*> FaultBackend::do_allocate(const AllocationRequest& request) {
  TERRACE_TRY(faults_->judge_allocation(request));
  return WrappedBackend::do_allocate(request);
}

}  // namespace terrace::doubles
