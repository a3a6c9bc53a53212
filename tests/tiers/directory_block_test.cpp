// The block of a directory: its size, and what opens it.
#include <gtest/gtest.h>

#include <cstddef>
#include <functional>
#include <vector>

#include "contract/fuzz.hpp"
#include "directory/block_layout.hpp"
#include "terrace/core/rng.hpp"
#include "tiers/made_directory.hpp"

namespace terrace::tiers {
namespace {

Header& header_of(const AlignedBlock& block) {
  return *reinterpret_cast<Header*>(block.span().data());
}

Errc code_of_open(std::span<std::byte> block) {
  const auto opened = Directory::open(block);
  return opened ? Errc::not_ready : opened.error().code;
}

TEST(DirectoryBlock, TakesAtMostAHundredBytesAChunk) {
  for (const std::uint64_t chunks : {100'000ULL, 1'000'000ULL, 10'000'000ULL, 100'000'000ULL}) {
    const std::uint64_t bytes = Directory::block_bytes({.chunks_max = chunks}).value();
    EXPECT_LE(bytes, 100 * chunks) << chunks << " chunks";
  }
  // The figures that directory.hpp states.
  const DirectoryOptions base{.chunks_max = 1'000'000, .copies_max = 2'000'000};
  const auto added = [&](DirectoryOptions options) {
    return Directory::block_bytes(options).value() - Directory::block_bytes(base).value();
  };
  DirectoryOptions more = base;
  more.copies_max += 1'000'000;
  EXPECT_EQ(added(more), 40'000'000U);
  more = base;
  more.chunks_max += 1'000'000;
  EXPECT_EQ(added(more), 48'000'000U);
  more = base;
  more.leases_max += 64'000;
  EXPECT_EQ(added(more), 28 * 64'000U);
  more = base;
  more.tenants_max += 64;
  EXPECT_LE(added(more), 256 * 64U);
}

TEST(DirectoryBlock, IsRefusedIfItCannotBe) {
  const auto is_refused = [](const DirectoryOptions& options) {
    const auto bytes = Directory::block_bytes(options);
    return !bytes && bytes.error().code == Errc::invalid_argument;
  };
  EXPECT_TRUE(is_refused({.chunks_max = 0}));
  EXPECT_TRUE(is_refused({.chunks_max = ~std::uint64_t{0}}));
  EXPECT_TRUE(is_refused({.chunks_max = 10, .copies_max = 9}));
  EXPECT_TRUE(is_refused({.chunks_max = 10, .copies_max = std::uint64_t{1} << 40}));
  EXPECT_TRUE(is_refused({.chunks_max = 10, .leases_max = 0}));
  EXPECT_TRUE(is_refused({.chunks_max = 10, .leases_max = std::uint64_t{1} << 25}));
  EXPECT_TRUE(is_refused({.chunks_max = 10, .tenants_max = 0}));
  EXPECT_TRUE(is_refused({.chunks_max = 10, .tenants_max = 65'536}));
  const AlignedBlock block(Directory::block_bytes({.chunks_max = 10}).value() + 8);
  const auto create = [&](std::size_t from, std::size_t fewer) {
    const auto bytes = block.span().subspan(from);
    return Directory::create(bytes.first(bytes.size() - fewer), {.chunks_max = 10}).has_value();
  };
  EXPECT_TRUE(create(0, 8));
  EXPECT_FALSE(create(0, 9));
  EXPECT_FALSE(create(8, 0));
}

/// A directory with copies in all states, in the smallest block that has room for them.
MadeDirectory busy_directory() {
  MadeDirectory made(
      {.chunks_max = 9, .copies_max = 12, .leases_max = 4, .tenants_max = 2, .seed = 5});
  const auto keys = some_keys(9);
  made.directory.set_quota(TenantId{1}, Tier::host, 4000);
  for (std::size_t i = 0; i < 8; ++i) {
    made.store(keys[i], Tier::host, 100 + i, TenantId{static_cast<std::uint16_t>(i % 2)},
               at_seconds(std::int64_t(i)));
  }
  made.store(keys[2], Tier::nvme);
  made.store(keys[2], Tier::remote);
  const CopyHandle pinned = made.store(keys[3], Tier::nvme);
  static_cast<void>(made.directory.pin(pinned));
  made.lease(keys[4], at_seconds(1), at_seconds(50));
  made.lease(keys[4], at_seconds(1), at_seconds(20));
  made.lease(keys[5], at_seconds(1), at_seconds(30));
  const CopyHandle leased = made.directory.chunk(keys[5])->copies[0]->handle;
  static_cast<void>(made.directory.drop(leased, DropReason::corrupt));
  static_cast<void>(made.reserve(keys[6], Tier::nvme));
  made.evict(1);
  made.find(keys);
  return made;
}

/// Calls each verb that changes something, until nothing is left.
void use_up(Directory& directory) {
  const auto keys = some_keys(9);
  for (const TenantId tenant : {TenantId{0}, TenantId{1}}) {
    static_cast<void>(directory.find({.root = some_root, .tenant = tenant, .keys = keys}));
  }
  directory.touch(keys, at_seconds(3));
  for (const ChunkKey& key : keys) {
    const auto chunk = directory.chunk(key);
    for (const Tier tier : stored_tiers) {
      const auto copy = chunk ? chunk->copies[static_cast<std::size_t>(tier) - 1] : std::nullopt;
      if (copy) static_cast<void>(directory.unpin(copy->handle));
      const LeaseRequest request{
          .key = key, .tier = tier, .now = at_seconds(10), .until = at_seconds(40)};
      static_cast<void>(directory.lease(request));
      static_cast<void>(
          directory.reserve({.root = some_root, .key = key, .tier = tier, .bytes = 10}));
    }
  }
  const auto ignore = [](const FreedCopy&) {};
  constexpr TimePoint end = at_seconds(1'000'000);
  directory.collect(end, ignore);
  for (const Tier tier : stored_tiers) {
    directory.evict({.tier = tier, .bytes = Directory::no_limit, .now = end}, ignore);
  }
}

TEST(DirectoryBlock, IsOpenedAtAnotherAddressAsItWas) {
  const MadeDirectory made = busy_directory();
  const AlignedBlock copy(made.block.span());
  auto opened = Directory::open(copy.span());
  ASSERT_TRUE(opened) << opened.error().message();
  EXPECT_EQ(opened->usage(), made.directory.usage());
  EXPECT_EQ(opened->counters(), made.directory.counters());
  for (const Tier tier : stored_tiers) {
    EXPECT_EQ(opened->gauges(tier), made.directory.gauges(tier));
  }
  use_up(*opened);
  EXPECT_NE(opened->usage(), made.directory.usage());
  EXPECT_TRUE(Directory::open(copy.span()));
}

TEST(DirectoryBlock, IsRefusedIfItHoldsNoDirectoryOrAnotherVersion) {
  const AlignedBlock zeros(4096);
  std::memset(zeros.span().data(), 0, 4096);
  EXPECT_EQ(code_of_open(zeros.span()), Errc::corrupt);
  EXPECT_EQ(code_of_open(zeros.span().first(10)), Errc::corrupt);
  const MadeDirectory made = busy_directory();
  EXPECT_EQ(code_of_open(made.block.span().first(made.block.span().size() - 1)), Errc::corrupt);
  ++header_of(made.block).version;
  EXPECT_EQ(code_of_open(made.block.span()), Errc::unsupported);
}

TEST(DirectoryBlock, IsRefusedIfAProcessEndedAmidAChange) {
  const MadeDirectory made = busy_directory();
  ASSERT_TRUE(Directory::open(made.block.span()));
  // As Change leaves it that is not destroyed.
  ++header_of(made.block).changes;
  const auto opened = Directory::open(made.block.span());
  ASSERT_FALSE(opened);
  EXPECT_EQ(opened.error().message(),
            "a process ended amid a change of the directory: make a new one");
}

/// The records of a block.
struct Records {
  explicit Records(const AlignedBlock& block)
      : header(header_of(block)), layout(BlockLayout::of(header.options)) {
    const auto at = [&](std::uint64_t offset) { return block.span().data() + offset; };
    tenants = reinterpret_cast<TenantRecord*>(at(layout.tenants));
    chunks = reinterpret_cast<ChunkRecord*>(at(layout.chunks));
    copies = reinterpret_cast<CopyRecord*>(at(layout.copies));
    leases = reinterpret_cast<LeaseRecord*>(at(layout.leases));
  }

  /// Takes a reserved copy out as if its chunk had another one.
  void take_out_reserved() {
    for (RecordNumber number = 1; number < header.copies.fresh; ++number) {
      CopyRecord& copy = copies[number];
      if (static_cast<CopyState>(copy.state) != CopyState::reserved) continue;
      ChunkRecord& chunk = chunks[copy.chunk];
      for (TierGauges* gauges :
           {&header.gauges[copy.tier], &tenants[chunk.tenant].gauges[copy.tier]}) {
        gauges->in_flight -= copy.bytes;
      }
      chunk.copies[copy.tier] = no_record;
      copy.state = 0;
      copy.newer = header.copies.first_free;
      header.copies.first_free = number;
      --header.copies.used;
    }
  }

  Header& header;
  BlockLayout layout;
  TenantRecord* tenants;
  ChunkRecord* chunks;
  CopyRecord* copies;
  LeaseRecord* leases;
};

TEST(DirectoryBlock, IsRefusedIfItsRecordsContradictEachOther) {
  const std::vector<std::function<void(Records&)>> edits{
      [](Records& r) { ++r.header.gauges[0].resident; },
      [](Records& r) { ++r.tenants[0].gauges[1].pinned; },
      [](Records& r) { ++r.tenants[1].counters.look_ups; },
      [](Records& r) { ++r.header.leaving.count; },
      [](Records& r) { r.tenants[0].lists[0].newest = no_record; },
      [](Records& r) { --r.header.copies.used; },
      [](Records& r) { r.header.copies.fresh = 10'000; },
      [](Records& r) { r.header.chunks.fresh = 0; },
      [](Records& r) { r.header.leases.first_free = 1; },
      [](Records& r) { ++r.copies[2].leases; },
      [](Records& r) { r.copies[2].bytes = 0; },
      [](Records& r) { r.copies[2].tier = 3; },
      [](Records& r) { r.copies[2].chunk = 77; },
      [](Records& r) { r.copies[2].newer = 77; },
      [](Records& r) { r.copies[2].pins = 1; },
      [](Records& r) { r.chunks[2].tenant = 2; },
      [](Records& r) { r.chunks[2].copies[0] = 77; },
      [](Records& r) { r.chunks[2].next = 2; },
      [](Records& r) { r.chunks[2].state = ChunkRecord::State::free; },
      [](Records& r) { r.leases[1].copy = 77; },
      [](Records& r) { r.leases[1].heap_place = 3; },
      [](Records& r) { r.leases[2].until = INT64_MAX; },
      [](Records& r) { r.take_out_reserved(); },
  };
  for (std::size_t i = 0; i < edits.size(); ++i) {
    MadeDirectory made = busy_directory();
    static_cast<void>(made.directory.reserve(
        {.root = some_root, .key = {.high = 9, .low = 17}, .tier = Tier::nvme, .bytes = 1}));
    ASSERT_TRUE(Directory::open(made.block.span()));
    Records records(made.block);
    edits[i](records);
    EXPECT_EQ(code_of_open(made.block.span()), Errc::corrupt) << "edit " << i;
  }
}

/// Wherever a bit flips: the directory is refused, or works on within its block. (The address
/// sanitizer sees what leaves it; a test that hangs fails.)
TEST(DirectoryBlock, IsRefusedOrWorksOnWhereverABitFlips) {
  const MadeDirectory made = busy_directory();
  const std::size_t bits = 8 * made.block.span().size();
  std::size_t refused = 0;
  for (std::size_t bit = 0; bit < bits; ++bit) {
    const AlignedBlock damaged(made.block.span());
    damaged.span()[bit / 8] ^= static_cast<std::byte>(1U << bit % 8);
    auto opened = Directory::open(damaged.span());
    if (!opened) {
      ++refused;
      continue;
    }
    ASSERT_GE(bit / 8, offsetof(Header, changes)) << "bit " << bit;
    use_up(*opened);
    ASSERT_TRUE(Directory::open(damaged.span())) << "bit " << bit;
  }
  EXPECT_GT(refused, bits / 10);
}

TEST(DirectoryBlock, IsRefusedOrWorksOnIfBytesOfItAreOthers) {
  const std::uint64_t seed = fuzz_seed(122);
  Rng rng(seed);
  const MadeDirectory made = busy_directory();
  for (std::uint64_t step = 0; step < fuzz_steps() / 4; ++step) {
    SCOPED_TRACE(replay(seed, step));
    const AlignedBlock damaged(made.block.span());
    for (std::uint64_t i = 1 + rng.below(3); i > 0; --i) {
      const std::size_t at = rng.below(damaged.span().size());
      damaged.span()[at] = static_cast<std::byte>(rng.below(2) == 0 ? rng.below(16) : rng());
    }
    auto opened = Directory::open(damaged.span());
    if (opened) use_up(*opened);
  }
}

/// TERRACE_DIRECTORY_KEYS=10000000 tries it in full size.
TEST(DirectoryBlock, HoldsAsManyChunksAsItWasMadeFor) {
  const std::uint64_t count = number_from_environment("TERRACE_DIRECTORY_KEYS", 20'000);
  MadeDirectory made({.chunks_max = count, .seed = 9});
  const auto keys = some_keys(count);
  for (const ChunkKey& key : keys) made.store(key, Tier::nvme);
  for (std::size_t i = 0; i < count / 8; ++i) made.store(keys[i]);
  ASSERT_FALSE(made.reserve({.high = 1, .low = 2}));
  const FoundRun found = made.find(keys);
  EXPECT_EQ(found.chunks[0], count / 8);
  EXPECT_EQ(found.chunks[1], count);
  EXPECT_EQ(made.directory.gauges(Tier::nvme).resident, 100 * count);
  ASSERT_TRUE(Directory::open(made.block.span()));
  EXPECT_EQ(made.evict(Directory::no_limit, Tier::nvme).size(), count);
  EXPECT_EQ(made.evict(Directory::no_limit).size(), count / 8);
  EXPECT_EQ(made.directory.usage(), DirectoryUsage{});
}

}  // namespace
}  // namespace terrace::tiers
