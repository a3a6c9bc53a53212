#include "doubles/seeded_scheduler.hpp"

#include <utility>

#include "doubles/stepped_queue.hpp"
#include "doubles/wrapped_backend.hpp"

namespace terrace::doubles {
namespace {

class SeededBackend final : public WrappedBackend {
 public:
  SeededBackend(std::unique_ptr<Backend> host, Stepper& stepper)
      : WrappedBackend(std::move(host)), stepper_(stepper) {}

  [[nodiscard]] Result<std::unique_ptr<Queue>> make_queue(const QueueOptions& options) override {
    return std::make_unique<SteppedQueue>(options.name, stepper_, device_threads(), clock());
  }
  [[nodiscard]] Result<std::unique_ptr<Queue>> make_host_queue(
      const QueueOptions& options) override {
    return std::make_unique<SteppedQueue>(options.name, stepper_, own_thread_, clock());
  }

 private:
  Stepper& stepper_;
  Serial own_thread_;  // of host queues
};

}  // namespace

SeededScheduler::SeededScheduler(std::uint64_t seed) : stepper_(std::make_unique<Stepper>(seed)) {}
SeededScheduler::~SeededScheduler() = default;
std::unique_ptr<Backend> SeededScheduler::wrap(std::unique_ptr<Backend> host) {
  return std::make_unique<SeededBackend>(std::move(host), *stepper_);
}
void SeededScheduler::observe(PieceObserver* observer) noexcept { stepper_->observe(observer); }
bool SeededScheduler::step() { return stepper_->step(); }
std::size_t SeededScheduler::steps() const noexcept { return stepper_->steps(); }

}  // namespace terrace::doubles
