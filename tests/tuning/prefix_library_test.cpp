// The simulated tiers beside the library of chunks that terraced and runtimes have.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <vector>

#include "contract/fuzz.hpp"
#include "doubles/memory_store.hpp"
#include "terrace/tiers/chunk_library.hpp"
#include "terrace/tuning/prefix_tiers.hpp"
#include "tuning/made_up_prompts.hpp"

namespace terrace::tuning {
namespace {

constexpr std::uint64_t chunk_tokens = 10;
constexpr double tokens_per_second = 10;
constexpr std::size_t rows_bytes = 200;
constexpr std::size_t manifest_bytes = 52 + 28;
constexpr tiers::Digest root{std::byte{1}};

/// Requests over a library, which take as long as simulated ones.
class LibraryRequests {
 public:
  explicit LibraryRequests(std::size_t room)
      : library_(tiers::ChunkLibrary::share(
                     {.store = std::make_shared<doubles::MemoryStore>(doubles::MemoryStoreOptions{
                          .capacity_bytes = room * (rows_bytes + manifest_bytes)}),
                      .deadline = std::chrono::seconds{10}})
                     .value()) {}

  /// Returns the tokens that a request finds when it comes.
  std::uint64_t come(const Chunks& chunks, std::uint64_t tokens, double now) {
    for (;;) {
      const auto first = std::ranges::min_element(under_way_, {}, &Request::end);
      if (first == under_way_.end() || first->end > now) break;
      end(*first);
      under_way_.erase(first);
    }
    Request request{.chunks = chunks};
    for (const std::uint32_t chunk : chunks) request.keys.push_back({.high = chunk, .low = 5});
    request.found = library_->find_run(find_request(request.keys), tokens);
    const std::uint64_t hit = request.found.run.size() * chunk_tokens;
    request.end = now + static_cast<double>(tokens - hit) / tokens_per_second;
    under_way_.push_back(std::move(request));
    return hit;
  }

  [[nodiscard]] std::uint64_t evicted() const { return library_->counters().evicted; }

 private:
  struct Request {
    double end = 0;
    Chunks chunks = {};
    std::vector<tiers::ChunkKey> keys = {};
    tiers::LookUp found = {};
  };

  tiers::FindRequest find_request(std::span<const tiers::ChunkKey> keys) {
    return {.root = root, .keys = keys, .now = TimePoint{std::chrono::seconds(++clock_)}};
  }

  /// Publishes as a sequence of a runtime does.
  void end(const Request& request) {
    tiers::ChunkLease lease = library_->lease(find_request(request.keys)).value();
    for (const tiers::ChunkKey& key : request.keys) {
      if (lease.covers(key)) continue;
      const auto published = library_->publish(
          {.root = root, .key = key, .tokens = chunk_tokens, .now = find_request({}).now},
          {{{.kind = tiers::PartKind::rows}, std::vector<std::byte>(rows_bytes)}}, lease);
      if (!published) break;
    }
    library_->touch(find_request(request.keys));
  }

  std::shared_ptr<tiers::ChunkLibrary> library_;
  std::vector<Request> under_way_;
  std::int64_t clock_ = 0;
};

TEST(PrefixTiers, FindWhatTheLibraryOfAFileFinds) {
  const std::uint64_t seed = fuzz_seed(5);
  Rng rng(seed);
  for (const std::size_t room : std::vector<std::size_t>{3, 15, 60, 200}) {
    Prompts prompts(rng());
    LibraryRequests library(room);
    PrefixTiers tiers = PrefixTiers::create({.tiers = {room},
                                             .chunk_tokens = chunk_tokens,
                                             .prefill_tokens_per_second = tokens_per_second})
                            .value();
    std::uint64_t now_ms = 0;
    for (int i = 0; i < 1500; ++i) {
      now_ms += rng.below(5000);
      const Chunks chunks = prompts.next();
      const std::uint64_t tokens = chunks.size() * chunk_tokens + rng.below(chunk_tokens);
      const std::uint64_t before = tiers.figures().hit_tokens();
      tiers.apply({.arrival_ms = now_ms, .chunks = chunks, .tokens = tokens});
      ASSERT_EQ(tiers.figures().hit_tokens() - before,
                library.come(chunks, tokens, static_cast<double>(now_ms) / 1e3))
          << "room " << room << ", " << replay(seed, static_cast<std::uint64_t>(i));
    }
    EXPECT_EQ(tiers.figures().tiers[0].evicted, library.evicted());
    EXPECT_GT(tiers.figures().overlapping, 100U);
    if (room < 10) {
      EXPECT_GT(tiers.figures().refused_chunks, 0U);
    }
  }
}

}  // namespace
}  // namespace terrace::tuning
