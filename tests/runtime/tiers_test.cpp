// Tiers are real: what runs on the compute queue, fetches apart, touches device memory only, and
// what crosses the link is counted to the byte.
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <vector>

#include "doubles/seeded_scheduler.hpp"
#include "doubles/wrapped_backend.hpp"
#include "policies/selecting_policies.hpp"
#include "runtime/scenario.hpp"

namespace terrace {
namespace {

using testing::Drive;
using testing::Scenario;
using testing::Traffic;

/// Passes everything on, and remembers where whole pages of host-tier memory lie.
class WatchedBackend final : public doubles::WrappedBackend {
 public:
  using WrappedBackend::WrappedBackend;

  void protect(int access) {
    for (const auto& [data, bytes] : pages_) {
      ASSERT_EQ(mprotect(data, bytes, access), 0);
    }
  }
  [[nodiscard]] std::size_t watched() const noexcept { return pages_.size(); }

 private:
  static constexpr std::size_t page = 4096;

  Result<std::byte*> do_allocate(const AllocationRequest& request) override {
    TERRACE_ASSIGN(std::byte* const data, WrappedBackend::do_allocate(request));
    if (request.tier == Tier::host && request.alignment >= page && request.bytes >= page) {
      pages_.emplace_back(data, request.bytes / page * page);
    }
    return data;
  }
  void do_release(std::byte* data, const AllocationRequest& request) noexcept override {
    std::erase_if(pages_, [&](const auto& range) { return range.first == data; });
    WrappedBackend::do_release(data, request);
  }

  std::vector<std::pair<std::byte*, std::size_t>> pages_;
};

/// Makes host pages unreadable around every piece of compute but fetches.
class HostPagesShut final : public doubles::PieceObserver {
 public:
  WatchedBackend* backend = nullptr;
  std::size_t shut = 0;
  bool shut_fetches = false;

  void before(const doubles::PieceView& piece) override {
    if (!covers(piece)) return;
    ++shut;
    backend->protect(PROT_NONE);
  }
  void after(const doubles::PieceView& piece) override {
    if (covers(piece)) backend->protect(PROT_READ | PROT_WRITE);
  }

 private:
  [[nodiscard]] bool covers(const doubles::PieceView& piece) const {
    if (backend == nullptr || piece.queue != "compute") return false;
    return piece.phase == Phase::select || piece.phase == Phase::attend ||
           piece.phase == Phase::update || (shut_fetches && piece.phase == Phase::fetch);
  }
};

void run_with_host_pages_shut(const std::string& policy, bool shut_fetches) {
  doubles::SeededScheduler scheduler(1);
  HostPagesShut shutter;
  shutter.shut_fetches = shut_fetches;
  scheduler.observe(&shutter);
  Scenario scenario;
  scenario.runtime.policy = policy;
  auto watched = std::make_unique<WatchedBackend>(
      scheduler.wrap(offload::HostBackend::create(scenario.backend).value()));
  WatchedBackend* const backend = watched.get();
  const auto runtime = scenario.open(std::move(watched));
  const Traffic traffic(scenario.runtime.shape, 1);
  {
    Drive drive(*runtime, traffic);
    ASSERT_TRUE(drive.prefill(300).has_value());
    ASSERT_GT(backend->watched(), 0U) << "nothing is guarded: the test would prove nothing";
    shutter.backend = backend;
    ASSERT_TRUE(drive.steps(20).has_value());
    shutter.backend = nullptr;
  }
  EXPECT_GT(shutter.shut, 20U);
}

TEST(Tiers, AreRealForEveryPolicy) {
  for (const std::string& policy : testing::selecting_policies()) {
    SCOPED_TRACE(policy);
    run_with_host_pages_shut(policy, /*shut_fetches=*/false);
  }
}

TEST(TiersDeathTest, GuardedPagesAreReallyUnreadable) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_DEATH(run_with_host_pages_shut("pqcache", /*shut_fetches=*/true), "");
}

TEST(Tiers, DemandBytesAreMissedRowsTimesRowBytes) {
  for (const char* const cache : {"none", "lru"}) {
    Scenario scenario;
    scenario.runtime.cache.policy = cache;
    const auto runtime = scenario.open();
    const Traffic traffic(scenario.runtime.shape, 1);
    Drive drive(*runtime, traffic);
    ASSERT_TRUE(drive.prefill(400).has_value());
    drive.sequence().reset_counters();
    const QueueCounters before = drive.compute().counters();
    ASSERT_TRUE(drive.steps(30).has_value());
    const SequenceCounters counters = drive.sequence().counters();
    const auto fetch = static_cast<std::size_t>(Phase::fetch);
    EXPECT_GT(counters.cache.rows_missed, 0U);
    EXPECT_EQ(counters.bytes.demand,
              counters.cache.rows_missed * scenario.runtime.shape.row_bytes());
    EXPECT_EQ(counters.bytes.demand, drive.compute().counters().bytes[fetch] - before.bytes[fetch])
        << "what the queue moved is what the sequence counted";
    const std::uint64_t selected =
        counters.cache.rows_hit + counters.cache.rows_missed + counters.cache.rows_resident;
    EXPECT_EQ(selected, 30 * scenario.runtime.shape.layers * scenario.runtime.shape.kv_heads *
                            drive.sequence().selected_tokens());
    EXPECT_EQ(counters.bytes.offload,
              30 * scenario.runtime.shape.layers * scenario.runtime.shape.token_bytes());
  }
}

TEST(Tiers, DeviceMemoryStaysBelowAQuarterOfWhatFullNeeds) {
  Scenario scenario;
  scenario.runtime.shape = {
      .layers = 4, .query_heads = 4, .kv_heads = 2, .head_dim = 64, .dtype = Dtype::f16};
  scenario.runtime.budget = {.kind = TokenBudget::Kind::share, .value = 0.1};
  scenario.runtime.block_tokens = 32;
  const std::size_t tokens = 2048;
  const std::size_t full = tokens * 4 * scenario.runtime.shape.token_bytes();
  scenario.backend.device_memory_limit = full / 4;
  const auto runtime = scenario.open();
  const Traffic traffic(scenario.runtime.shape, 1);
  Drive drive(*runtime, traffic);
  const Status filled = drive.prefill(tokens, 512);
  ASSERT_TRUE(filled.has_value()) << filled.error().message();
  const Status done = drive.steps(10);
  ASSERT_TRUE(done.has_value()) << done.error().message();
  EXPECT_LE(runtime->backend().memory(Tier::device).peak, full / 4);
}

}  // namespace
}  // namespace terrace
