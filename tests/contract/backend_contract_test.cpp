// Memory and names of every backend.
#include <gmock/gmock.h>

#include <cmath>

#include "contract/backend_case.hpp"

namespace terrace {
namespace {

using testing::AllOf;
using testing::HasSubstr;

class MemoryContract : public BackendContract {};

TEST_P(MemoryContract, CountsWhatIsInUseAndItsPeakInEachTier) {
  for (const Tier tier : {Tier::device, Tier::host}) {
    auto first = backend_->allocate({.bytes = 1000, .tier = tier}).value();
    {
      const auto second = backend_->allocate({.bytes = 500, .tier = tier}).value();
      EXPECT_EQ(backend_->memory(tier).in_use, 1500U);
    }
    EXPECT_EQ(backend_->memory(tier).in_use, 1000U);
    EXPECT_EQ(backend_->memory(tier).peak, 1500U);
    backend_->reset_peak();
    EXPECT_EQ(backend_->memory(tier).peak, 1000U);
    first.reset();
    EXPECT_EQ(backend_->memory(tier).in_use, 0U);
  }
  EXPECT_EQ(backend_->memory(Tier::device).limit, device_limit);
  EXPECT_EQ(backend_->memory(Tier::host).limit, host_limit);
}

TEST_P(MemoryContract, RefusesWhatIsOverTheLimitAndNamesTheNumbers) {
  const auto most = backend_->allocate({.bytes = device_limit - 100}).value();
  const auto refused = backend_->allocate({.bytes = 101, .purpose = Purpose::cache});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Errc::out_of_memory);
  EXPECT_THAT(
      std::string(refused.error().message()),
      HasSubstr(
          "device.memory is 1 MiB, 1024 KiB in use (kv 1024 KiB); 101 B more wanted for cache"));
  EXPECT_TRUE(backend_->allocate({.bytes = 100}));
  EXPECT_TRUE(backend_->allocate({.bytes = 101, .tier = Tier::host}));
}

TEST_P(MemoryContract, RefusesRequestsThatMakeNoSense) {
  EXPECT_EQ(backend_->allocate({.bytes = 0}).error().code, Errc::invalid_argument);
  EXPECT_EQ(backend_->allocate({.bytes = 64, .alignment = 48}).error().code,
            Errc::invalid_argument);
  const auto nvme = backend_->allocate({.bytes = 64, .tier = Tier::nvme});
  ASSERT_FALSE(nvme);
  EXPECT_THAT(std::string(nvme.error().message()), HasSubstr("nvme"));
}

TEST_P(MemoryContract, AlignsAndDoesNotOverlap) {
  std::vector<Buffer> buffers;
  for (const std::size_t alignment : {1U, 64U, 256U, 4096U, 65536U}) {
    for (const std::size_t bytes : {1U, 63U, 4097U}) {
      buffers.push_back(backend_->allocate({.bytes = bytes, .alignment = alignment}).value());
      const auto address = reinterpret_cast<std::uintptr_t>(buffers.back().data());
      EXPECT_EQ(address % alignment, 0U);
      fill(buffers.back(), static_cast<std::byte>(buffers.size()));
    }
  }
  for (std::size_t i = 0; i < buffers.size(); ++i) {
    EXPECT_EQ(read(buffers[i]),
              std::vector<std::byte>(buffers[i].bytes(), static_cast<std::byte>(i + 1)));
  }
}

TEST_P(MemoryContract, AQueueSaysItsName) {
  EXPECT_EQ(queue("compute")->name(), "compute");
  EXPECT_EQ(backend_->make_host_queue({.name = "cluster"}).value()->name(), "cluster");
}

#ifndef NDEBUG
TEST_P(MemoryContract, FreshMemoryIsNotANumber) {
  for (const Tier tier : {Tier::device, Tier::host}) {
    const std::vector<std::byte> bytes =
        read(backend_->allocate({.bytes = 64, .tier = tier}).value());
    EXPECT_TRUE(std::isnan(reinterpret_cast<const float*>(bytes.data())[15]));
  }
}
#endif

INSTANTIATE_TEST_SUITE_P(Backends, MemoryContract, testing::ValuesIn(backend_cases()),
                         [](const auto& each) { return each.param.name; });

}  // namespace
}  // namespace terrace
