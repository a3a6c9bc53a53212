// All tiers at once: random batches in device memory that is too small for them, with rows on the
// host, in a file, and on a server, and with sequences that begin with what others have published.
// Runtimes end, and later ones find the file, another one, or none. No bit of a life changes.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "contract/fuzz.hpp"
#include "redis/redis_server.hpp"
#include "runtime/pressure.hpp"

namespace terrace {
namespace {

using redis::RedisServer;
using testing::Event;
using testing::Life;
using testing::Pressure;
using testing::Scenario;
using testing::Stretch;
using testing::Traffic;

using Past = std::vector<Stretch>;

/// All that has been published, and what it had been through.
class Published {
 public:
  explicit Published(std::size_t chunk_tokens) : chunk_tokens_(chunk_tokens) {}

  struct Prefix {
    Traffic traffic;
    std::size_t length = 0;
  };

  std::uint64_t new_seed() {
    const std::lock_guard lock(mutex_);
    return 100 * ++seeds_;
  }

  /// Notes that the first `length` tokens of a life are about to be published. An index of all of
  /// them may be stored, or of the whole chunks for which there was room.
  void note(const Life& life, std::size_t length) {
    if (length == 0) return;
    const std::lock_guard lock(mutex_);
    prefixes_.push_back({life.traffic, length});
    for (std::size_t end = chunk_tokens_; end < length; end += chunk_tokens_) add_pasts(life, end);
    add_pasts(life, length);
  }

  [[nodiscard]] std::optional<Prefix> any(Rng& rng) {
    const std::lock_guard lock(mutex_);
    if (prefixes_.empty()) return {};
    return prefixes_[rng.below(prefixes_.size())];
  }

  /// Returns what `length` tokens that were found may have been through: an index may be of the
  /// first of them, and the others are a prompt after it then.
  [[nodiscard]] std::vector<Past> pasts_of(const Traffic& traffic, std::size_t length) {
    const std::lock_guard lock(mutex_);
    std::vector<Past> all;
    std::vector<TokenId> tokens = traffic.tokens(length);
    while (!tokens.empty()) {
      const std::size_t rest = length - tokens.size();
      if (const auto found = pasts_.find(tokens); found != pasts_.end()) {
        for (Past past : found->second) {
          if (rest > 0) past.push_back({.traffic = traffic, .events = {prompt_of(rest)}});
          all.push_back(std::move(past));
        }
      }
      tokens.resize((tokens.size() - 1) / chunk_tokens_ * chunk_tokens_);
    }
    all.push_back({{.traffic = traffic, .events = {prompt_of(length)}}});
    return all;
  }

 private:
  /// Notes what a life, cut to its first `length` tokens, has been through.
  void add_pasts(const Life& life, std::size_t length) {
    std::vector<Past>& pasts = pasts_[life.traffic.tokens(length)];
    const std::vector<Past> before = life.pasts.empty() ? std::vector<Past>(1) : life.pasts;
    for (Past past : before) {
      past.push_back({life.traffic, life.queries, life.events});
      past.back().events.push_back({Event::Kind::cut, length});
      pasts.push_back(std::move(past));
    }
  }

  static Event prompt_of(std::size_t tokens) { return {Event::Kind::prompt, tokens}; }

  const std::size_t chunk_tokens_;
  std::mutex mutex_;
  std::uint64_t seeds_ = 0;
  std::vector<Prefix> prefixes_;
  std::map<std::vector<TokenId>, std::vector<Past>> pasts_;
};

/// The counts of a test.
struct Seen {
  std::atomic<std::uint64_t> found{0};      ///< sequences that began with a prefix
  std::atomic<std::uint64_t> published{0};  ///< prefixes
  std::atomic<std::uint64_t> refused{0};    ///< calls, for want of memory
  std::atomic<std::uint64_t> remote{0};     ///< hits with chunks of the server
};

class EveryTier final : public Pressure {
 public:
  EveryTier(Runtime& runtime, const Scenario& roomy, Rng rng, Published& published, Seen& seen)
      : Pressure(runtime, roomy, rng), published_(published), seen_(seen) {
    // An index that is built of rows from a store is built without them.
    batch().leave_hints_out();
  }

  /// Publishes all that sequences have, as if they were to go on in another process.
  void save_all() {
    for (std::size_t i = 0; i < sequences && !::testing::Test::HasFailure(); ++i) {
      if (may_publish(i)) publish(i, sequence(i).length(), /*with_tail=*/true);
    }
  }

 private:
  void open(std::size_t i) override {
    const auto prefix = rng().below(3) == 0 ? std::nullopt : published_.any(rng());
    if (!prefix) return begin(i, Traffic(roomy().runtime.shape, new_seed()), {});
    const bool is_whole = rng().below(3) == 0;
    const std::size_t asked = is_whole ? prefix->length : 1 + rng().below(prefix->length);
    begin(i, prefix->traffic.branch(asked, new_seed()), asked);
  }

  /// Begins with what is found of the first tokens.
  void begin(std::size_t i, const Traffic& traffic, std::size_t asked) {
    const std::vector<TokenId> tokens = traffic.tokens(asked);
    auto opened = runtime().open_sequence({.tokens = tokens, .with_tail = rng().below(2) == 0});
    if (!went_well("open", testing::status_of(opened))) {
      opened = runtime().open_sequence();
      ASSERT_TRUE(opened.has_value()) << opened.error().message();
    }
    const std::size_t found = (*opened)->length();
    life(i) = {.traffic = traffic, .queries = queries(), .has_hints = false, .begun_with = found};
    life(i).longest = found;
    if (found > 0) {
      ++seen_.found;
      life(i).pasts = published_.pasts_of(traffic, found);
    }
    batch().replace(i, std::move(*opened), traffic);
    if (rng().below(8) != 0) announce(i, 1 + rng().below(150));
  }

  bool may_publish(std::size_t i) {
    return sequence(i).phase() == SequencePhase::idle && life(i).prompt_left == 0 &&
           sequence(i).length() > 0;
  }

  bool change_more(std::size_t i) override {
    if (rng().below(3) != 0 || !may_publish(i)) return false;
    publish(i, 1 + rng().below(sequence(i).length()), rng().below(4) == 0);
    return true;
  }

  void publish(std::size_t i, std::size_t length, bool with_tail) {
    const std::size_t chunk = runtime().options().prefixes.chunk_tokens;
    const std::size_t kept = with_tail ? length : length / chunk * chunk;
    const std::vector<TokenId> tokens = life(i).traffic.tokens(length);
    // First, as another thread may find it at once.
    published_.note(life(i), kept);
    const auto report = sequence(i).publish({.tokens = tokens, .with_tail = with_tail});
    if (!went_well("publish", testing::status_of(report))) return;
    ++seen_.published;
    ASSERT_LE(report->tokens, kept);
  }

  std::uint64_t new_seed() override { return published_.new_seed(); }

  Published& published_;
  Seen& seen_;
};

/// Files of runtimes: there is none yet, or one that a runtime before has left.
class Files {
 public:
  /// On a disk, or in memory, where the same takes a tenth of the time.
  explicit Files(bool on_disk)
      : folder_(on_disk ? std::filesystem::temp_directory_path() : "/dev/shm") {}

  [[nodiscard]] std::string any(Rng& rng) const {
    const std::string path = folder_ / (rng.below(2) == 0 ? "one" : "another");
    if (rng.below(4) == 0) std::filesystem::remove(path);
    return path;
  }

 private:
  TemporaryFolder folder_;
};

std::size_t chunk_tokens_of(const Scenario& scenario) {
  const std::size_t block = scenario.runtime.block_tokens;
  return 32 / block * block;
}

/// Gives rows their places below the device: little memory on the host, a small file, a server.
Scenario with_tiers(Scenario scenario, const std::string& file, const std::string& url, Rng& rng) {
  constexpr std::array<std::size_t, 3> host_bytes{0, 60'000, SIZE_MAX};
  RuntimeOptions& options = scenario.runtime;
  options.below_host = {.file = file,
                        .file_bytes = (1 + rng.below(4)) << 20,
                        .host_bytes = host_bytes[rng.below(host_bytes.size())]};
  options.prefixes = {
      .model = "weights", .chunk_tokens = chunk_tokens_of(scenario), .load = PrefixLoad::always};
  if (!url.empty()) {
    options.prefixes.remote = {.url = url, .deadline = std::chrono::hours{1}};
  }
  return scenario;
}

/// Lets each of so many threads take steps of sequences of its own in a runtime, and save them.
void live_in(const Scenario& tiered, const Scenario& roomy, std::size_t threads,
             Published& published, Rng& rng, Seen& seen) {
  constexpr std::size_t steps = 60;
  const auto runtime = tiered.open();
  const auto live = [&](Rng own) {
    EveryTier sequences(*runtime, roomy, own, published, seen);
    sequences.take_steps(steps);
    sequences.save_all();
    sequences.close_all();
    seen.refused += sequences.refused();
  };
  std::vector<std::thread> others;
  for (std::size_t i = 1; i < threads; ++i) others.emplace_back(live, Rng(rng()));
  live(Rng(rng()));
  for (std::thread& other : others) other.join();
  seen.remote += runtime->prefix_counters().hits_remote;
}

void expect_lives_alone(std::size_t threads, std::size_t usual_rounds) {
  constexpr std::size_t runtimes = 4;  // one after the other
  std::optional<RedisServer> server;
  if (redis::is_installed()) server.emplace();
  const std::size_t rounds = testing::random_rounds(usual_rounds);
  const std::uint64_t seed = fuzz_seed(1);
  Seen seen;
  for (std::size_t round = 0; round < rounds; ++round) {
    Rng rng(seed, {round});
    const Scenario scenario = testing::scenario_under_pressure(rng, round);
    if (scenario.runtime.policy == "full") continue;  // nothing leaves the device
    SCOPED_TRACE(replay(seed, round) + ", policy " + scenario.runtime.policy);
    const Files files(/*on_disk=*/round % 8 == 0);
    Published published(chunk_tokens_of(scenario));
    if (server) server->client().ask({"FLUSHALL"});
    for (std::size_t i = 0; i < runtimes; ++i) {
      const bool has_server = server && rng.below(3) > 0;
      const std::string url = has_server ? "redis://" + server->address().text() : "";
      const Scenario limited = testing::with_limit(scenario, threads, rng);
      live_in(with_tiers(limited, files.any(rng), url, rng), scenario, threads, published, rng,
              seen);
      if (::testing::Test::HasFailure()) return;
    }
  }
  if (rounds < 10) return;  // too few to have seen all
  EXPECT_GT(seen.found, rounds);
  EXPECT_GT(seen.published, rounds);
  EXPECT_GT(seen.refused, rounds);
  if (server) {
    EXPECT_GT(seen.remote, 0U);
  }
}

TEST(EveryTier, ChangesNoBitOfALife) { expect_lives_alone(1, 60); }
TEST(EveryTier, ChangesNoBitOfLivesOnTwoThreads) { expect_lives_alone(2, 12); }

}  // namespace
}  // namespace terrace
