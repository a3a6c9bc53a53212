// The special parts of the backend for CUDA, on the stand-in: faults made to order, and counts of
// calls to the device.
#include "terrace/offload/cuda/cuda_backend.hpp"

#include <gmock/gmock.h>

#include <thread>

#include "cuda_on_host/control.hpp"
#include "terrace/offload/topology.hpp"

namespace terrace::offload {
namespace {

using testing::AllOf;
using testing::HasSubstr;

constexpr Duration patience = std::chrono::seconds(60);
constexpr std::size_t mib = std::size_t{1} << 20;

class CudaBackendTest : public testing::Test {
 protected:
  void make(const CudaBackendOptions& options = {}) {
    backend_ = CudaBackend::create(options).value();
  }
  std::unique_ptr<Queue> queue(const char* name) {
    return backend_->make_queue({.name = name}).value();
  }
  Buffer allocate(std::size_t bytes, Tier tier = Tier::host) {
    return backend_->allocate({.bytes = bytes, .tier = tier}).value();
  }
  static Error create_error(const CudaBackendOptions& options = {}) {
    const auto backend = CudaBackend::create(options);
    EXPECT_FALSE(backend.has_value());
    return backend ? Error{} : backend.error();
  }

  /// Copies [tokens] rows of one head to a block: an op of one launch.
  struct Rows {
    KvShape shape{.layers = 1, .query_heads = 1, .kv_heads = 1, .head_dim = 8};
    Buffer source;
    Buffer target;
    std::byte* block;
  };
  Rows make_rows() {
    Rows rows;
    rows.source = allocate(rows.shape.token_bytes());
    rows.target = allocate(rows.shape.token_bytes());
    rows.block = rows.target.data();
    std::fill_n(rows.source.data(), rows.source.bytes(), std::byte{7});
    std::fill_n(rows.target.data(), rows.target.bytes(), std::byte{0});
    return rows;
  }
  Result<Ticket> store(Queue& on, const Rows& rows) {
    const std::size_t half = rows.shape.row_bytes() / 2;
    return backend_->ops().store_rows(on, Phase::update,
                                      {.source = {.keys = rows.source.data(),
                                                  .values = rows.source.data() + half,
                                                  .token_stride = 2 * half,
                                                  .head_stride = 2 * half},
                                       .tokens = {0, 1},
                                       .target = {.blocks = &rows.block, .block_tokens = 1},
                                       .shape = rows.shape});
  }

  cuda_on_host::Device device_;
  std::unique_ptr<Backend> backend_;
};

TEST_F(CudaBackendTest, SaysWhatToDoWithoutADriver) {
  device_.set({.driver = false});
  const Error error = create_error();
  EXPECT_EQ(error.code, Errc::unsupported);
  EXPECT_THAT(std::string(error.message()), AllOf(HasSubstr("driver"), HasSubstr("backend host")));
}

TEST_F(CudaBackendTest, SaysWhatToDoWithADriverThatIsTooOld) {
  device_.set({.driver_version = 12040});
  const Error error = create_error();
  EXPECT_EQ(error.code, Errc::unsupported);
  EXPECT_THAT(std::string(error.message()), AllOf(HasSubstr("12.4"), HasSubstr("13.0")));
}

TEST_F(CudaBackendTest, SaysWhatToDoWithoutADevice) {
  device_.set({.device_count = 0});
  EXPECT_THAT(std::string(create_error().message()), HasSubstr("CUDA_VISIBLE_DEVICES"));
  device_.set({.device_count = 2});
  const Error error = create_error({.device = 2});
  EXPECT_EQ(error.code, Errc::unsupported);
  EXPECT_THAT(std::string(error.message()), AllOf(HasSubstr("device 2"), HasSubstr("2 are")));
}

TEST_F(CudaBackendTest, NamesTheOptionThatMakesNoSense) {
  EXPECT_THAT(std::string(create_error({.registration_bytes = 3 * mib}).message()),
              HasSubstr("registration_bytes"));
  EXPECT_THAT(std::string(create_error({.queue_capacity = 1}).message()),
              HasSubstr("queue_capacity"));
}

TEST_F(CudaBackendTest, ReportsADeviceThatIsFullAndGoesOn) {
  device_.set({.memory_bytes = 8 * mib});
  make();
  const auto refused = backend_->allocate({.bytes = 9 * mib});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Errc::out_of_memory);
  EXPECT_THAT(std::string(refused.error().message()),
              AllOf(HasSubstr("8 MiB of 8 MiB"), HasSubstr("device.memory")));
  EXPECT_EQ(backend_->memory(Tier::device).in_use, 0U);
  EXPECT_TRUE(backend_->allocate({.bytes = 8 * mib}));
}

TEST_F(CudaBackendTest, ReportsMemoryThatCannotBeLockedAndGoesOn) {
  device_.set({.lockable_bytes = 20 * mib});
  make();
  const auto refused = backend_->allocate({.bytes = 24 * mib, .tier = Tier::host});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Errc::out_of_memory);
  EXPECT_THAT(std::string(refused.error().message()), HasSubstr("ulimit -l"));
  EXPECT_TRUE(backend_->allocate({.bytes = mib, .tier = Tier::host}));
}

TEST_F(CudaBackendTest, LocksHostMemoryInBoundedPiecesAndUnlocksIt) {
  make({.registration_bytes = 4 * mib});
  {
    const Buffer large = allocate(21 * mib);
    EXPECT_GE(device_.counts().registered_bytes, 21 * mib);
    EXPECT_LE(device_.counts().largest_registration, 4 * mib);
  }
  backend_.reset();
  EXPECT_EQ(device_.counts().registered_bytes, 0U);
}

TEST_F(CudaBackendTest, CopiesAcrossPiecesOfLockedMemory) {
  for (const bool batched : {true, false}) {
    device_.set({.batched_copies = batched});
    make({.registration_bytes = 2 * mib});
    const Buffer source = allocate(7 * mib);
    const Buffer target = allocate(7 * mib);
    for (std::size_t i = 0; i < source.bytes(); ++i) {
      source.data()[i] = static_cast<std::byte>(i * 31 >> 3);
    }
    const auto copies = queue("copy");
    const CopyExtent extent{target.data(), source.data(), source.bytes()};
    ASSERT_TRUE(copies->copy(Phase::offload, {&extent, 1}));
    const Status done = copies->drain(patience);
    ASSERT_TRUE(done) << done.error().message();
    EXPECT_TRUE(std::equal(source.data(), source.data() + source.bytes(), target.data()));
    EXPECT_EQ(copies->counters().bytes[static_cast<std::size_t>(Phase::offload)], 7 * mib);
  }
}

TEST_F(CudaBackendTest, GivesABatchToTheDriverAtOnceWhereItTakesOne) {
  for (const bool batched : {true, false}) {
    device_.set({.batched_copies = batched});
    make();
    const Buffer source = allocate(64 * 100);
    const Buffer target = allocate(64 * 100, Tier::device);
    std::vector<CopyExtent> extents;
    for (std::size_t at = 0; at < source.bytes(); at += 64) {
      extents.push_back({target.data() + at, source.data() + at, 64});
    }
    const auto copies = queue("copy");
    for (int i = 0; i < 3; ++i) ASSERT_TRUE(copies->copy(Phase::refill, extents));
    ASSERT_TRUE(copies->drain(patience));
    const cuda_on_host::DeviceCounts counts = device_.counts();
    EXPECT_EQ(counts.batch_calls, batched ? 3U : 1U) << "a driver without is asked once";
    EXPECT_EQ(counts.copy_calls, batched ? 0U : 300U);
  }
}

TEST_F(CudaBackendTest, CopiesByAKernelWhatIsTooShortForTheEngine) {
  make({.switch_over_bytes = 300});
  const Buffer source = allocate(200'000);
  const Buffer target = allocate(200'000, Tier::device);
  std::vector<std::byte> of_the_user(500, std::byte{9});
  for (std::size_t i = 0; i < source.bytes(); ++i) {
    source.data()[i] = static_cast<std::byte>(i * 31 >> 3);
  }
  std::fill_n(target.data(), target.bytes(), std::byte{0});
  std::vector<std::byte> expected(target.bytes());
  std::vector<CopyExtent> extents;
  const auto add = [&](std::size_t at, const std::byte* from, std::size_t bytes) {
    extents.push_back({target.data() + at, from, bytes});
    std::copy_n(from, bytes, expected.begin() + static_cast<std::ptrdiff_t>(at));
  };
  for (std::size_t i = 1; i < 299; ++i) add(512 * i, source.data() + 304 * i, i);
  const auto copy = queue("copy");
  const auto run = [&] {
    ASSERT_TRUE(copy->copy(Phase::refill, extents));
    const Status done = copy->drain(patience);
    ASSERT_TRUE(done) << done.error().message();
    EXPECT_TRUE(std::equal(expected.begin(), expected.end(), target.data()));
  };
  run();
  EXPECT_EQ(device_.counts().launches, 3U) << "128 extents each";
  EXPECT_EQ(device_.counts().batch_calls + device_.counts().copy_calls, 0U);
  add(170'000, source.data(), 300);
  run();
  EXPECT_EQ(device_.counts().copy_calls, 1U) << "the one that is long enough";
  extents.clear();
  add(180'000, of_the_user.data(), 100);
  run();
  EXPECT_EQ(device_.counts().launches, 6U) << "no kernel reads memory that is not the backend's";
  EXPECT_EQ(device_.counts().copy_calls, 2U);
  extents.clear();
  add(190'001, source.data(), 100);
  run();
  EXPECT_EQ(device_.counts().copy_calls, 3U) << "an end that is not aligned";
}

TEST_F(CudaBackendTest, CutsLongCopiesByAKernel) {
  make({.switch_over_bytes = std::size_t{1} << 30});
  const Buffer source = allocate(600'000);
  const Buffer target = allocate(600'000, Tier::device);
  for (std::size_t i = 0; i < source.bytes(); ++i) {
    source.data()[i] = static_cast<std::byte>(i * 31 >> 3);
  }
  const CopyExtent extents[] = {{target.data(), source.data(), 64},
                                {target.data() + 64, source.data() + 64, 600'000 - 64}};
  const auto copy = queue("copy");
  ASSERT_TRUE(copy->copy(Phase::refill, extents));
  ASSERT_TRUE(copy->drain(patience));
  EXPECT_TRUE(std::equal(source.data(), source.data() + source.bytes(), target.data()));
  EXPECT_EQ(device_.counts().launches, 2U) << "148 pieces";
}

TEST_F(CudaBackendTest, TellsTheDeviceOfWorkAfterWorkThatIsNotDone) {
  make();
  const auto first = queue("first");
  const auto second = queue("second");
  const Rows rows = make_rows();
  const Buffer copied = allocate(rows.target.bytes());
  ASSERT_TRUE(store(*first, rows));
  ASSERT_TRUE(second->wait_for(*first->record()));
  const CopyExtent extent{copied.data(), rows.target.data(), copied.bytes()};
  ASSERT_TRUE(second->copy(Phase::offload, {&extent, 1}));
  ASSERT_TRUE(second->drain(patience));
  EXPECT_EQ(copied.data()[0], std::byte{7});
  EXPECT_EQ(device_.counts().synchronizations, 0U);
}

TEST_F(CudaBackendTest, SkipsWorkUnknownToTheDeviceAfterAFailure) {
  make();
  const auto compute = queue("compute");
  const auto other = queue("other");
  const Rows rows = make_rows();
  const std::uint64_t launches = device_.counts().launches;
  ASSERT_TRUE(compute->call(
      Phase::model, []() -> Result<std::size_t> { return fail(Errc::device_error, "broken"); }));
  ASSERT_TRUE(store(*compute, rows));
  ASSERT_TRUE(other->wait_for(*compute->record()));
  ASSERT_TRUE(store(*other, rows));
  EXPECT_EQ(compute->drain(patience).error().message(), "broken");
  EXPECT_EQ(other->drain(patience).error().message(), "broken");
  EXPECT_EQ(device_.counts().launches, launches);
  EXPECT_EQ(rows.target.data()[0], std::byte{0});
  ASSERT_TRUE(compute->clear_error());
  ASSERT_TRUE(store(*compute, rows));
  EXPECT_TRUE(compute->drain(patience));
  EXPECT_EQ(rows.target.data()[0], std::byte{7});
}

TEST_F(CudaBackendTest, ADeviceLostInTheMiddleEndsEveryWaitAndIsRefusedFromThenOn) {
  make();
  const auto compute = queue("compute");
  const auto offload = queue("offload");
  const Rows rows = make_rows();
  device_.break_at_launch(3);
  const Ticket before = store(*compute, rows).value();
  ASSERT_TRUE(wait(before, patience));
  for (int i = 0; i < 5; ++i) ASSERT_TRUE(store(*compute, rows));
  ASSERT_TRUE(offload->wait_for(*compute->record()));
  ASSERT_TRUE(store(*offload, rows));
  for (Queue* const each : {compute.get(), offload.get()}) {
    const Status status = each->drain(patience);
    ASSERT_FALSE(status);
    EXPECT_EQ(status.error().code, Errc::device_lost);
    EXPECT_THAT(std::string(status.error().message()), HasSubstr("cudaErrorIllegalAddress"));
  }
  EXPECT_TRUE(poll(before).value());
  EXPECT_EQ(backend_->allocate({.bytes = 64}).error().code, Errc::device_lost);
  EXPECT_EQ(backend_->make_queue({.name = "late"}).error().code, Errc::device_lost);
  ASSERT_TRUE(compute->clear_error());
  ASSERT_TRUE(store(*compute, rows));
  EXPECT_EQ(compute->drain(patience).error().code, Errc::device_lost);
}

TEST_F(CudaBackendTest, ALaunchThatIsRefusedFailsItsQueueOnly) {
  make();
  const auto compute = queue("compute");
  const auto other = queue("other");
  const Rows rows = make_rows();
  device_.fail("cudaLaunchKernelEx", {.nth = 1, .error = cudaErrorLaunchOutOfResources});
  ASSERT_TRUE(store(*compute, rows));
  const Status status = compute->drain(patience);
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, Errc::device_error);
  EXPECT_THAT(std::string(status.error().message()), HasSubstr("store_rows"));
  ASSERT_TRUE(store(*other, rows));
  EXPECT_TRUE(other->drain(patience));
}

TEST_F(CudaBackendTest, TouchesHostMemoryByAllCpusOfItsNodeUnlessToldOtherwise) {
  const auto threads = [this](const CudaBackendOptions& options) {
    make(options);
    static_cast<void>(allocate(mib));
    return static_cast<const CudaBackend&>(*backend_).host_memory_report().touch_threads;
  };
  const Topology topology = Topology::discover().value();
  std::size_t all = 0;
  for (const NumaNode& node : topology.nodes()) all += node.cpus.size();
  EXPECT_EQ(threads({}), all);  // the stand-in names no node
  EXPECT_EQ(threads({.host_threads = 5, .numa_node = topology.nodes()[0].index}),
            topology.nodes()[0].cpus.size());
  EXPECT_EQ(threads({.host_threads = 5, .touch_threads = 3}), 3U);
}

TEST_F(CudaBackendTest, LocksMemoryAheadInTheBackground) {
  make({.host_reserve_bytes = 12 * mib, .registration_bytes = 4 * mib});
  const auto deadline = std::chrono::steady_clock::now() + patience;
  while (device_.counts().registered_bytes < 12 * mib) {
    ASSERT_LT(std::chrono::steady_clock::now(), deadline);
    std::this_thread::yield();
  }
  const std::uint64_t locked = device_.counts().registered_bytes;
  const Buffer first = allocate(3 * mib);
  const Buffer second = allocate(3 * mib);
  EXPECT_EQ(device_.counts().registered_bytes, locked);
}

TEST_F(CudaBackendTest, SaysThatTheHostDoesNotReadTheDevice) {
  make();
  EXPECT_FALSE(backend_->capabilities().host_reads_device);
  EXPECT_TRUE(backend_->capabilities().pinned_host);
  EXPECT_EQ(backend_->name(), "cuda");
}

}  // namespace
}  // namespace terrace::offload
