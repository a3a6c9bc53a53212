// Ways across a link: what they move arrives, and what did not arrive is noticed.
#include "pcie/link_ends.hpp"

#include <gtest/gtest.h>

#include "terrace/offload/host_backend.hpp"

namespace terrace::bench {
namespace {

constexpr std::size_t there = std::size_t{1} << 18;

std::shared_ptr<LinkEnds> ends() {
  return LinkEnds::create(offload::HostBackend::create({}).value(), there).value();
}

void expect_checked(const Work& work) {
  work.start();
  work.finish();
  const Status arrived = work.verify();
  EXPECT_TRUE(arrived.has_value()) << arrived.error().message();
  // Nothing has moved since, and what had arrived is spoilt.
  EXPECT_FALSE(work.verify().has_value());
}

TEST(LinkEnds, CheckPiecesEachWay) {
  const auto link = ends();
  for (const Direction direction : {Direction::host_to_device, Direction::device_to_host}) {
    for (const HostEnd host : {HostEnd::locked, HostEnd::pageable}) {
      const Work work = link->piece(direction, there / 2, host).value();
      EXPECT_EQ(work.bytes, static_cast<double>(there) / 2);
      expect_checked(work);
    }
  }
}

TEST(LinkEnds, CheckRowsEachWay) {
  const auto link = ends();
  for (const std::size_t row_bytes : {std::size_t{128}, std::size_t{4096}, there}) {
    for (const bool scattered : {false, true}) {
      for (const Direction direction : {Direction::host_to_device, Direction::device_to_host}) {
        for (const Method method : {Method::kernel, Method::copies}) {
          expect_checked(link->rows(direction, method, row_bytes, scattered).value());
        }
      }
    }
  }
  EXPECT_FALSE(link->rows(Direction::host_to_device, Method::kernel, 2 * there).has_value());
}

TEST(LinkEnds, CheckWorkBesideOther) {
  const auto link = ends();
  const Work down = link->piece(Direction::host_to_device, there).value();
  const Work up = link->piece(Direction::device_to_host, there).value();
  const Work attention = link->attention().value();
  for (const auto& [work, other] : {std::pair{down, up}, {up, down}, {down, attention}}) {
    const Contender beside = contender_beside(work, other).value();
    beside.before();
    beside.run();
    const Status right = beside.verify();
    EXPECT_TRUE(right.has_value()) << right.error().message();
  }
}

TEST(LinkEnds, SayWhichMemoryThereIsNot) {
  const Result<Work> work = ends()->piece(Direction::host_to_device, there, HostEnd::driver);
  // A build with CUDA may find a device.
  if (!work) {
    EXPECT_EQ(work.error().code, Errc::unsupported) << work.error().message();
  }
}

}  // namespace
}  // namespace terrace::bench
