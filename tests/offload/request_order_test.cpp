#include "storage/request_order.hpp"

#include <gmock/gmock.h>

#include <algorithm>
#include <deque>
#include <map>
#include <vector>

#include "contract/fuzz.hpp"
#include "storage/waiting_transfers.hpp"
#include "terrace/core/rng.hpp"

namespace terrace::offload {
namespace {

/// Requests that are named by their numbers.
class Requests {
 public:
  PageWork make(PageVerb verb, std::uint64_t key, Priority priority) {
    auto batch = std::make_shared<PageBatch>();
    batch->options.priority = priority;
    PageRequest& request = requests_.emplace_back();
    request.verb = verb;
    request.key = {.low = key};
    request.bytes = requests_.size() - 1;
    return {.batch = std::move(batch), .request = &request};
  }

 private:
  std::deque<PageRequest> requests_;
};

std::uint64_t number_of(const PageWork& work) { return work.request->bytes; }

constexpr auto awaited = Priority::awaited;
constexpr auto background = Priority::background;

TEST(RequestOrder, BeginsAwaitedRequestsFirst) {
  Requests requests;
  RequestOrder order;
  for (std::uint64_t key = 0; key < 3; ++key)
    order.add(requests.make(PageVerb::put, key, background));
  for (std::uint64_t key = 3; key < 5; ++key) order.add(requests.make(PageVerb::get, key, awaited));
  std::vector<std::uint64_t> begun;
  while (auto work = order.next(true)) begun.push_back(number_of(*work));
  EXPECT_THAT(begun, testing::ElementsAre(3, 4, 0, 1, 2));
}

TEST(RequestOrder, BeginsWhatAnAwaitedRequestStandsBehind) {
  Requests requests;
  RequestOrder order;
  order.add(requests.make(PageVerb::put, 1, background));
  order.add(requests.make(PageVerb::put, 2, background));
  order.add(requests.make(PageVerb::get, 2, awaited));
  const auto first = order.next(/*with_background=*/false);
  ASSERT_TRUE(first);
  EXPECT_EQ(number_of(*first), 1U);
  EXPECT_FALSE(order.next(/*with_background=*/false));  // the put holds the key
  order.give_up(first->request->key);
  EXPECT_EQ(number_of(*order.next(/*with_background=*/false)), 2U);
  EXPECT_FALSE(order.next(/*with_background=*/false));
  EXPECT_EQ(number_of(*order.next(/*with_background=*/true)), 0U);
}

TEST(RequestOrder, GetsOfAPageAreSideBySideAndWhatDropsItIsAlone) {
  Requests requests;
  RequestOrder order;
  for (const PageVerb verb : {PageVerb::get, PageVerb::get_part, PageVerb::put}) {
    order.add(requests.make(verb, 1, awaited));
  }
  auto first = order.next(true);
  const auto second = order.next(true);
  EXPECT_EQ(number_of(*second), 1U);
  EXPECT_FALSE(order.next(true));
  first->drops_page = true;
  order.begin_again(*first);
  EXPECT_FALSE(order.next(true));  // the second is still at the page
  order.give_up({.low = 1});
  const auto again = order.next(true);
  ASSERT_TRUE(again);
  EXPECT_EQ(number_of(*again), 0U);
  EXPECT_FALSE(order.next(true));
  order.give_up({.low = 1});
  EXPECT_EQ(number_of(*order.next(true)), 2U);
}

/// All requests in one list, searched from its front.
class PlainOrder {
 public:
  struct Entry {
    PageWork work;
    bool has_begun = false;
  };
  void add(PageWork work) { entries_.push_back({std::move(work)}); }

  /// Whether a request may begin now.
  [[nodiscard]] bool may_begin(const PageWork& work) const {
    for (const Entry& each : entries_) {
      if (each.work.request == work.request) return !each.has_begun;
      if (each.work.request->key != work.request->key) continue;
      if (!each.has_begun || !each.work.shares_key() || !work.shares_key()) return false;
    }
    return false;
  }
  /// Whether somebody waits for it, or for one behind it.
  [[nodiscard]] bool is_awaited(const PageWork& work) const {
    return std::ranges::any_of(entries_, [&](const Entry& each) {
      return !each.has_begun && each.work.request->key == work.request->key &&
             !each.work.is_background();
    });
  }
  /// Whether one may begin that is awaited, or whichever.
  [[nodiscard]] bool any(bool is_awaited_one) const {
    return std::ranges::any_of(entries_, [&](const Entry& each) {
      return may_begin(each.work) && (!is_awaited_one || is_awaited(each.work));
    });
  }
  void begin(const PageWork& work) { find(work)->has_begun = true; }
  void erase(const PageWork& work) { entries_.erase(find(work)); }
  [[nodiscard]] std::vector<PageWork> begun() const {
    std::vector<PageWork> all;
    for (const Entry& each : entries_) {
      if (each.has_begun) all.push_back(each.work);
    }
    return all;
  }
  [[nodiscard]] std::size_t size() const { return entries_.size(); }
  void erase_unbegun(std::uint64_t remainder) {
    std::erase_if(entries_, [&](const Entry& each) {
      return !each.has_begun && number_of(each.work) % 3 == remainder;
    });
  }

 private:
  std::deque<Entry>::iterator find(const PageWork& work) {
    return std::ranges::find_if(
        entries_, [&](const Entry& each) { return each.work.request == work.request; });
  }
  std::deque<Entry> entries_;
};

TEST(RequestOrder, IsAListThatIsSearchedFromItsFront) {
  const std::uint64_t seed = fuzz_seed(23);
  Rng rng(seed);
  Requests requests;
  RequestOrder order;
  PlainOrder plain;
  constexpr PageVerb verbs[] = {PageVerb::get, PageVerb::get_part, PageVerb::find, PageVerb::put,
                                PageVerb::erase};
  for (std::uint64_t step = 0; step < std::min<std::uint64_t>(fuzz_steps(), 20'000); ++step) {
    SCOPED_TRACE(replay(seed, step));
    const std::uint64_t drawn = rng.below(100);
    if (drawn < 40 && plain.size() < 60) {
      PageWork work = requests.make(verbs[rng.below(5)], rng.below(8),
                                    rng.below(3) == 0 ? awaited : background);
      plain.add(work);
      order.add(work);
    } else if (drawn < 70) {
      const bool with_background = rng.below(2) == 0;
      const bool any_awaited = plain.any(true);
      const auto work = order.next(with_background);
      ASSERT_EQ(work.has_value(), any_awaited || (with_background && plain.any(false)));
      if (!work) continue;
      ASSERT_TRUE(plain.may_begin(*work));
      ASSERT_EQ(plain.is_awaited(*work), any_awaited);
      plain.begin(*work);
    } else if (drawn < 98) {
      const std::vector<PageWork> begun = plain.begun();
      if (begun.empty()) continue;
      const PageWork& ended = begun[rng.below(begun.size())];
      plain.erase(ended);
      order.give_up(ended.request->key);
    } else {
      const std::uint64_t remainder = rng.below(3);
      order.take_out([&](const PageWork& work) { return number_of(work) % 3 == remainder; });
      plain.erase_unbegun(remainder);
    }
  }
}

TEST(WaitingTransfers, GivesThoseInTheBackgroundLast) {
  WaitingTransfers waiting;
  std::vector<FileTransfer> all;
  for (std::uint64_t tag = 0; tag < 6; ++tag) {
    all.push_back({.tag = tag, .is_background = tag % 2 == 0});
  }
  waiting.add(std::span(all).first(4));
  std::vector<std::uint64_t> taken{waiting.take().tag};
  waiting.add(std::span(all).last(2));
  while (!waiting.empty()) taken.push_back(waiting.take().tag);
  EXPECT_THAT(taken, testing::ElementsAre(1, 3, 5, 0, 2, 4));
}

}  // namespace
}  // namespace terrace::offload
