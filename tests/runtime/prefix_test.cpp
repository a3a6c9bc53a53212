// Prefixes: a sequence that begins with tokens whose rows and indexes the store has computes the
// same as one that was given them.
#include <gmock/gmock.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <numeric>
#include <optional>
#include <utility>
#include <vector>

#include "api/sequence_state.hpp"
#include "doubles/fault_store.hpp"
#include "doubles/memory_store.hpp"
#include "prefix/prefix_library.hpp"
#include "runtime/prefixes.hpp"
#include "runtime/scenario.hpp"

namespace terrace {
namespace {

using testing::Drive;
using testing::outputs_of;
using testing::Scenario;
using testing::Traffic;
using testing::prefixes::chunk_tokens;
using testing::prefixes::expect_same_prompt_after;
using testing::prefixes::expect_same_steps_after_closing;
using testing::prefixes::found_by;
using testing::prefixes::keep_prefixes;
using testing::prefixes::kept;
using testing::prefixes::prompt;
using testing::prefixes::publish;
using testing::prefixes::Shelf;
using testing::prefixes::step_count;
using testing::prefixes::tokens_of;

bool learns_of_hints(const Runtime& runtime) {
  const RetrievalTraits& traits = runtime.traits();
  return traits.needs_pre_rope_keys || traits.needs_attention_scores ||
         traits.query_window_tokens > 0;
}

class Prefix : public testing::OfEachPolicy {
 protected:
  std::vector<TokenId> tokens_ = tokens_of(prompt);
  Traffic traffic_{scenario_.runtime.shape, 1};
};

TEST_P(Prefix, ThatIsFoundChangesNoBitOfSteps) {
  for (const std::size_t host_bytes : {std::size_t{0}, SIZE_MAX}) {
    const Shelf shelf;
    keep_prefixes(scenario_, shelf, host_bytes);
    std::vector<testing::StepOutput> expected;
    {
      const auto runtime = scenario_.open();
      Drive drive(*runtime, traffic_);
      ASSERT_TRUE(drive.prefill(prompt).has_value());
      const auto report = drive.sequence().publish({.tokens = tokens_});
      ASSERT_TRUE(report.has_value()) << report.error().message();
      EXPECT_EQ(report->tokens, kept);
      EXPECT_EQ(report->chunks, kept / chunk_tokens);
      EXPECT_TRUE(report->indexed);
      ASSERT_TRUE(drive.sequence().truncate(kept).has_value());
      ASSERT_TRUE(drive.steps(step_count).has_value());
      expected = drive.outputs();
    }
    const auto runtime = scenario_.open();
    auto opened = runtime->open_sequence({.tokens = tokens_});
    ASSERT_TRUE(opened.has_value()) << opened.error().message();
    Drive drive(std::move(*opened), *runtime, traffic_);
    ASSERT_EQ(drive.sequence().length(), kept);
    ASSERT_TRUE(drive.steps(step_count).has_value());
    EXPECT_EQ(drive.outputs(), expected);
    EXPECT_EQ(drive.sequence().counters().builds, 0U) << "the index was stored, too";
    drive.expect_all_rows_right();
  }
}

TEST_P(Prefix, ThatIsFoundChangesNoBitOfThePromptAfterIt) {
  const Shelf shelf;
  keep_prefixes(scenario_, shelf);
  expect_same_prompt_after(scenario_);
}

TEST_P(Prefix, WithItsTailGoesOnAsIfItHadNeverBeenClosed) {
  for (const std::size_t decoded : {0U, 1U, 45U}) {
    for (const double share : {0.0, 0.2}) {
      Scenario scenario = scenario_;
      const Shelf shelf;
      keep_prefixes(scenario, shelf);
      if (share > 0) scenario.runtime.budget = {.kind = TokenBudget::Kind::share, .value = share};
      expect_same_steps_after_closing(scenario, decoded);
    }
  }
}

TEST_P(Prefix, IsNotChangedByTheSequencesThatBeginWithIt) {
  const Shelf shelf;
  keep_prefixes(scenario_, shelf, /*host_bytes=*/0);
  publish(scenario_, {.tokens = tokens_});
  const std::uint64_t pages = shelf.store->usage().pages;
  const Traffic other = traffic_.branch(100, 2);
  for (int round = 0; round < 2; ++round) {
    const auto runtime = scenario_.open();
    Drive cut(runtime->open_sequence({.tokens = tokens_}).value(), *runtime, other);
    Drive same(cut.sequence().fork().value(), *runtime, traffic_);
    ASSERT_TRUE(cut.sequence().truncate(100).has_value());
    ASSERT_TRUE(cut.prefill(170).has_value());
    ASSERT_TRUE(cut.steps(3).has_value());
    cut.expect_all_rows_right();
    ASSERT_TRUE(same.steps(3).has_value());
    same.expect_all_rows_right();
  }
  EXPECT_EQ(shelf.store->usage().pages, pages) << "sequences leave nothing behind";
}

TEST_P(Prefix, WithoutAUsableIndexHasItBuiltOfItsRows) {
  const auto expected = outputs_of(scenario_, kept, step_count);
  const Shelf shelf;
  keep_prefixes(scenario_, shelf);
  Scenario others = scenario_;
  others.runtime.seed = scenario_.runtime.seed + 1;  // its indexes are no use here
  publish(others, {.tokens = tokens_});
  const auto runtime = scenario_.open();
  Drive drive(runtime->open_sequence({.tokens = tokens_}).value(), *runtime, traffic_);
  ASSERT_EQ(drive.sequence().length(), kept);
  ASSERT_TRUE(drive.steps(step_count).has_value());
  // Hints that a prompt gave to indexes are not there any more.
  if (!learns_of_hints(*runtime)) {
    EXPECT_EQ(drive.outputs(), expected);
  }
  drive.expect_all_rows_right();
  // Now the store has indexes of both.
  const auto report = drive.sequence().publish({.tokens = tokens_of(kept)});
  ASSERT_TRUE(report.has_value()) << report.error().message();
  EXPECT_EQ(report->chunks, 0U);
  EXPECT_TRUE(report->indexed);
}

TEST_P(Prefix, ThatManyGoOnFromGetsIndexesOfItsOwn) {
  constexpr std::size_t shared = 160;
  const Shelf shelf;
  keep_prefixes(scenario_, shelf);
  publish(scenario_, {.tokens = tokens_});
  const auto runtime = scenario_.open();
  std::vector<TokenId> other = tokens_;
  std::vector<std::uint64_t> builds;
  bool has_indexes = false;
  for (std::uint32_t question = 2; question <= 4; ++question) {
    std::ranges::fill(std::span(other).subspan(shared), TokenId{question});
    const Traffic traffic = traffic_.branch(shared, question);
    Drive drive(runtime->open_sequence({.tokens = other}).value(), *runtime, traffic);
    ASSERT_EQ(drive.sequence().length(), shared);
    has_indexes = !state_of(drive.sequence()).parts.plan.layout.empty();
    ASSERT_TRUE(drive.steps(3).has_value());
    builds.push_back(drive.sequence().counters().builds);
    ASSERT_TRUE(drive.prefill(prompt).has_value());
    const auto report = drive.sequence().publish({.tokens = other});
    ASSERT_TRUE(report.has_value()) << report.error().message();
    EXPECT_TRUE(report->indexed);
    drive.expect_all_rows_right();
  }
  EXPECT_EQ(builds[0] > 0, has_indexes);
  EXPECT_EQ(builds[1], 0U) << "the first one that went on from there has stored them";
  EXPECT_EQ(builds[2], 0U);
}

INSTANTIATE_TEST_SUITE_P(Table, Prefix, ::testing::ValuesIn(testing::selecting_policies()));

class PrefixStore : public ::testing::Test {
 protected:
  PrefixStore() { keep_prefixes(scenario_, shelf_); }

  /// Tokens that are found.
  [[nodiscard]] std::size_t found(const Scenario& scenario, const PrefixQuery& query) const {
    return found_by(scenario, query);
  }
  [[nodiscard]] std::size_t found(const PrefixQuery& query) const {
    return found(scenario_, query);
  }

  /// Keys of the chunks of a query.
  [[nodiscard]] std::vector<tiers::ChunkKey> keys_of(const PrefixQuery& query) const {
    auto chunks = tiers::ChunkLibrary::share({.store = shelf_.store, .deadline = patience}).value();
    const auto library = PrefixLibrary::open(scenario_.runtime, "", std::move(chunks)).value();
    return library->names_of(query)->chunks;
  }

  static constexpr Duration patience = std::chrono::seconds{10};
  Scenario scenario_;
  Shelf shelf_;
  std::vector<TokenId> tokens_ = tokens_of(prompt);
};

TEST_F(PrefixStore, FindsTheLongestRunOfWholeChunks) {
  publish(scenario_, {.tokens = tokens_});
  EXPECT_EQ(found({.tokens = tokens_}), kept);
  EXPECT_EQ(found({.tokens = tokens_of(1000)}), kept);
  EXPECT_EQ(found({.tokens = tokens_of(100)}), 96U);
  EXPECT_EQ(found({.tokens = tokens_of(31)}), 0U);
  EXPECT_EQ(found({.tokens = tokens_of(300, 8)}), 0U);
  std::vector<TokenId> branched = tokens_;
  branched[70] = TokenId{1};
  EXPECT_EQ(found({.tokens = branched}), 64U);
}

TEST_F(PrefixStore, FindsATailOfExactlyTheSameTokens) {
  publish(scenario_, {.tokens = tokens_, .with_tail = true});
  const auto runtime = scenario_.open();
  const auto found = [&](std::size_t tokens, bool with_tail) {
    return runtime->open_sequence({.tokens = tokens_of(tokens), .with_tail = with_tail})
        .value()
        ->length();
  };
  EXPECT_EQ(found(prompt, true), prompt);
  EXPECT_EQ(found(prompt, false), kept);
  EXPECT_EQ(found(prompt - 1, true), kept);
  EXPECT_EQ(found(prompt + 1, true), kept);
  EXPECT_EQ(found(kept, true), kept);
}

TEST_F(PrefixStore, KeepsNothingOfTokensBehindTheTail) {
  const PrefixQuery query{.tokens = tokens_, .with_tail = true};
  const auto checksum_with = [&](std::size_t given) {
    const Shelf shelf;
    keep_prefixes(scenario_, shelf);
    const auto runtime = scenario_.open();
    const Traffic traffic(scenario_.runtime.shape, 1);
    Drive drive(*runtime, traffic);
    EXPECT_TRUE(drive.prefill(given).has_value());
    EXPECT_EQ(drive.sequence().publish(query).value().tokens, prompt);
    PrefixLibrary& library = *state_of(drive.sequence()).runtime().prefixes;
    const PrefixNames names = library.names_of(query).value();
    const tiers::LookUp found = library.chunks().find_run(names.request(names.chunks, {}), prompt);
    return found.run.back().checksum();
  };
  EXPECT_EQ(checksum_with(prompt), checksum_with(prompt + 3));
}

TEST_F(PrefixStore, KeepsTenantsModelsAndShapesApart) {
  publish(scenario_, {.tokens = tokens_, .salt = "a"});
  EXPECT_EQ(found({.tokens = tokens_, .salt = "a"}), kept);
  EXPECT_EQ(found({.tokens = tokens_, .salt = "b"}), 0U);
  EXPECT_EQ(found({.tokens = tokens_}), 0U);
  Scenario other = scenario_;
  other.runtime.prefixes.model = "other weights";
  EXPECT_EQ(found(other, {.tokens = tokens_, .salt = "a"}), 0U);
  other = scenario_;
  other.runtime.prefixes.adapter = "adapter";
  EXPECT_EQ(found(other, {.tokens = tokens_, .salt = "a"}), 0U);
  other = scenario_;
  other.runtime.shape.dtype = Dtype::bf16;
  EXPECT_EQ(found(other, {.tokens = tokens_, .salt = "a"}), 0U);
  other = scenario_;
  other.runtime.block_tokens = 16;
  EXPECT_EQ(found(other, {.tokens = tokens_, .salt = "a"}), 0U);
}

TEST_F(PrefixStore, WritesEachChunkOnce) {
  const PublishReport first = publish(scenario_, {.tokens = tokens_});
  EXPECT_EQ(first.chunks, kept / chunk_tokens);
  EXPECT_GT(first.bytes, 0U);
  const std::uint64_t pages = shelf_.store->usage().pages;
  const PublishReport again = publish(scenario_, {.tokens = tokens_});
  EXPECT_EQ(again.tokens, kept);
  EXPECT_EQ(again.chunks, 0U);
  EXPECT_EQ(again.bytes, 0U);
  EXPECT_EQ(shelf_.store->usage().pages, pages);
}

TEST_F(PrefixStore, EndsTheRunWhereAPartIsGone) {
  publish(scenario_, {.tokens = tokens_});
  const auto runtime = scenario_.open();
  const std::vector<tiers::ChunkKey> keys = keys_of({.tokens = tokens_});
  const PageKey part = tiers::page_key(keys[4], PrefixLibrary::rows_of(1));
  offload::StoreCalls calls(shelf_.store, std::chrono::seconds{10});
  ASSERT_TRUE(calls.erase({&part, 1}));
  EXPECT_EQ(found({.tokens = tokens_}), 4 * chunk_tokens);
  // Only the missing chunk is written again.
  EXPECT_EQ(publish(scenario_, {.tokens = tokens_}).chunks, 1U);
  EXPECT_EQ(found({.tokens = tokens_}), kept);
}

TEST_F(PrefixStore, SaysFromWhereOnRowsHaveToBeComputedAgain) {
  publish(scenario_, {.tokens = tokens_});
  const auto runtime = scenario_.open();
  const Traffic traffic(scenario_.runtime.shape, 1);
  Drive drive(runtime->open_sequence({.tokens = tokens_}).value(), *runtime, traffic);
  EXPECT_EQ(drive.sequence().readable_tokens(), kept);
  shelf_.store->arm({.verb = PageVerb::get_part, .probability = 1, .error = Errc::corrupt});
  const Status refused = drive.steps(4);
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().code, Errc::corrupt);
  EXPECT_EQ(drive.sequence().length(), kept) << "the sequence is as before";
  shelf_.store->arm({});
  const std::size_t readable = drive.sequence().readable_tokens();
  ASSERT_LT(readable, kept);
  ASSERT_TRUE(drive.sequence().truncate(readable).has_value());
  EXPECT_EQ(drive.sequence().readable_tokens(), readable);
  ASSERT_TRUE(drive.prefill(kept).has_value());
  ASSERT_TRUE(drive.steps(4).has_value());
  drive.expect_all_rows_right();
}

TEST_F(PrefixStore, WithErrorsIsAMissAndNoFailure) {
  publish(scenario_, {.tokens = tokens_});
  shelf_.store->arm({.verb = PageVerb::find, .probability = 1});
  EXPECT_EQ(found({.tokens = tokens_}), 0U);
  shelf_.store->arm({.verb = PageVerb::get_part, .probability = 1});
  EXPECT_EQ(found({.tokens = tokens_}), 0U);
  shelf_.store->arm({});
  EXPECT_EQ(found({.tokens = tokens_}), kept);
}

TEST_F(PrefixStore, ThatIsFullKeepsTheChunksThatFitted) {
  const Shelf small(40'000);
  keep_prefixes(scenario_, small);
  const auto runtime = scenario_.open();
  const Traffic traffic(scenario_.runtime.shape, 1);
  Drive drive(*runtime, traffic);
  ASSERT_TRUE(drive.prefill(prompt).has_value());
  const auto report = drive.sequence().publish({.tokens = tokens_});
  ASSERT_FALSE(report.has_value());
  EXPECT_EQ(report.error().code, Errc::out_of_memory);
  ASSERT_TRUE(drive.steps(3).has_value());
  drive.expect_all_rows_right();
  const std::size_t tokens = found({.tokens = tokens_});
  EXPECT_GT(tokens, 0U);
  EXPECT_LT(tokens, kept);
}

TEST_F(PrefixStore, ThatIsFullGivesRoomToNewPrefixes) {
  publish(scenario_, {.tokens = tokens_});
  const std::uint64_t bytes = shelf_.store->usage().used_bytes;
  const Shelf small(2 * bytes + bytes / 2);
  keep_prefixes(scenario_, small);
  const auto runtime = scenario_.open();  // remembers what was evicted
  for (const std::uint32_t first : {1000U, 2000U, 3000U, 4000U}) {
    const PublishReport report = publish(scenario_, {.tokens = tokens_of(prompt, first)});
    EXPECT_EQ(report.tokens, kept);
    EXPECT_TRUE(report.indexed);
    EXPECT_EQ(found({.tokens = tokens_of(prompt, first)}), kept);
  }
  EXPECT_EQ(found({.tokens = tokens_of(prompt, 3000)}), kept);
  EXPECT_EQ(found({.tokens = tokens_of(prompt, 1000)}), 0U);
  const PrefixCounters counters = runtime->prefix_counters();
  EXPECT_EQ(counters.look_ups, 6U);
  EXPECT_EQ(counters.hits, 5U);
  EXPECT_EQ(counters.misses.evicted, 1U);
  EXPECT_EQ(counters.tokens_asked, 6 * prompt);
  EXPECT_EQ(counters.tokens_found, 5 * kept);
  EXPECT_GT(counters.chunks_evicted, kept / chunk_tokens);
  EXPECT_GT(counters.bytes_resident, bytes);
  EXPECT_LE(counters.bytes_resident, small.store->usage().used_bytes);
}

TEST_F(PrefixStore, KeepsWhatOpenSequencesBeganWith) {
  scenario_.runtime.policy = "streaming";  // without indexes
  publish(scenario_, {.tokens = tokens_});
  const Shelf small(shelf_.store->usage().used_bytes + 3000);
  keep_prefixes(scenario_, small);
  publish(scenario_, {.tokens = tokens_});
  Scenario without_host_memory = scenario_;
  without_host_memory.runtime.below_host.host_bytes = 0;
  const auto runtime = without_host_memory.open();
  const Traffic traffic(scenario_.runtime.shape, 1);
  auto opened = runtime->open_sequence({.tokens = tokens_}).value();
  std::optional<Drive> drive(std::in_place, opened->fork().value(), *runtime, traffic);
  opened.reset();
  ASSERT_EQ(drive->sequence().length(), kept);
  const std::vector<TokenId> others = tokens_of(prompt, 5000);
  const auto publish_others = [&] {
    const auto other = scenario_.open();
    Drive giver(*other, traffic);
    EXPECT_TRUE(giver.prefill(others.size()).has_value());
    return giver.sequence().publish({.tokens = others});
  };
  const auto refused = publish_others();
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().code, Errc::out_of_memory);
  drive->expect_all_rows_right();
  ASSERT_TRUE(drive->sequence().truncate(0).has_value());
  EXPECT_FALSE(publish_others().has_value()) << "a lease is of a sequence's life";
  drive.reset();
  EXPECT_TRUE(publish_others().has_value());
  EXPECT_LT(found({.tokens = tokens_}), kept);
}

TEST_F(PrefixStore, GivesRoomToRowsOfSequences) {
  scenario_.runtime.policy = "streaming";
  const std::size_t rows =
      prompt * scenario_.runtime.shape.layers * scenario_.runtime.shape.token_bytes();
  const Shelf small(rows + rows / 4);
  keep_prefixes(scenario_, small);
  publish(scenario_, {.tokens = tokens_});
  ASSERT_EQ(found({.tokens = tokens_}), kept);
  const auto keeper = scenario_.open();  // has the library of the store
  ASSERT_EQ(keeper->open_sequence({.tokens = tokens_}).value()->length(), kept);
  for (const bool has_prefixes : {false, true}) {
    Scenario other = scenario_;
    if (!has_prefixes) other.runtime.prefixes = {};
    other.runtime.below_host.host_bytes = 0;
    other.runtime.below_host.owner = 3;
    const auto runtime = other.open();
    const Traffic traffic(scenario_.runtime.shape, 2);
    Drive drive(*runtime, traffic);
    ASSERT_TRUE(drive.prefill(prompt).has_value());
    ASSERT_TRUE(drive.steps(2).has_value());
    EXPECT_GE(small.store->usage().used_bytes, rows / 2) << "rows are in the store";
    drive.expect_all_rows_right();
    EXPECT_GT(keeper->prefix_counters().chunks_evicted, 0U);
    EXPECT_LT(found({.tokens = tokens_}), kept);
  }
}

TEST_F(PrefixStore, DropsAChunkWhoseRowsAStepCouldNotRead) {
  scenario_.runtime.policy = "streaming";
  publish(scenario_, {.tokens = tokens_});
  const auto runtime = scenario_.open();
  const Traffic traffic(scenario_.runtime.shape, 1);
  std::optional<Drive> drive(std::in_place, runtime->open_sequence({.tokens = tokens_}).value(),
                             *runtime, traffic);
  ASSERT_EQ(drive->sequence().length(), kept);
  const std::uint64_t pages = shelf_.store->usage().pages;
  shelf_.store->arm({.verb = PageVerb::get_part, .probability = 1, .error = Errc::corrupt});
  std::vector<std::byte> row(scenario_.runtime.shape.row_bytes());
  const std::uint32_t position = 4 * chunk_tokens + 1;
  EXPECT_FALSE(drive->sequence().read_rows(LayerId{0}, HeadId{0}, {&position, 1}, row).has_value());
  shelf_.store->arm({});
  EXPECT_EQ(runtime->open_sequence({.tokens = tokens_}).value()->length(), 4 * chunk_tokens);
  EXPECT_EQ(shelf_.store->usage().pages, pages) << "the sequence still reads its other rows";
  drive->expect_all_rows_right();
  drive.reset();
  EXPECT_LT(shelf_.store->usage().pages, pages);
  EXPECT_EQ(publish(scenario_, {.tokens = tokens_}).chunks, 1U);
  EXPECT_EQ(found({.tokens = tokens_}), kept);
}

TEST_F(PrefixStore, CountsLookUpsByTheirReasons) {
  const auto runtime = scenario_.open();
  EXPECT_EQ(found({.tokens = tokens_}), 0U);
  publish(scenario_, {.tokens = tokens_});
  EXPECT_EQ(found({.tokens = tokens_of(20)}), 0U);
  EXPECT_EQ(found({.tokens = tokens_, .salt = "another"}), 0U);
  EXPECT_EQ(found({.tokens = tokens_of(1000)}), kept);
  EXPECT_EQ(found({.tokens = tokens_}), kept);
  shelf_.store->arm({.verb = PageVerb::get_part, .probability = 1});
  EXPECT_EQ(found({.tokens = tokens_}), 0U);
  const PrefixCounters counters = runtime->prefix_counters();
  EXPECT_EQ(counters.look_ups, 6U);
  EXPECT_EQ(counters.hits, 1U);
  EXPECT_EQ(counters.partial, 1U);
  EXPECT_EQ(counters.misses.never_stored, 2U);
  EXPECT_EQ(counters.misses.other_namespace, 1U);
  EXPECT_EQ(counters.misses.corrupt, 1U);
  EXPECT_EQ(counters.tokens_found, 2 * kept);
}

TEST_F(PrefixStore, IsNotReadWhereItsTokensAreComputedFaster) {
  publish(scenario_, {.tokens = tokens_});
  const auto found_after_a_prompt = [&](double read_rate, PrefixLoad load, bool with_tail) {
    scenario_.runtime.below_host.read_rate = read_rate;
    scenario_.runtime.prefixes.load = load;
    const auto runtime = scenario_.open();
    const PrefixQuery query{.tokens = std::span(tokens_).first(kept), .with_tail = with_tail};
    // How fast prompts are computed is not known yet.
    EXPECT_EQ(runtime->open_sequence(query).value()->length(), kept);
    const Traffic traffic(scenario_.runtime.shape, 1);
    Drive drive(*runtime, traffic);
    EXPECT_TRUE(drive.prefill(prompt).has_value());
    const std::uint64_t before = runtime->prefix_counters().misses.slower;
    const std::size_t length = runtime->open_sequence(query).value()->length();
    EXPECT_EQ(runtime->prefix_counters().misses.slower - before, length == 0 ? 1U : 0U);
    return length;
  };
  constexpr double slow = 1;  // B/s
  constexpr double fast = 1e15;
  EXPECT_EQ(found_after_a_prompt(slow, PrefixLoad::faster, false), 0U);
  EXPECT_EQ(found_after_a_prompt(fast, PrefixLoad::faster, false), kept);
  EXPECT_EQ(found_after_a_prompt(slow, PrefixLoad::always, false), kept);
  EXPECT_EQ(found_after_a_prompt(slow, PrefixLoad::faster, true), kept) << "a tail restores";
}

TEST_F(PrefixStore, InAFileOutlastsItsRuntimes) {
  const std::filesystem::path file =
      std::filesystem::path(::testing::TempDir()) / "prefixes_in_a_file";
  std::filesystem::remove(file);
  scenario_.runtime.below_host = {.file = file.string(), .file_bytes = 16 << 20, .host_bytes = 0};
  const PublishReport report = publish(scenario_, {.tokens = tokens_});
  EXPECT_EQ(report.tokens, kept);
  EXPECT_TRUE(report.indexed);
  for (const bool has_prefixes : {true, false, true}) {
    Scenario other = scenario_;
    if (!has_prefixes) other.runtime.prefixes = {};
    const auto runtime = other.open();
    const Traffic traffic(scenario_.runtime.shape, 1);
    Drive drive(runtime->open_sequence({.tokens = tokens_}).value(), *runtime, traffic);
    ASSERT_EQ(drive.sequence().length(), has_prefixes ? kept : 0);
    EXPECT_EQ(runtime->prefix_counters().hits, has_prefixes ? 1U : 0U);
    EXPECT_EQ(runtime->prefix_counters().bytes_resident, has_prefixes ? report.bytes : 0U);
    if (!has_prefixes) continue;
    ASSERT_TRUE(drive.steps(3).has_value());
    EXPECT_EQ(drive.sequence().counters().builds, 0U);
    drive.expect_all_rows_right();
  }
  std::filesystem::remove(file);
}

TEST_F(PrefixStore, IsOfRuntimesThatNameAModel) {
  scenario_.runtime.prefixes.model = "";
  const auto runtime = scenario_.open();
  const Traffic traffic(scenario_.runtime.shape, 1);
  Drive drive(*runtime, traffic);
  ASSERT_TRUE(drive.prefill(prompt).has_value());
  const auto refused = drive.sequence().publish({.tokens = tokens_});
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().code, Errc::unsupported);
  EXPECT_EQ(runtime->open_sequence({.tokens = tokens_}).value()->length(), 0U);
}

TEST_F(PrefixStore, RefusesTokensThatTheSequenceHasNot) {
  const auto runtime = scenario_.open();
  const Traffic traffic(scenario_.runtime.shape, 1);
  Drive drive(*runtime, traffic);
  ASSERT_TRUE(drive.prefill(100).has_value());
  const auto refused = drive.sequence().publish({.tokens = tokens_});
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().code, Errc::invalid_argument);
  scenario_.runtime.prefixes.chunk_tokens = 12;
  EXPECT_FALSE(scenario_.runtime.validate().has_value());
}

TEST_F(PrefixStore, LeavesRowsThatNobodySelectsInTheStore) {
  constexpr std::size_t length = 4096;
  const std::vector<TokenId> tokens = tokens_of(length);
  scenario_.runtime.prefixes.chunk_tokens = 256;
  publish(scenario_, {.tokens = tokens});
  const auto runtime = scenario_.open();
  const Traffic traffic(scenario_.runtime.shape, 1);
  Drive drive(runtime->open_sequence({.tokens = tokens}).value(), *runtime, traffic);
  ASSERT_EQ(drive.sequence().length(), length);
  const KvShape& shape = scenario_.runtime.shape;
  const std::size_t all = length * shape.layers * shape.token_bytes();
  ASSERT_TRUE(drive.step().has_value());
  EXPECT_LT(drive.sequence().counters().store.read, all / 2);
}

}  // namespace
}  // namespace terrace
