#include "terrace/offload/seeded_scheduler.hpp"

#include <chrono>

#include "stepped_queue.hpp"
#include "terrace/core/rng.hpp"

namespace terrace::offload {

class SeededScheduler::State final : public Stepper {
 public:
  explicit State(std::uint64_t seed) : rng_(seed) {}

  bool step() {
    able_.clear();
    for (SteppedQueue* const queue : queues_) {
      if (queue->can_begin()) able_.push_back(queue);
    }
    if (able_.empty()) return false;
    run(*able_[rng_.below(able_.size())]);
    ++steps_;
    return true;
  }

  Status run_until(SteppedQueue& queue, std::uint64_t number, Duration timeout) override {
    const TimePoint deadline = deadline_after(timeout);
    while (!queue.is_done(number)) {
      if (std::chrono::steady_clock::now() >= deadline) {
        return fail(Errc::not_ready, "queue {}: piece {} is not done in time", queue.name(),
                    number);
      }
      if (!step()) return deadlock(queue, number);
    }
    return queue.outcome(number);
  }

  void run_some() override { step(); }

  void observe(PieceObserver* observer) noexcept { observer_ = observer; }
  [[nodiscard]] std::size_t steps() const noexcept { return steps_; }

 private:
  void run(SteppedQueue& queue) {
    const Piece& piece = queue.front();
    const PieceView view{
        .queue = queue.name(), .phase = piece.phase, .is_copy = piece.kind == Piece::Kind::copy};
    const bool shown =
        observer_ != nullptr && piece.kind != Piece::Kind::wait_for && !queue.failed();
    if (shown) observer_->before(view);
    queue.begin();
    if (shown) observer_->after(view);
    queue.end();
  }

  Rng rng_;
  std::size_t steps_ = 0;
  PieceObserver* observer_ = nullptr;
  std::vector<SteppedQueue*> able_;  // kept for its capacity
};

SeededScheduler::SeededScheduler(std::uint64_t seed) : state_(std::make_unique<State>(seed)) {}
SeededScheduler::~SeededScheduler() = default;
void SeededScheduler::observe(PieceObserver* observer) noexcept { state_->observe(observer); }
bool SeededScheduler::step() { return state_->step(); }
std::size_t SeededScheduler::steps() const noexcept { return state_->steps(); }
Stepper& SeededScheduler::stepper() noexcept { return *state_; }

}  // namespace terrace::offload
