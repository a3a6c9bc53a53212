// Prefixes whose indexes are gone or damaged, and rows of another shape: rows are used while they
// are right, and indexes are built again.
#include <gmock/gmock.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "api/sequence_state.hpp"
#include "prefix/prefix_library.hpp"
#include "runtime/prefixes.hpp"
#include "runtime/scenario.hpp"
#include "terrace/offload/store_calls.hpp"

namespace terrace {
namespace {

using testing::Drive;
using testing::Scenario;
using testing::Traffic;
using testing::prefixes::chunk_tokens;
using testing::prefixes::found_by;
using testing::prefixes::keep_prefixes;
using testing::prefixes::kept;
using testing::prefixes::prompt;
using testing::prefixes::publish;
using testing::prefixes::Shelf;
using testing::prefixes::step_count;
using testing::prefixes::tokens_of;

constexpr Duration store_patience = std::chrono::seconds{30};

/// Notes which pages a store is asked to read.
class NotingStore final : public Store {
 public:
  explicit NotingStore(std::shared_ptr<Store> inner) : inner_(std::move(inner)) {}

  [[nodiscard]] std::string_view name() const noexcept override { return inner_->name(); }
  void cancel(const StoreTicket& ticket) noexcept override { inner_->cancel(ticket); }
  [[nodiscard]] StoreUsage usage() const override { return inner_->usage(); }

  void forget() {
    const std::scoped_lock lock(mutex_);
    read_.clear();
  }
  [[nodiscard]] bool has_read(const PageKey& key) const {
    const std::scoped_lock lock(mutex_);
    return std::ranges::find(read_, key) != read_.end();
  }

 private:
  Result<StoreTicket> do_submit(std::span<PageRequest> batch,
                                const BatchOptions& options) override {
    {
      const std::scoped_lock lock(mutex_);
      for (const PageRequest& request : batch) {
        const bool reads = request.verb == PageVerb::get || request.verb == PageVerb::get_part;
        if (reads) read_.push_back(request.key);
      }
    }
    return inner_->submit(batch, options);
  }

  std::shared_ptr<Store> inner_;
  mutable std::mutex mutex_;
  std::vector<PageKey> read_;
};

/// A page of an index's chunk.
enum class IndexPage { manifest, record, layer };

PageKey page_of(const tiers::ChunkKey& index, IndexPage page) {
  if (page == IndexPage::manifest) return tiers::manifest_page_key(index);
  const bool is_record = page == IndexPage::record;
  return tiers::page_key(index,
                         {.kind = is_record ? tiers::PartKind::state : tiers::PartKind::index});
}

/// Damage that can be done to a page.
enum class PageDamage {
  erased,
  flipped,    ///< a bit, which the store notices
  rewritten,  ///< with a bit flipped, as the store was told to
};

Status do_damage(const Shelf& shelf, const PageKey& page, PageDamage damage) {
  offload::StoreCalls calls(shelf.store, store_patience);
  if (damage == PageDamage::erased) return calls.erase({&page, 1});
  TERRACE_ASSIGN(std::vector<std::byte> bytes, calls.read(page));
  if (damage == PageDamage::flipped) {
    EXPECT_TRUE(shelf.memory->damage(page, bytes.size() / 2));
    return {};
  }
  bytes[bytes.size() / 2] ^= std::byte{1};
  return calls.write({{.key = page, .bytes = std::move(bytes)}});
}

/// The page, the damage, and whether a runtime knows the index already.
using DamageCase = std::tuple<IndexPage, PageDamage, bool>;

class DamagedIndex : public ::testing::TestWithParam<DamageCase> {
 protected:
  DamagedIndex() {
    const auto runtime = scenario_.open();
    Drive drive(*runtime, traffic_);
    EXPECT_TRUE(drive.prefill(kept).has_value());
    EXPECT_TRUE(drive.steps(step_count).has_value());
    outputs_ = drive.outputs();
    keep_prefixes(scenario_, shelf_);
    scenario_.runtime.below_host.store = noting_;
    publish(scenario_, {.tokens = tokens_});
  }

  /// Returns the chunk of the prefix's indexes.
  [[nodiscard]] tiers::ChunkKey index_key() const {
    const auto runtime = scenario_.open();
    const auto sequence = runtime->open_sequence().value();
    PrefixLibrary& library = *state_of(*sequence).runtime().prefixes;
    return library.index_key(library.names_of({.tokens = tokens_})->chunks.back()).value();
  }

  /// Has a sequence begin with the prefix and take steps. Returns how many indexes it has built.
  std::uint64_t builds_of_the_same_steps(Runtime& runtime) {
    Drive drive(runtime.open_sequence({.tokens = tokens_}).value(), runtime, traffic_);
    EXPECT_EQ(drive.sequence().length(), kept);
    EXPECT_TRUE(drive.steps(step_count).has_value());
    EXPECT_TRUE(drive.outputs() == outputs_);
    drive.expect_all_rows_right();
    return drive.sequence().counters().builds;
  }

  [[nodiscard]] std::size_t layers() const { return scenario_.runtime.shape.layers; }

  Scenario scenario_;
  Shelf shelf_;
  std::shared_ptr<NotingStore> noting_ = std::make_shared<NotingStore>(shelf_.store);
  Traffic traffic_{scenario_.runtime.shape, 1};
  std::vector<TokenId> tokens_ = tokens_of(kept);
  std::vector<testing::StepOutput> outputs_;  ///< of steps without a prefix
};

TEST_P(DamagedIndex, IsBuiltAgainOfItsRowsAndNotReadTwice) {
  const auto [page, damage, is_known] = GetParam();
  const tiers::ChunkKey index = index_key();
  std::unique_ptr<Runtime> runtime;
  if (is_known) {
    runtime = scenario_.open();
    EXPECT_EQ(builds_of_the_same_steps(*runtime), 0U);
  }
  const Status damaged = do_damage(shelf_, page_of(index, page), damage);
  ASSERT_TRUE(damaged.has_value()) << damaged.error().message();
  if (!is_known) runtime = scenario_.open();
  EXPECT_EQ(builds_of_the_same_steps(*runtime), layers());
  noting_->forget();
  EXPECT_EQ(builds_of_the_same_steps(*runtime), layers());
  EXPECT_FALSE(noting_->has_read(page_of(index, IndexPage::record)));
  EXPECT_FALSE(noting_->has_read(page_of(index, IndexPage::layer)));
  EXPECT_EQ(runtime->prefix_counters().hits, is_known ? 3U : 2U) << "rows are as they were";
}

TEST_P(DamagedIndex, IsStoredAgainByTheNextThatPublishes) {
  const auto [page, damage, is_known] = GetParam();
  const auto runtime = scenario_.open();
  if (is_known) {
    EXPECT_EQ(builds_of_the_same_steps(*runtime), 0U);
  }
  ASSERT_TRUE(do_damage(shelf_, page_of(index_key(), page), damage).has_value());
  {
    Drive drive(runtime->open_sequence({.tokens = tokens_}).value(), *runtime, traffic_);
    const auto report = drive.sequence().publish({.tokens = tokens_});
    ASSERT_TRUE(report.has_value()) << report.error().message();
    EXPECT_EQ(report->chunks, 0U);
    EXPECT_GT(report->bytes, 0U);
    EXPECT_TRUE(report->indexed);
  }
  EXPECT_EQ(builds_of_the_same_steps(*runtime), 0U);
}

INSTANTIATE_TEST_SUITE_P(
    Pages, DamagedIndex,
    ::testing::Combine(::testing::Values(IndexPage::manifest, IndexPage::record, IndexPage::layer),
                       ::testing::Values(PageDamage::erased, PageDamage::flipped,
                                         PageDamage::rewritten),
                       ::testing::Bool()));

/// A chunk whose rows are not those that its name promises.
struct OtherShape {
  const char* name;
  void (*change)(std::vector<tiers::PartBytes>& parts, std::uint32_t& tokens);
};

class RowsOfAnotherShape : public ::testing::TestWithParam<OtherShape> {
 protected:
  RowsOfAnotherShape() { keep_prefixes(scenario_, shelf_); }

  /// Puts rows of another shape where a chunk of the prefix belongs.
  void put_instead_of(std::size_t chunk) const {
    const auto runtime = scenario_.open();
    const auto sequence = runtime->open_sequence().value();
    SequenceState& state = state_of(*sequence);
    const PrefixNames names = state.runtime().prefixes->names_of({.tokens = tokens_}).value();
    const std::size_t bytes = chunk_tokens * scenario_.runtime.shape.token_bytes();
    std::vector<tiers::PartBytes> parts;
    for (std::size_t layer = 0; layer < scenario_.runtime.shape.layers; ++layer) {
      parts.push_back({.name = PrefixLibrary::rows_of(layer),
                       .bytes = std::vector<std::byte>(bytes, std::byte{1})});
    }
    std::uint32_t tokens = chunk_tokens;
    GetParam().change(parts, tokens);
    tiers::ChunkLease lease;
    const auto published =
        state.runtime().prefixes->chunks().publish({.root = names.root,
                                                    .tenant = names.tenant,
                                                    .key = names.chunks[chunk],
                                                    .tokens = tokens,
                                                    .now = state.parts.work.clock().now()},
                                                   std::move(parts), lease);
    ASSERT_TRUE(published.has_value()) << published.error().message();
    ASSERT_EQ(*published, tiers::Published::written);
  }

  Scenario scenario_;
  Shelf shelf_;
  std::vector<TokenId> tokens_ = tokens_of(prompt);
};

TEST_P(RowsOfAnotherShape, AreAMissAndNeverUsed) {
  put_instead_of(0);
  const auto runtime = scenario_.open();
  EXPECT_EQ(runtime->open_sequence({.tokens = tokens_}).value()->length(), 0U);
  const PrefixCounters counters = runtime->prefix_counters();
  EXPECT_EQ(counters.look_ups, 1U);
  EXPECT_EQ(counters.misses.corrupt, 1U);
  EXPECT_EQ(counters.tokens_found, 0U);
}

TEST_P(RowsOfAnotherShape, EndTheRunBeforeThem) {
  constexpr std::size_t right = 4;  // chunks
  publish(scenario_, {.tokens = std::span(tokens_).first(right * chunk_tokens)});
  put_instead_of(right);
  const auto runtime = scenario_.open();
  const Traffic traffic(scenario_.runtime.shape, 1);
  {
    Drive drive(runtime->open_sequence({.tokens = tokens_}).value(), *runtime, traffic);
    ASSERT_EQ(drive.sequence().length(), right * chunk_tokens);
    EXPECT_EQ(runtime->prefix_counters().partial, 1U);
    EXPECT_EQ(runtime->prefix_counters().tokens_found, right * chunk_tokens);
    ASSERT_TRUE(drive.prefill(prompt).has_value());
    ASSERT_TRUE(drive.steps(3).has_value());
    drive.expect_all_rows_right();
  }
  const PublishReport report = publish(scenario_, {.tokens = tokens_});
  EXPECT_EQ(report.chunks, kept / chunk_tokens - right) << "the right rows take their place";
  EXPECT_EQ(found_by(scenario_, {.tokens = tokens_}), kept);
}

INSTANTIATE_TEST_SUITE_P(
    Shapes, RowsOfAnotherShape,
    ::testing::Values(
        OtherShape{"fewer layers", [](auto& parts, auto&) { parts.pop_back(); }},
        OtherShape{"fewer rows", [](auto& parts, auto&) { parts[1].bytes.resize(64); }},
        OtherShape{"more rows",
                   [](auto& parts, auto&) { parts[0].bytes.resize(2 * parts[0].bytes.size()); }},
        OtherShape{"fewer tokens", [](auto&, auto& tokens) { --tokens; }}),
    [](const auto& shape) {
      std::string name = shape.param.name;
      std::ranges::replace(name, ' ', '_');
      return name;
    });

}  // namespace
}  // namespace terrace
