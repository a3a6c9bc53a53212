// Random calls, each compared with a model of plain maps (directory_model.hpp).
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "contract/fuzz.hpp"
#include "terrace/core/rng.hpp"
#include "tiers/directory_model.hpp"
#include "tiers/made_directory.hpp"

namespace terrace::tiers {
namespace {

constexpr std::size_t chains = 12;
constexpr std::size_t chunks_of_chain = 8;
constexpr std::uint32_t tenants = 3;

bool same(const FreedCopy& a, const FreedCopy& b) {
  return a.key == b.key && a.tier == b.tier && a.place == b.place && a.bytes == b.bytes &&
         a.tenant == b.tenant && a.was_last == b.was_last;
}

/// Whether the directory may answer `found` where the model answers `expected`: it has forgotten
/// why the chunk went.
bool is_forgotten(LookUpOutcome expected, LookUpOutcome found) {
  const bool is_gone = expected == LookUpOutcome::miss_evicted ||
                       expected == LookUpOutcome::miss_corrupt ||
                       expected == LookUpOutcome::miss_no_room;
  return is_gone && (found == LookUpOutcome::miss_never_stored ||
                     found == LookUpOutcome::miss_other_namespace);
}

/// One run of random calls. Each function returns after a failed expectation at the latest.
class Run {
 public:
  Run(const DirectoryOptions& options, bool forgets, std::uint64_t seed)
      : made_(options), model_(options), forgets_(forgets), rng_(seed) {
    for (std::size_t chain = 0; chain < chains; ++chain) {
      keys_.push_back(some_keys(chunks_of_chain, 1 + 1000 * chain));
    }
  }

  void step() {
    now_ += Duration(static_cast<Duration::rep>(rng_.below(400'000'000)));
    switch (rng_.below(16)) {
      case 0:
      case 1:
        return find();
      case 2:
        return made_.directory.touch(pick_chain(), now_), model_.touch(last_chain_, now_);
      case 3:
      case 4:
      case 5:
      case 6:
        return reserve();
      case 7:
      case 8:
        return publish(pick_copy(DirectoryModel::State::reserved));
      case 9:
        return cancel();
      case 10:
      case 11:
        return rng_.below(2) == 0 ? lease() : end_lease();
      case 12:
        return pin_or_unpin();
      case 13:
        return drop_or_collect();
      case 14:
        return evict();
      default:
        return set_limit();
    }
  }

  void compare_all() {
    // The directory ends leases that have expired when it is called next.
    collect();
    for (const Tier tier : stored_tiers) {
      ASSERT_EQ(made_.directory.gauges(tier), model_.gauges({}, tier));
      for (std::uint16_t tenant = 0; tenant < tenants; ++tenant) {
        ASSERT_EQ(made_.directory.gauges(TenantId{tenant}, tier),
                  model_.gauges(TenantId{tenant}, tier));
      }
    }
    ASSERT_EQ(made_.directory.usage(), model_.usage());
    for (std::uint16_t tenant = 0; tenant < tenants; ++tenant) {
      ASSERT_EQ(made_.directory.counters(TenantId{tenant}), model_.counters(TenantId{tenant}));
    }
    const LookUpCounters all = made_.directory.counters();
    ASSERT_EQ(all.look_ups, look_ups_);
    ASSERT_EQ(std::accumulate(all.ended.begin(), all.ended.end(), std::uint64_t{0}), look_ups_);
    for (const auto& chain : keys_) {
      for (const ChunkKey& key : chain) ASSERT_NO_FATAL_FAILURE(compare(key));
    }
    // Another process, that maps the block elsewhere.
    const AlignedBlock copy(made_.block.span());
    const auto opened = Directory::open(copy.span());
    ASSERT_TRUE(opened) << opened.error().message();
    ASSERT_EQ(opened->usage(), model_.usage());
  }

  [[nodiscard]] const LookUpCounters counters() const { return made_.directory.counters(); }

 private:
  void compare(const ChunkKey& key) {
    const auto found = made_.directory.chunk(key);
    const auto expected = model_.chunks().find(key);
    const bool is_there = expected != model_.chunks().end() && expected->second.is_there();
    ASSERT_EQ(found.has_value(), is_there);
    if (!found) return;
    ASSERT_EQ(found->tenant, expected->second.tenant);
    ASSERT_EQ(found->uses, expected->second.uses);
    ASSERT_EQ(found->last_use.time_since_epoch().count() >> 28, expected->second.last_use);
    for (std::size_t t = 0; t < stored_tier_count; ++t) {
      const auto copy = expected->second.copies.find(stored_tiers[t]);
      const bool has_copy = copy != expected->second.copies.end() &&
                            copy->second.state == DirectoryModel::State::resident;
      ASSERT_EQ(found->copies[t].has_value(), has_copy);
      if (!has_copy) continue;
      ASSERT_EQ(found->copies[t]->handle, copy->second.handle);
      ASSERT_EQ(found->copies[t]->place, copy->second.place);
      ASSERT_EQ(found->copies[t]->bytes, copy->second.bytes);
      ASSERT_EQ(found->copies[t]->checksum, copy->second.checksum);
      ASSERT_EQ(found->copies[t]->pins, copy->second.pins);
      ASSERT_EQ(found->copies[t]->leases, model_.leases_of(key, stored_tiers[t]));
    }
  }

  std::span<const ChunkKey> pick_chain() {
    chain_ = rng_.below(chains);
    last_chain_ = std::span(keys_[chain_]).first(1 + rng_.below(chunks_of_chain));
    return last_chain_;
  }
  TenantId pick_tenant() { return TenantId{static_cast<std::uint16_t>(rng_.below(tenants))}; }
  Tier pick_tier() { return stored_tiers[rng_.below(stored_tier_count)]; }
  ChunkKey pick_key() { return pick_chain()[rng_.below(last_chain_.size())]; }
  /// A copy that is there in this state, if there is one; now and then one that was there once.
  CopyHandle pick_copy(DirectoryModel::State state) {
    std::vector<CopyHandle> there;
    for (const auto& [key, chunk] : model_.chunks()) {
      for (const auto& [tier, copy] : chunk.copies) {
        if (copy.state == state) there.push_back(copy.handle);
      }
    }
    if (!there.empty() && rng_.below(4) != 0) return there[rng_.below(there.size())];
    return handles_.empty() ? CopyHandle{} : handles_[rng_.below(handles_.size())];
  }

  void find() {
    auto keys = pick_chain();
    const ChunkKey unknown{.high = rng_(), .low = rng_()};
    if (rng_.below(8) == 0) keys = std::span(&unknown, 1);
    const Digest root = root_numbered(static_cast<unsigned>(chain_ % 4));
    const FindRequest request{.root = root, .tenant = pick_tenant(), .keys = keys, .now = now_};
    const FoundRun expected = model_.find(request);
    const auto found = made_.directory.find(request);
    ++look_ups_;
    ASSERT_TRUE(found);
    ASSERT_EQ(found->chunks, expected.chunks);
    if (forgets_ && is_forgotten(expected.outcome, found->outcome)) {
      model_.amend(request.tenant, expected.outcome, found->outcome);
      model_.forget(keys.front());
    } else {
      ASSERT_EQ(to_string(found->outcome), to_string(expected.outcome));
    }
    if (rng_.below(8) != 0) return;
    made_.directory.amend(request.tenant, found->outcome, LookUpOutcome::miss_late);
    model_.amend(request.tenant, found->outcome, LookUpOutcome::miss_late);
  }

  void reserve() {
    const ChunkKey key = pick_key();
    const Digest root = root_numbered(static_cast<unsigned>(chain_ % 3));
    const ReserveRequest request{.root = root,
                                 .key = key,
                                 .tier = pick_tier(),
                                 .tenant = pick_tenant(),
                                 .bytes = 1 + rng_.below(100)};
    const auto expected = model_.reserve(request);
    const auto reserved = made_.directory.reserve(request);
    ASSERT_EQ(reserved.has_value(), expected.has_value());
    if (!reserved) {
      ASSERT_EQ(reserved.error().code, Errc::out_of_memory);
      return;
    }
    ASSERT_EQ(reserved->kind, *expected);
    if (reserved->kind != Reserved::Kind::reserved) return;
    model_.name(request, reserved->handle);
    handles_.push_back(reserved->handle);
    if (rng_.below(2) == 0) publish(reserved->handle);
  }

  void publish(CopyHandle handle) {
    const PublishedCopy published{.place = rng_(), .checksum = rng_(), .now = now_};
    ASSERT_EQ(made_.directory.publish(handle, published), model_.publish(handle, published));
    if (forgets_) take_uses_over();
  }
  /// The uses before a chunk was evicted may be forgotten, too.
  void take_uses_over() {
    for (const auto& chain : keys_) {
      for (const ChunkKey& key : chain) {
        const auto found = made_.directory.chunk(key);
        if (!found) continue;
        ASSERT_LE(found->uses, model_.chunks().at(key).uses);
        model_.set_uses(key, found->uses);
      }
    }
  }

  void cancel() {
    const CopyHandle handle = pick_copy(DirectoryModel::State::reserved);
    ASSERT_EQ(made_.directory.cancel(handle), model_.cancel(handle));
  }

  void lease() {
    const LeaseRequest request{
        .key = pick_key(),
        .tier = pick_tier(),
        .now = now_,
        .until = now_ + Duration(1 + static_cast<Duration::rep>(rng_.below(20'000'000'000)))};
    const bool is_there = model_.can_lease(request);
    const auto lease = made_.directory.lease(request);
    if (is_there && model_.usage().leases == leases_max) {
      ASSERT_FALSE(lease);
      ASSERT_EQ(lease.error().code, Errc::out_of_memory);
      return;
    }
    ASSERT_TRUE(lease);
    ASSERT_EQ(lease->has_value(), is_there);
    if (!is_there) return;
    model_.name(request, (*lease)->handle);
    leases_.push_back((*lease)->handle);
  }

  void end_lease() {
    if (leases_.empty()) return;
    const LeaseHandle handle = leases_[rng_.below(leases_.size())];
    ASSERT_EQ(made_.directory.check(handle, now_), model_.check(handle, now_));
    ASSERT_EQ(made_.directory.end_lease(handle, now_), model_.end_lease(handle, now_));
    if (leases_.size() > 40) leases_.erase(leases_.begin());
  }

  void pin_or_unpin() {
    const CopyHandle handle = pick_copy(DirectoryModel::State::resident);
    if (rng_.below(3) == 0) {
      ASSERT_EQ(made_.directory.pin(handle).value(), model_.pin(handle));
    } else {
      ASSERT_EQ(made_.directory.unpin(handle), model_.unpin(handle));
    }
  }

  void drop_or_collect() {
    if (rng_.below(3) == 0) return collect();
    const CopyHandle handle = pick_copy(DirectoryModel::State::resident);
    const DropReason reason = rng_.below(2) == 0 ? DropReason::evicted : DropReason::corrupt;
    ASSERT_EQ(made_.directory.drop(handle, reason), model_.drop(handle, reason));
  }

  void collect() {
    std::vector<FreedCopy> freed;
    const std::uint64_t bytes =
        made_.directory.collect(now_, [&](const FreedCopy& copy) { freed.push_back(copy); });
    compare_freed(freed, model_.collect(now_), bytes);
  }

  void evict() {
    EvictRequest request{.tier = pick_tier(), .bytes = rng_.below(250), .now = now_};
    if (rng_.below(2) == 0) request.tenant = pick_tenant();
    std::vector<FreedCopy> freed;
    const std::uint64_t bytes =
        made_.directory.evict(request, [&](const FreedCopy& copy) { freed.push_back(copy); });
    compare_freed(freed, model_.evict(request), bytes);
  }

  static void compare_freed(const std::vector<FreedCopy>& freed,
                            const std::vector<FreedCopy>& expected, std::uint64_t bytes) {
    ASSERT_TRUE(std::ranges::equal(freed, expected, same));
    ASSERT_EQ(bytes, std::accumulate(freed.begin(), freed.end(), std::uint64_t{0},
                                     [](std::uint64_t sum, const FreedCopy& copy) {
                                       return sum + copy.bytes;
                                     }));
  }

  void set_limit() {
    const Tier tier = pick_tier();
    const std::uint64_t bytes = rng_.below(4) == 0 ? Directory::no_limit : 500 + rng_.below(2000);
    if (rng_.below(2) == 0) {
      made_.directory.set_limit(tier, bytes);
      model_.limits[tier] = bytes;
    } else {
      const TenantId tenant = pick_tenant();
      made_.directory.set_quota(tenant, tier, bytes);
      model_.quotas[{tenant, tier}] = bytes;
    }
  }

 public:
  static constexpr std::uint64_t leases_max = 12;

 private:
  MadeDirectory made_;
  DirectoryModel model_;
  bool forgets_;
  Rng rng_;
  TimePoint now_ = {};
  std::uint64_t look_ups_ = 0;
  std::vector<std::vector<ChunkKey>> keys_;
  std::size_t chain_ = 0;
  std::span<const ChunkKey> last_chain_;
  std::vector<CopyHandle> handles_;
  std::vector<LeaseHandle> leases_;
};

void run_against_the_model(DirectoryOptions options, bool forgets, std::uint64_t default_seed) {
  const std::uint64_t seed = fuzz_seed(default_seed);
  options.leases_max = Run::leases_max;
  options.tenants_max = tenants;
  options.seed = seed;
  Run run(options, forgets, seed);
  for (std::uint64_t step = 0; step < fuzz_steps(); ++step) {
    SCOPED_TRACE(replay(seed, step));
    run.step();
    if (testing::Test::HasFatalFailure()) return;
    if (step % 64 != 0) continue;
    run.compare_all();
    if (testing::Test::HasFatalFailure()) return;
  }
  run.compare_all();
  if (fuzz_steps() < 20'000) return;  // too few to have seen all
  for (std::size_t outcome = 0; outcome < look_up_outcome_count; ++outcome) {
    // A directory does not know what reading takes.
    if (static_cast<LookUpOutcome>(outcome) == LookUpOutcome::miss_slower) continue;
    EXPECT_GT(run.counters().ended[outcome], 0U) << to_string(static_cast<LookUpOutcome>(outcome));
  }
}

// With so many buckets, none of the 96 chunks is forgotten.
TEST(DirectoryFuzz, DoesWhatAModelOfPlainMapsDoes) {
  run_against_the_model({.chunks_max = 1024, .copies_max = 1024}, false, 71);
}

TEST(DirectoryFuzz, DoesWhatTheModelDoesIfTheBlockIsFull) {
  run_against_the_model({.chunks_max = 20, .copies_max = 30}, true, 72);
}

}  // namespace
}  // namespace terrace::tiers
