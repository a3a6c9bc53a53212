// The file in which a runtime publishes what its sequences have counted.
#include <gmock/gmock.h>

#include <filesystem>
#include <map>
#include <sstream>
#include <string>

#include "core/temporary_folder.hpp"
#include "runtime/scenario.hpp"
#include "terrace/core/read_file.hpp"

namespace terrace {
namespace {

using testing::Drive;
using testing::Scenario;
using testing::Traffic;

using Counters = std::map<std::string, double>;

class PublishedCounters : public ::testing::Test {
 protected:
  PublishedCounters() {
    scenario_.runtime.counters_file = file_;
    scenario_.backend.clock = &clock_;
  }

  /// The counters in the file, by name and label.
  [[nodiscard]] Counters published() const {
    std::istringstream lines(read_file(file_, 1 << 20).value());
    Counters counters;
    for (std::string line; std::getline(lines, line);) {
      if (line.starts_with('#')) continue;
      const std::size_t blank = line.rfind(' ');
      counters[line.substr(0, blank)] = std::stod(line.substr(blank));
    }
    return counters;
  }
  /// Has the next step publish.
  void let_a_second_pass() { clock_.advance(std::chrono::seconds{1}); }

  static void expect_sum(const Counters& all, const SequenceCounters& one,
                         const SequenceCounters& other) {
    const auto expect = [&](const char* name, auto count) {
      EXPECT_EQ(all.at(name), static_cast<double>(count(one) + count(other))) << name;
    };
    using Of = const SequenceCounters&;
    expect("terrace_steps_total", [](Of of) { return of.steps; });
    expect("terrace_prompt_steps_total", [](Of of) { return of.prompt_steps; });
    expect("terrace_attended_entries_total", [](Of of) { return of.attended; });
    expect("terrace_attended_lists_total", [](Of of) { return of.lists; });
    expect("terrace_index_builds_total", [](Of of) { return of.builds; });
    expect("terrace_cache_rows_total{result=\"hit\"}", [](Of of) { return of.cache.rows_hit; });
    expect("terrace_cache_rows_total{result=\"missed\"}",
           [](Of of) { return of.cache.rows_missed; });
    expect("terrace_cache_units_total{event=\"admitted\"}",
           [](Of of) { return of.cache.admitted; });
    expect("terrace_link_bytes_total{reason=\"demand\"}", [](Of of) { return of.bytes.demand; });
    expect("terrace_link_bytes_total{reason=\"offload\"}", [](Of of) { return of.bytes.offload; });
  }

  TemporaryFolder folder_;
  std::string file_ = folder_ / "terrace.prom";
  ManualClock clock_;
  Scenario scenario_;
  Traffic traffic_{scenario_.runtime.shape, 1};
};

TEST_F(PublishedCounters, AreThoseOfAllSequencesAlsoOfClosedOnes) {
  const auto runtime = scenario_.open();
  SequenceCounters of_closed;
  {
    Drive closed(*runtime, traffic_);
    ASSERT_TRUE(closed.prefill(300).has_value());
    ASSERT_TRUE(closed.steps(3).has_value());
    of_closed = closed.sequence().counters();
    EXPECT_EQ(published().at("terrace_steps_total"), 0) << "no second has passed";
  }
  Drive open(*runtime, traffic_);
  ASSERT_TRUE(open.prefill(200).has_value());
  open.sequence().reset_counters();  // they are published all the same
  ASSERT_TRUE(open.steps(5).has_value());
  let_a_second_pass();
  ASSERT_TRUE(open.steps(1).has_value());
  const Counters now = published();
  EXPECT_EQ(now.at("terrace_sequences"), 1);
  EXPECT_EQ(now.at("terrace_memory_in_use_bytes{tier=\"host\"}"),
            static_cast<double>(runtime->backend().memory(Tier::host).in_use));
  EXPECT_GT(now.at("terrace_cache_rows_total{result=\"hit\"}"), 0);
  SequenceCounters of_open = open.sequence().counters();
  // Before the reset the prompt was counted.
  of_open.steps += 1;
  of_open.prompt_steps += 1;
  of_open.builds += scenario_.runtime.shape.layers;
  of_open.bytes.offload += 200 * scenario_.runtime.shape.layers *  //
                           scenario_.runtime.shape.token_bytes();
  expect_sum(now, of_closed, of_open);
}

TEST_F(PublishedCounters, AreWrittenOnceASecondAtMost) {
  const auto runtime = scenario_.open();
  Drive drive(*runtime, traffic_);
  ASSERT_TRUE(drive.prefill(100).has_value());
  let_a_second_pass();
  ASSERT_TRUE(drive.steps(1).has_value());
  const double steps = published().at("terrace_steps_total");
  ASSERT_TRUE(drive.steps(4).has_value());
  EXPECT_EQ(published().at("terrace_steps_total"), steps);
  let_a_second_pass();
  ASSERT_TRUE(drive.steps(1).has_value());
  EXPECT_EQ(published().at("terrace_steps_total"), steps + 5);
}

TEST_F(PublishedCounters, GoWithTheRuntime) {
  std::unique_ptr<Runtime> runtime = scenario_.open();
  EXPECT_TRUE(std::filesystem::exists(file_));
  auto sequence = runtime->open_sequence().value();
  runtime.reset();
  sequence.reset();
  EXPECT_FALSE(std::filesystem::exists(file_));
}

TEST_F(PublishedCounters, HaveAHeadForEachFamily) {
  const auto runtime = scenario_.open();
  const std::string text = read_file(file_, 1 << 20).value();
  EXPECT_THAT(text, ::testing::HasSubstr("# TYPE terrace_cache_rows_total counter\n"
                                         "terrace_cache_rows_total{result=\"hit\"} 0\n"
                                         "terrace_cache_rows_total{result=\"missed\"} 0\n"));
  EXPECT_THAT(text, ::testing::HasSubstr("# TYPE terrace_sequences gauge\n"));
  EXPECT_THAT(text, ::testing::Not(::testing::HasSubstr("# HELP terrace_steps_total \n")));
}

TEST_F(PublishedCounters, RefuseAPathThatCannotBeWritten) {
  const std::string folder = folder_ / "taken";
  std::filesystem::create_directory(folder);
  for (const std::string& path : {folder, std::string(folder_ / "none" / "terrace.prom")}) {
    scenario_.runtime.counters_file = path;
    const auto opened = Runtime::open(scenario_.runtime, offload::HostBackend::create({}).value());
    ASSERT_FALSE(opened.has_value());
    EXPECT_EQ(opened.error().code, Errc::io_error);
    EXPECT_THAT(std::string(opened.error().message()), ::testing::HasSubstr("stats.file"));
  }
  EXPECT_TRUE(std::filesystem::exists(folder)) << "it is somebody else's";
}

}  // namespace
}  // namespace terrace
