// Prefixes in a small store under random operations of several tenants: each look-up is counted in
// one way, sequences have the rows that they began with and compute what they would without a
// store, and nothing is left in the end.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "contract/fuzz.hpp"
#include "doubles/fault_store.hpp"
#include "doubles/memory_store.hpp"
#include "prefix/prefix_library.hpp"
#include "runtime/scenario.hpp"
#include "terrace/core/rng.hpp"
#include "terrace/tiers/chunk_library.hpp"

namespace terrace {
namespace {

using testing::Drive;
using testing::Scenario;
using testing::Traffic;

constexpr std::size_t chunk_tokens = 32;
constexpr std::size_t length_max = 200;
constexpr std::size_t families = 9;  ///< prefixes that have nothing in common
constexpr std::size_t sequences_max = 4;
constexpr std::array<const char*, 3> salts{"", "one", "another"};

/// A prefix: the tokens and rows of a tenant.
struct Family {
  std::string salt;
  std::vector<TokenId> tokens;
  Traffic traffic;

  /// Returns one that is the same before `position`, and another one from there on.
  [[nodiscard]] Family branch(std::size_t position, std::uint32_t number) const {
    Family other{salt, tokens, traffic.branch(position, 1'000 + number)};
    for (std::size_t i = position; i < tokens.size(); ++i) {
      other.tokens[i] = TokenId{100'000 + number};
    }
    return other;
  }
};

Family family_of(std::size_t number, const KvShape& shape) {
  Family family{salts[number % salts.size()], {}, Traffic(shape, 1 + number)};
  for (std::size_t i = 0; i < length_max; ++i) {
    // Tenants have the same tokens: only their salts keep their rows apart.
    family.tokens.push_back(TokenId{static_cast<std::uint32_t>(number / salts.size() * 1000 + i)});
  }
  return family;
}

class Life {
 public:
  explicit Life(std::uint64_t seed) : rng_(seed) {
    scenario_.runtime.policy = rng_.below(2) == 0 ? "streaming" : "pqcache";
    constexpr std::array<std::size_t, 3> host_bytes{0, 30'000, SIZE_MAX};
    scenario_.runtime.below_host = {.store = store_,
                                    .host_bytes = host_bytes[rng_.below(host_bytes.size())]};
    scenario_.runtime.prefixes = {.model = "weights", .chunk_tokens = chunk_tokens};
    for (std::size_t i = 0; i < families; ++i) {
      families_.push_back(family_of(i, scenario_.runtime.shape));
    }
    runtime_ = scenario_.open();
    Scenario without_store = scenario_;
    without_store.runtime.below_host = {};
    without_store.runtime.prefixes = {};
    reference_ = without_store.open();
  }

  void run(std::size_t steps) {
    for (std::size_t i = 0; i < steps && !::testing::Test::HasFatalFailure(); ++i) {
      do_one();
      expect_counters();
    }
    live_.clear();
    const auto library = tiers::ChunkLibrary::of(*store_);
    library->make_room(SIZE_MAX);
    EXPECT_EQ(runtime_->prefix_counters().bytes_resident, 0U);
    EXPECT_EQ(library->counters().chunks, tiers::TierGauges{});
    runtime_.reset();
    EXPECT_EQ(store_->usage().pages, 0U) << "nothing is left";
  }

  [[nodiscard]] const PrefixCounters& seen() const noexcept { return seen_; }

 private:
  struct Live {
    std::size_t number = 0;  ///< of the family that it began with
    std::unique_ptr<Family> family;
    std::unique_ptr<Drive> drive;
  };

  void do_one() {
    switch (rng_.below(10)) {
      case 0:
      case 1:
      case 2:
        return open();
      case 3:
      case 4:
        return publish();
      case 5:
        return fork_or_close();
      case 6:
        return check_rows();
      case 7:
        return change_course();
      case 8:
        return check_step();
      default:
        return disturb();
    }
  }

  [[nodiscard]] Live& any() { return live_[rng_.below(live_.size())]; }
  void close_one() {
    live_.erase(live_.begin() + static_cast<std::ptrdiff_t>(rng_.below(live_.size())));
  }

  /// Has calls of the store fail until disarm().
  void maybe_arm() {
    constexpr std::array verbs{PageVerb::get, PageVerb::get_part, PageVerb::put, PageVerb::find};
    constexpr std::array codes{Errc::io_error, Errc::corrupt, Errc::cancelled};
    if (rng_.below(3) > 0) return;
    store_->arm({.verb = verbs[rng_.below(verbs.size())],
                 .nth = 1 + rng_.below(12),
                 .error = codes[rng_.below(codes.size())]});
  }
  void disarm() { store_->arm({}); }

  void open() {
    if (live_.size() == sequences_max) close_one();
    // Mostly the prefix of another one, so that they share pages.
    const bool is_shared = !live_.empty() && rng_.below(3) > 0;
    const std::size_t number = is_shared ? any().number : rng_.below(families);
    const Family& family = families_[number];
    const std::size_t asked = rng_.below(length_max + 1);
    maybe_arm();
    auto opened = runtime_->open_sequence(
        {.tokens = std::span(family.tokens).first(asked), .salt = family.salt});
    disarm();
    ASSERT_TRUE(opened.has_value()) << opened.error().message();
    const std::size_t length = (*opened)->length();
    const std::size_t whole = asked / chunk_tokens * chunk_tokens;
    ASSERT_TRUE(length % chunk_tokens == 0 && length <= whole);
    ++expected_.look_ups;
    if (length == 0) {
      ++misses_;
    } else {
      ++(length == whole ? expected_.hits : expected_.partial);
    }
    expected_.tokens_asked += asked;
    expected_.tokens_found += length;
    add(number, family, std::move(*opened));
    if (length == 0) return;
    const Status done = live_.back().drive->steps(1);
    ASSERT_TRUE(done.has_value()) << done.error().message();
  }

  void add(std::size_t number, const Family& family, std::unique_ptr<Sequence> sequence) {
    Live live{.number = number, .family = std::make_unique<Family>(family), .drive = nullptr};
    live.drive = std::make_unique<Drive>(std::move(sequence), *runtime_, live.family->traffic);
    live_.push_back(std::move(live));
  }

  void publish() {
    if (live_.empty()) return;
    const Live& live = any();
    Drive& drive = *live.drive;
    const Family& family = *live.family;
    const std::size_t length = std::min(length_max, drive.sequence().length() + rng_.below(100));
    if (length > drive.sequence().length()) {
      const Status given = drive.prefill(length);
      ASSERT_TRUE(given.has_value()) << given.error().message();
    }
    maybe_arm();
    const auto report = drive.sequence().publish(
        {.tokens = std::span(family.tokens).first(std::min(length, drive.sequence().length())),
         .salt = family.salt});
    disarm();
    if (report) {
      EXPECT_LE(report->tokens, length);
    }
  }

  void fork_or_close() {
    if (live_.empty()) return;
    if (live_.size() == sequences_max || rng_.below(2) == 0) return close_one();
    const Live& live = any();
    auto twin = live.drive->sequence().fork();
    ASSERT_TRUE(twin.has_value()) << twin.error().message();
    add(live.number, Family(*live.family), std::move(*twin));
  }

  /// Has a fork of a sequence be cut, and go on in another way.
  void change_course() {
    if (live_.empty() || live_.size() == sequences_max) return;
    const Live& live = any();
    const std::size_t length = live.drive->sequence().length();
    if (length < 2) return;
    const std::size_t cut = 1 + rng_.below(length - 1);
    auto twin = live.drive->sequence().fork();
    ASSERT_TRUE(twin.has_value()) << twin.error().message();
    ASSERT_TRUE((*twin)->truncate(cut).has_value());
    add(live.number, live.family->branch(cut, ++branches_), std::move(*twin));
    const Status given = live_.back().drive->prefill(std::min(length_max, cut + rng_.below(60)));
    ASSERT_TRUE(given.has_value()) << given.error().message();
  }

  /// A policy without an index has the same outputs as without a store.
  void check_step() {
    if (live_.empty() || scenario_.runtime.policy != "streaming") return;
    const Live& live = any();
    Drive& drive = *live.drive;
    const std::size_t length = drive.sequence().length();
    if (length == 0 || length >= length_max) return;
    Drive alone(*reference_, live.family->traffic);
    ASSERT_TRUE(alone.prefill(length).has_value());
    ASSERT_TRUE(alone.steps(1).has_value());
    ASSERT_TRUE(drive.steps(1).has_value());
    ASSERT_TRUE(drive.outputs().back() == alone.outputs().back());
  }

  void check_rows() {
    if (!live_.empty()) any().drive->expect_all_rows_right();
  }

  /// Takes chunks away, from the library or behind its back.
  void disturb() {
    const std::size_t number = rng_.below(families);
    if (rng_.below(2) == 0) {
      tiers::ChunkLibrary::of(*store_)->make_room(1 + rng_.below(20'000));
      return;
    }
    const bool is_read =
        std::ranges::any_of(live_, [&](const Live& live) { return live.number == number; });
    const auto keys = keys_of(families_[number]);
    const tiers::ChunkKey& key = keys[rng_.below(keys.size())];
    if (is_read) return;
    const PageKey page = rng_.below(2) == 0
                             ? tiers::manifest_page_key(key)
                             : tiers::page_key(key, {.kind = tiers::PartKind::rows, .layer = 1});
    const std::uint64_t before = store_->usage().used_bytes;
    offload::StoreCalls calls(store_, std::chrono::seconds{10});
    ASSERT_TRUE(calls.erase({&page, 1}));
    lost_bytes_ += before - store_->usage().used_bytes;
  }

  [[nodiscard]] std::vector<tiers::ChunkKey> keys_of(const Family& family) const {
    const auto library =
        PrefixLibrary::open(scenario_.runtime, "", tiers::ChunkLibrary::of(*store_)).value();
    return library->names_of({.tokens = family.tokens, .salt = family.salt})->chunks;
  }

  void expect_counters() {
    const PrefixCounters now = runtime_->prefix_counters();
    const PrefixMisses& why = now.misses;
    ASSERT_EQ(now.look_ups, expected_.look_ups);
    ASSERT_EQ(now.hits, expected_.hits);
    ASSERT_EQ(now.partial, expected_.partial);
    ASSERT_EQ(
        why.never_stored + why.evicted + why.corrupt + why.late + why.other_namespace + why.no_room,
        misses_);
    ASSERT_EQ(now.tokens_asked, expected_.tokens_asked);
    ASSERT_EQ(now.tokens_found, expected_.tokens_found);
    ASSERT_LE(now.bytes_resident, store_->usage().used_bytes + lost_bytes_);
    seen_ = now;
  }

  Rng rng_;
  Scenario scenario_;
  std::shared_ptr<doubles::FaultStore> store_ =
      std::make_shared<doubles::FaultStore>(std::make_unique<doubles::MemoryStore>(
          doubles::MemoryStoreOptions{.capacity_bytes = 150'000}));
  std::vector<Family> families_;
  std::unique_ptr<Runtime> runtime_;
  std::unique_ptr<Runtime> reference_;
  std::uint32_t branches_ = 0;
  std::vector<Live> live_;
  PrefixCounters expected_;
  PrefixCounters seen_;
  std::uint64_t misses_ = 0;
  std::uint64_t lost_bytes_ = 0;  ///< behind the library's back, which may not know of it yet
};

TEST(PrefixFuzz, CountsAddUpAndRowsAreThoseOfTheTokens) {
  constexpr std::uint64_t steps_of_life = 250;
  const std::uint64_t seed = fuzz_seed(1);
  const std::uint64_t steps = std::clamp<std::uint64_t>(fuzz_steps() / 2, 1'000, 100'000);
  PrefixCounters seen;
  for (std::uint64_t step = 0; step < steps; step += steps_of_life) {
    SCOPED_TRACE(replay(seed, step));
    Life life(seed + step);
    ASSERT_NO_FATAL_FAILURE(life.run(steps_of_life));
    seen.hits += life.seen().hits;
    seen.partial += life.seen().partial;
    seen.misses.never_stored += life.seen().misses.never_stored;
    seen.misses.evicted += life.seen().misses.evicted;
    seen.misses.corrupt += life.seen().misses.corrupt;
    seen.misses.late += life.seen().misses.late;
    seen.chunks_evicted += life.seen().chunks_evicted;
  }
  if (steps < 4'000) return;  // too few to have seen all
  EXPECT_GT(std::min({seen.hits, seen.partial, seen.misses.never_stored, seen.misses.evicted,
                      seen.misses.corrupt, seen.misses.late, seen.chunks_evicted}),
            0U);
}

}  // namespace
}  // namespace terrace
