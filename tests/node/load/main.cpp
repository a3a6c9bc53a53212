// Measures a daemon in this process: node_load [CLIENTS [SECONDS]].
//
// Look-ups of eight chunks each, by clients that ask without a pause and by clients that together
// ask 10,000 times a second; and the rate at which parts in memory are read, beside memcpy.
#include <fmt/core.h>
#include <time.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <vector>

#include "node/made_node.hpp"

namespace terrace::node {
namespace {

using SteadyTime = std::chrono::steady_clock;

constexpr std::size_t keys_of_look_up = 8;
constexpr double look_ups_a_second = 10'000;

/// Returns how long each look-up took, in microseconds. `pause`: between two beginnings; 0 = none.
std::vector<double> look_up_for(DaemonClient& client, SteadyTime::time_point end, Duration pause) {
  const auto keys = some_keys(keys_of_look_up);
  std::vector<double> times;
  for (auto next = SteadyTime::now(); next < end; next += pause) {
    std::this_thread::sleep_until(next);
    const auto begin = SteadyTime::now();
    const DaemonLookUp found = find(client, keys);
    times.push_back(std::chrono::duration<double, std::micro>(SteadyTime::now() - begin).count());
    if (found.run.size() != keys_of_look_up) std::abort();
    if (pause == Duration::zero()) next = SteadyTime::now();
  }
  return times;
}

/// Processor time of this process so far, in microseconds: daemon and clients.
double processor_us() {
  timespec time{};
  ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) * 1e6 + static_cast<double>(time.tv_nsec) / 1e3;
}

void measure_look_ups(const NodePlace& place, std::size_t clients, double seconds, bool paced) {
  const auto pause = paced ? Duration(static_cast<Duration::rep>(
                                 1e9 * static_cast<double>(clients) / look_ups_a_second))
                           : Duration::zero();
  const auto end = SteadyTime::now() +
                   std::chrono::duration_cast<Duration>(std::chrono::duration<double>(seconds));
  const double processor_before = processor_us();
  std::vector<std::vector<double>> times(clients);
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < clients; ++i) {
    threads.emplace_back([&, i] {
      const auto client = place.client();
      times[i] = look_up_for(*client, end, pause);
    });
  }
  for (std::thread& thread : threads) thread.join();
  std::vector<double> all;
  for (const auto& each : times) all.insert(all.end(), each.begin(), each.end());
  std::ranges::sort(all);
  const auto at = [&](double share) {
    return all[static_cast<std::size_t>(share * static_cast<double>(all.size() - 1))];
  };
  fmt::print(
      "{} clients, {}: {:.0f} look-ups/s, us: p50 {:.0f}, p99 {:.0f}, max {:.0f}, processor "
      "time of daemon and clients for each {:.1f}\n",
      clients, paced ? "10,000 a second" : "no pause", static_cast<double>(all.size()) / seconds,
      at(0.5), at(0.99), all.back(),
      (processor_us() - processor_before) / static_cast<double>(all.size()));
}

double rate(std::size_t bytes, SteadyTime::time_point begin) {
  return static_cast<double>(bytes) / 1e9 /
         std::chrono::duration<double>(SteadyTime::now() - begin).count();
}

/// Parts of 64 KiB, 64 MiB of them, read again and again: a request names 256 of them.
void measure_reads(const NodePlace& place, double seconds) {
  constexpr std::size_t part_bytes = std::size_t{64} << 10;
  constexpr std::size_t parts = 1024;
  const auto client = place.client();
  const std::vector<std::byte> bytes(part_bytes, std::byte{7});
  std::vector<DaemonPartBytes> published;
  std::vector<DaemonPartRequest> wanted;
  for (std::uint32_t i = 0; i < parts; ++i) {
    published.push_back({{.layer = i}, bytes});
    wanted.push_back({.name = {.layer = i}});
  }
  const auto key = some_keys(1, 5000);
  if (!client->publish({.root = some_root, .key = key[0], .tokens = 1}, published, nullptr)) {
    std::abort();
  }
  const DaemonLookUp found = find(*client, key);
  auto begin = SteadyTime::now();
  if (!client->read(found.lease, wanted)) std::abort();
  fmt::print("parts of 64 KiB, first read, from the file: {:.2f} GB/s\n",
             rate(parts * part_bytes, begin));
  std::vector<std::byte> target(parts * part_bytes);
  for (const bool by_daemon : {true, false}) {
    std::size_t moved = 0;
    std::vector<std::byte> source(parts * part_bytes, std::byte{7});
    begin = SteadyTime::now();
    while (SteadyTime::now() - begin < std::chrono::duration<double>(seconds)) {
      const auto read = client->read(found.lease, wanted).value();
      for (std::size_t i = 0; i < parts; ++i) {
        const std::byte* const from = by_daemon ? read[i]->data() : source.data() + i * part_bytes;
        std::memcpy(target.data() + i * part_bytes, from, part_bytes);
      }
      moved += parts * part_bytes;
    }
    fmt::print("{}: {:.2f} GB/s\n",
               by_daemon ? "parts read in memory and copied out" : "as many requests, own memory",
               rate(moved, begin));
  }
  std::size_t moved = 0;
  const std::vector<std::byte> source(parts * part_bytes, std::byte{7});
  begin = SteadyTime::now();
  while (SteadyTime::now() - begin < std::chrono::duration<double>(seconds)) {
    std::memcpy(target.data(), source.data(), source.size());
    moved += source.size();
  }
  fmt::print("memcpy alone: {:.2f} GB/s\n", rate(moved, begin));
}

}  // namespace
}  // namespace terrace::node

int main(int argc, char** argv) {
  using namespace terrace::node;
  const std::size_t clients = argc > 1 ? std::strtoull(argv[1], nullptr, 10) : 64;
  const double seconds = argc > 2 ? std::strtod(argv[2], nullptr) : 2;
  const NodePlace place;
  DaemonOptions options = place.options();
  options.file.bytes = std::uint64_t{256} << 20;
  options.memory = std::uint64_t{256} << 20;
  RunningDaemon daemon(options);
  const auto client = place.client();
  for (const auto& key : some_keys(keys_of_look_up)) {
    if (!publish(*client, key)) std::abort();
  }
  measure_look_ups(place, 1, seconds, false);
  measure_look_ups(place, clients, seconds, false);
  measure_look_ups(place, clients, seconds, true);
  measure_reads(place, seconds);
}
