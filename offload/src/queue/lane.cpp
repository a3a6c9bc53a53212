#include "lane.hpp"

#include <sys/prctl.h>

#include <algorithm>
#include <exception>

#include "progress.hpp"
#include "spin.hpp"
#include "terrace/core/assert.hpp"

namespace terrace::offload {
namespace {

constexpr std::size_t pieces_a_turn = 4;  ///< then the next member has its turn

}  // namespace

Result<std::shared_ptr<Lane>> Lane::create(const std::string& name, Duration spin) {
  try {
    std::shared_ptr<Lane> lane(new Lane(spin));
    lane->thread_ = Thread([self = lane.get()] { self->serve(); });
    lane->thread_.set_name(name.substr(0, 15).c_str());
    return lane;
  } catch (const std::exception&) {
    return fail(Errc::out_of_memory, "queue {}: the system has no thread left", name);
  }
}

Lane::~Lane() {
  if (!thread_.joinable()) return;
  {
    const std::scoped_lock lock(mutex_);
    TERRACE_ASSERT(announced_.empty() && in_turn_ == nullptr);
    ending_ = true;
    announcements_.fetch_add(1, std::memory_order_seq_cst);
  }
  announcements_.notify_one();
  thread_.join();
}

void Lane::announce(LaneMember& member) {
  {
    const std::scoped_lock lock(mutex_);
    announced_.push_back(&member);
    announcements_.fetch_add(1, std::memory_order_seq_cst);
  }
  // Sequentially consistent against the thread's: it sees the announcement, or is seen asleep.
  if (asleep_.load(std::memory_order_seq_cst)) announcements_.notify_one();
}

void Lane::leave(LaneMember& member) {
  std::unique_lock lock(mutex_);
  turn_over_.wait(lock, [&] { return in_turn_ != &member; });
  const auto place = std::ranges::find(announced_, &member);
  if (place == announced_.end()) return;
  announced_.erase(place);
  lock.unlock();
  // Work of other members may take long: the rest of the member's turns are taken here.
  while (member.take_turn(pieces_a_turn)) continue;
}

LaneMember* Lane::next() {
  while (true) {
    const std::uint32_t seen = announcements_.load(std::memory_order_seq_cst);
    {
      const std::scoped_lock lock(mutex_);
      if (!announced_.empty()) {
        LaneMember* const member = announced_.front();
        announced_.pop_front();
        in_turn_ = member;
        return member;
      }
      if (ending_) return nullptr;
    }
    const auto announced = [&] { return announcements_.load(std::memory_order_acquire) != seen; };
    if (spin_until(announced, deadline_after(spin_))) continue;
    asleep_.store(true, std::memory_order_seq_cst);
    announcements_.wait(seen, std::memory_order_seq_cst);
    asleep_.store(false, std::memory_order_seq_cst);
  }
}

void Lane::serve() {
  // Work that is timed to microseconds would be blurred by the default timer slack of 50 us.
  prctl(PR_SET_TIMERSLACK, 1000UL);
  while (LaneMember* const member = next()) {
    const bool again = member->take_turn(pieces_a_turn);
    {
      const std::scoped_lock lock(mutex_);
      in_turn_ = nullptr;
      if (again) announced_.push_back(member);
    }
    turn_over_.notify_all();
  }
}

}  // namespace terrace::offload
