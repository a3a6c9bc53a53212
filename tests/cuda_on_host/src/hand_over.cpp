#include "hand_over.hpp"

#include "sanitizers.hpp"

namespace cuda_on_host {
namespace {

class Guard {
 public:
  explicit Guard(std::atomic_flag& flag) : flag_(flag) {
    while (flag_.test_and_set(std::memory_order_acquire)) flag_.wait(true);
  }
  ~Guard() {
    flag_.clear(std::memory_order_release);
    flag_.notify_one();
  }

 private:
  std::atomic_flag& flag_;
};

}  // namespace

void HandOver::push(Work* work) {
  order_before(reinterpret_cast<char*>(work));
  {
    const Guard guard(busy_);
    work_.push_back(work);
    pushed_.fetch_add(1);
  }
  bell_.fetch_add(1);
  bell_.notify_one();
}

HandOver::Work* HandOver::pop() {
  while (true) {
    const std::uint32_t rung = bell_.load();
    {
      const Guard guard(busy_);
      if (!work_.empty()) {
        Work* const work = work_.front();
        work_.pop_front();
        order_after(reinterpret_cast<char*>(work));
        return work;
      }
    }
    if (stopping_.load()) return nullptr;
    bell_.wait(rung);
  }
}

void HandOver::finish() {
  order_before(&finish_order_);
  finished_.fetch_add(1);
  finished_.notify_all();
}

void HandOver::wait_until_finished() {
  const std::uint32_t until = pushed_.load();
  // Counts may wrap; their difference does not.
  for (std::uint32_t now = finished_.load(); static_cast<std::int32_t>(until - now) > 0;
       now = finished_.load()) {
    finished_.wait(now);
  }
  order_after(&finish_order_);
}

void HandOver::stop() {
  stopping_.store(true);
  bell_.fetch_add(1);
  bell_.notify_one();
}

}  // namespace cuda_on_host
