// Look-ups, reads and publishing through a daemon.
#include <gmock/gmock.h>
#include <sys/mman.h>

#include <cstdint>

#include "node/made_node.hpp"

namespace terrace::node {
namespace {

using tiers::LookUpOutcome;
using tiers::Published;

class DaemonChunks : public ::testing::Test {
 protected:
  NodePlace place_;
  RunningDaemon daemon_{place_.options()};
  std::unique_ptr<DaemonClient> client_ = place_.client();
};

TEST_F(DaemonChunks, ServesAnotherClientWhatOneHasPublished) {
  const auto keys = some_keys(3);
  for (const auto& key : keys) EXPECT_EQ(publish(*client_, key).value(), Published::written);
  EXPECT_EQ(publish(*client_, keys[0]).value(), Published::was_there);

  const auto other = place_.client();
  const DaemonLookUp found = find(*other, keys);
  ASSERT_FALSE(found.error);
  EXPECT_EQ(found.outcome, LookUpOutcome::hit_nvme);
  ASSERT_EQ(found.run.size(), 3U);
  EXPECT_TRUE(found.lease.is_live());
  EXPECT_EQ(found.run[1].tokens, chunk_tokens);
  EXPECT_EQ(found.run[0].parts, found.run[2].parts);  // one list for all
  for (std::uint32_t i = 0; i < 3; ++i) {
    EXPECT_EQ(read_rows(*other, found, i).value(), rows_of(keys[i]));
  }
}

TEST_F(DaemonChunks, ReadsOfOnePartAreOnePlaceInMemory) {
  const auto keys = some_keys(1);
  ASSERT_TRUE(publish(*client_, keys[0]));
  const DaemonLookUp first = find(*client_, keys);
  const DaemonLookUp second = find(*client_, keys);
  const std::array wanted{DaemonPartRequest{.name = rows}, DaemonPartRequest{.name = rows},
                          DaemonPartRequest{.name = state}};
  const auto one = client_->read(first.lease, wanted).value();
  const auto two = client_->read(second.lease, wanted).value();
  EXPECT_EQ(one[0]->data(), one[1]->data());
  EXPECT_EQ(one[0]->data(), two[0]->data());
  EXPECT_EQ(one[2]->size(), 1U);
  EXPECT_EQ(counter(*client_, "memory.parts"), 2U);
  EXPECT_EQ(counter(*client_, "parts.read"), 6U);
}

TEST_F(DaemonChunks, SaysHowALookUpEnded) {
  const auto keys = some_keys(3);
  EXPECT_EQ(find(*client_, keys).outcome, LookUpOutcome::miss_never_stored);
  ASSERT_TRUE(publish(*client_, keys[0]));
  const DaemonLookUp partial = find(*client_, keys);
  EXPECT_EQ(partial.outcome, LookUpOutcome::partial);
  EXPECT_EQ(partial.run.size(), 1U);
  EXPECT_EQ(find(*client_, {}).outcome, LookUpOutcome::miss_never_stored);
  EXPECT_EQ(counter(*client_, "look_ups"), 3U);
  EXPECT_EQ(counter(*client_, "tokens.found"), chunk_tokens);
}

TEST_F(DaemonChunks, APartThatThereIsNotIsAnErrorOfThatPartAlone) {
  const auto keys = some_keys(1);
  ASSERT_TRUE(publish(*client_, keys[0]));
  const DaemonLookUp found = find(*client_, keys);
  const std::array wanted{DaemonPartRequest{.name = {.layer = 99}},
                          DaemonPartRequest{.chunk = 5, .name = rows},
                          DaemonPartRequest{.name = rows}};
  const auto read = client_->read(found.lease, wanted).value();
  EXPECT_EQ(read[0].error().code, Errc::invalid_argument);
  EXPECT_EQ(read[1].error().code, Errc::invalid_argument);
  EXPECT_TRUE(read[2]);
}

TEST_F(DaemonChunks, ALeaseThatIsGivenBackIsFree) {
  const auto keys = some_keys(1);
  ASSERT_TRUE(publish(*client_, keys[0]));
  {
    const DaemonLookUp found = find(*client_, keys);
    ASSERT_TRUE(read_rows(*client_, found, 0));
    EXPECT_EQ(counter(*client_, "leases"), 1U);
    EXPECT_GE(counter(*client_, "memory.held_bytes"), row_bytes);
  }
  EXPECT_EQ(counter(*client_, "leases"), 0U);
  EXPECT_EQ(counter(*client_, "memory.held_bytes"), 0U);
  EXPECT_EQ(counter(*client_, "memory.parts"), 1U);  // stays, for others
}

TEST_F(DaemonChunks, PublishedChunksComeIntoALeaseOfTheClients) {
  const auto keys = some_keys(2);
  DaemonLease lease;
  ASSERT_TRUE(publish(*client_, keys[0], &lease));
  EXPECT_TRUE(lease.is_live());
  ASSERT_TRUE(publish(*client_, keys[1], &lease));
  EXPECT_EQ(counter(*client_, "leases"), 1U);
  EXPECT_TRUE(client_->renew(lease));
  EXPECT_EQ(publish(*client_, keys[1], &lease).value(), Published::was_there);
  EXPECT_EQ(counter(*client_, "reservations"), 0U);
}

TEST_F(DaemonChunks, RefusesChunksThatCanBeNone) {
  const tiers::ChunkKey key = some_keys(1)[0];
  const DaemonPublish chunk{.root = some_root, .key = key, .tokens = chunk_tokens};
  EXPECT_EQ(client_->publish(chunk, {}, nullptr).error().code, Errc::invalid_argument);
  const DaemonPartBytes empty{rows, {}};
  EXPECT_EQ(client_->publish(chunk, {&empty, 1}, nullptr).error().code, Errc::invalid_argument);
  EXPECT_TRUE(client_->connect());  // the connection is as before
}

TEST_F(DaemonChunks, PinsKeepChunksUntilTheyAreUnpinnedAsOften) {
  const auto keys = some_keys(1);
  EXPECT_EQ(client_->pin(keys[0]).error().code, Errc::invalid_argument);
  ASSERT_TRUE(publish(*client_, keys[0]));
  EXPECT_TRUE(client_->pin(keys[0]));
  EXPECT_TRUE(client_->pin(keys[0]));
  EXPECT_EQ(counter(*client_, "chunks.pinned_bytes"), row_bytes + 1);
  EXPECT_TRUE(client_->unpin(keys[0]));
  EXPECT_TRUE(client_->unpin(keys[0]));
  EXPECT_EQ(client_->unpin(keys[0]).error().code, Errc::invalid_argument);
  EXPECT_EQ(counter(*client_, "chunks.pinned_bytes"), 0U);
}

TEST_F(DaemonChunks, MemoryThatIsTooSmallServesPartAfterPart) {
  const auto keys = some_keys(600);  // 1.8 MB of rows, and room for 1 MiB
  for (const auto& key : keys) ASSERT_TRUE(publish(*client_, key));
  for (std::size_t i = 0; i < keys.size(); ++i) {
    const DaemonLookUp found = find(*client_, std::span(keys).subspan(i, 1));
    ASSERT_EQ(read_rows(*client_, found, 0).value(), rows_of(keys[i])) << i;
  }
  EXPECT_GT(counter(*client_, "memory.evicted"), 0U);
  EXPECT_LE(counter(*client_, "memory.bytes"), place_.options().memory);
}

TEST_F(DaemonChunks, PartsThatAreLeasedAreNotEvicted) {
  const auto keys = some_keys(600);
  for (const auto& key : keys) ASSERT_TRUE(publish(*client_, key));
  const DaemonLookUp found = find(*client_, keys);
  ASSERT_EQ(found.run.size(), keys.size());
  std::size_t read = 0;
  for (std::uint32_t i = 0; i < keys.size(); ++i, ++read) {
    if (const auto bytes = read_rows(*client_, found, i); !bytes) {
      EXPECT_EQ(bytes.error().code, Errc::out_of_memory);
      break;
    }
  }
  EXPECT_GT(read, 100U);
  EXPECT_LT(read, keys.size());
  for (std::uint32_t i = 0; i < read; ++i) {  // they are as they were
    ASSERT_EQ(read_rows(*client_, found, i).value(), rows_of(keys[i]));
  }
}

TEST_F(DaemonChunks, ClientsCannotWriteToWhatTheyRead) {
  const auto keys = some_keys(1);
  ASSERT_TRUE(publish(*client_, keys[0]));
  const DaemonLookUp found = find(*client_, keys);
  const DaemonPartRequest wanted{.name = rows};
  const auto read = client_->read(found.lease, {&wanted, 1}).value();
  auto* const first = const_cast<std::byte*>(read[0]->data());
  auto* const page = first - reinterpret_cast<std::uintptr_t>(first) % 4096;
  EXPECT_NE(::mprotect(page, 4096, PROT_READ | PROT_WRITE), 0);
  EXPECT_EQ(::mprotect(page, 4096, PROT_READ), 0);
}

}  // namespace
}  // namespace terrace::node
