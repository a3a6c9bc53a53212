// Machine profiles: written, read back, and refused when they lie.
#include "terrace/runtime/machine_profile.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace terrace {
namespace {

using ::testing::HasSubstr;

MachineProfile sample() {
  MachineProfile profile{.date = "2026-03-01", .cpu = "Some: CPU", .isa = "avx2"};
  policies::CostModel costs;
  costs.compute.c = {1e-4, 2.5e-6, 3.25e-11};
  costs.kmeans_iteration.c = {0, 1.0 / 3.0, 0};
  costs.residuals = {.compute = 0.03, .offload = 0.5, .kmeans = 0.125};
  profile.compute["pqcache, 2 subspaces; 1 thread"] = costs;
  profile.host["memory_read"] = 2.1e10;
  profile.link = LinkCosts{.bandwidth = 2.5e10, .latency = 1e-5, .switch_over = 65536};
  profile.nvme = NvmeCosts{.read = 3.2e9, .write = 1.4e9, .latency = 8e-5};
  return profile;
}

TEST(MachineProfile, ReadsBackWhatItWrote) {
  const auto read = MachineProfile::parse(sample().to_yaml(), "p.yaml");
  ASSERT_TRUE(read.has_value()) << read.error().message();
  EXPECT_EQ(read->date, "2026-03-01");
  EXPECT_EQ(read->cpu, "Some: CPU");
  const auto& costs = read->compute.at("pqcache, 2 subspaces; 1 thread");
  EXPECT_EQ(costs.compute.c, sample().compute.begin()->second.compute.c);
  EXPECT_EQ(costs.kmeans_iteration.c[1], 1.0 / 3.0);
  EXPECT_EQ(costs.residuals.offload, 0.5);
  EXPECT_EQ(read->host.at("memory_read"), 2.1e10);
  EXPECT_EQ(read->link->latency, 1e-5);
  EXPECT_EQ(read->link->switch_over, 65536);
  EXPECT_EQ(read->nvme->read, 3.2e9);
  EXPECT_EQ(read->nvme->write, 1.4e9);
  EXPECT_EQ(read->nvme->latency, 8e-5);
  EXPECT_EQ(read->to_yaml(), sample().to_yaml());
}

TEST(MachineProfile, OfALinkWithoutAKernelSaysNotWhereCopiesSwitchOver) {
  MachineProfile profile = sample();
  profile.link->switch_over = 0;
  EXPECT_THAT(profile.to_yaml(), ::testing::Not(HasSubstr("switch_over")));
  EXPECT_EQ(MachineProfile::parse(profile.to_yaml(), "p.yaml")->link->switch_over, 0);
}

TEST(MachineProfile, SectionsMayBeMissing) {
  const auto read = MachineProfile::parse("version: 1\n", "p.yaml");
  ASSERT_TRUE(read.has_value());
  EXPECT_TRUE(read->compute.empty());
  EXPECT_FALSE(read->link.has_value());
  EXPECT_FALSE(read->nvme.has_value());
}

TEST(MachineProfile, RefusesWhatItIsNotWithTheLine) {
  struct Case {
    std::string_view yaml;
    const char* place;
    const char* says;
  };
  constexpr Case cases[] = {
      {"", "p.yaml: no machine profile", "--write-profile"},
      {"# bandwidth: 1\n\n", "p.yaml: no machine profile", "nothing in it"},
      {"---\n", "p.yaml: no machine profile", "nothing in it"},
      {"[1, 2]", "p.yaml:1", "no machine profile"},
      {"date: x\n", "p.yaml:1", "no version"},
      {"version: 2\n", "p.yaml:1", "another version"},
      {"version: 1\nlinks: {}\n", "p.yaml:2", "unknown field 'links'"},
      {"version: 1\nhost: {memory_read: -1}\n", "p.yaml:2", "no figure of zero or more"},
      {"version: 1\nhost: {memory_read: .inf}\n", "p.yaml:2", "no figure of zero or more"},
      {"version: 1\nhost: 5\n", "p.yaml:2", "host is no map"},
      {"version: 1\nlink: {bandwidth: 1}\n", "p.yaml:2", "needs bandwidth and latency"},
      {"version: 1\nlink: {bandwidth: 1, latency: 1, switch_over: 1e30}\n", "p.yaml:2",
       "larger than any copy"},
      {"version: 1\nlink: {bandwidth: 0, latency: 0}\n", "p.yaml:2", "no bandwidth"},
      {"version: 1\nnvme: 3\n", "p.yaml:2", "nvme is no map"},
      {"version: 1\nnvme: {read: 1, write: 1}\n", "p.yaml:2", "needs read, write and latency"},
      {"version: 1\nnvme: {read: 0, write: 1, latency: 0}\n", "p.yaml:2", "never read or written"},
      {"version: 1\nnvme: {read: 1, write: 1, latency: -1}\n", "p.yaml:2", "no figure of zero"},
      {"version: 1\nnvme: {read: 1, write: 1, latency: 1, speed: 1}\n", "p.yaml:2",
       "unknown field 'speed'"},
      {"version: 1\nnvme: {read: 1, read: 1, write: 1, latency: 1}\n", "p.yaml:2",
       "a second 'read'"},
      {"version: 1\ncompute: {}\n", "p.yaml:2", "compute is no list"},
      {"version: 1\ncompute:\n  - 5\n", "p.yaml:3", "fits without a setting"},
      {"version: 1\ncompute:\n  - {setting: a}\n", "p.yaml:3", "no fit 'compute'"},
      {"version: 1\ncompute:\n  - {setting: a, compute: [1, 2]}\n", "p.yaml:3", "three figures"},
      {"version: 1\nlink: {bandwidth: 1, latency: 1, speed: 1}\n", "p.yaml:2",
       "unknown field 'speed'"},
      {"version: 1\nlink:\n  latency: 1\n  bandwidth: 12\n  latency\n", "p.yaml:5",
       "a second 'latency'"},
      {"version: 1\nlink: {bandwidth: 1, latency: 1,, switch_over: 1}\n", "p.yaml:2", "no text"},
      {"version: 1\nhost: {a: 1, a: 2}\n", "p.yaml:2", "a second 'a'"},
      {"version: 1\nversion: 1\n", "p.yaml:2", "a second 'version'"},
      {"version: 1\ncpu: [a]\n", "p.yaml:2", "no text"},
      {"version: 1\nisa:\n", "p.yaml:", "no text"},
      {"version: 1\n---\n[\n", "p.yaml:", ""},
      {"version: 1\n---\ndate: x\n", "p.yaml:2", "a second document"},
      {"version: 1\ncpu: \"a\nhost: {b: 1}\n", "p.yaml:", "no YAML"},
      {"version: [1\n", "p.yaml:", "end of sequence"},
      {{"TRCE\0\5", 6}, "p.yaml: ", "zero bytes"},
  };
  for (const Case& one : cases) {
    const auto read = MachineProfile::parse(one.yaml, "p.yaml");
    ASSERT_FALSE(read.has_value()) << one.yaml;
    EXPECT_EQ(read.error().code, Errc::invalid_argument);
    EXPECT_THAT(std::string(read.error().message()), HasSubstr(one.place)) << one.yaml;
    EXPECT_THAT(std::string(read.error().message()), HasSubstr(one.says)) << one.yaml;
  }
}

TEST(MachineProfile, NamesAFileThatCannotBeRead) {
  for (const std::string path : {"/nowhere/p.yaml", "/usr"}) {
    const auto read = MachineProfile::read(path);
    ASSERT_FALSE(read.has_value());
    EXPECT_EQ(read.error().code, Errc::io_error);
    EXPECT_THAT(std::string(read.error().message()), HasSubstr(path + ": "));
  }
}

}  // namespace
}  // namespace terrace
