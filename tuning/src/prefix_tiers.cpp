#include "terrace/tuning/prefix_tiers.hpp"

#include <algorithm>
#include <cmath>
#include <queue>
#include <ranges>
#include <unordered_map>
#include <utility>

#include "chunk_order.hpp"

namespace terrace::tuning {

class PrefixTiers::State {
 public:
  explicit State(const PrefixTiersOptions& options)
      : chunk_tokens_(options.chunk_tokens), rate_(options.prefill_tokens_per_second) {
    for (const std::uint64_t room : options.tiers) tiers_.emplace_back(room);
    figures_.tiers.resize(tiers_.size());
  }

  void apply(const PrefixRequest& request) {
    wait_for(request.arrival_ms);
    if (!under_way_.empty()) ++figures_.overlapping;
    const std::size_t run = find_run(request.chunks);
    for (const std::uint32_t chunk : request.chunks.first(run)) read(chunk);
    const std::uint64_t missed = request.tokens - run * chunk_tokens_;
    figures_.tokens += request.tokens;
    figures_.missed_tokens += missed;
    under_way_.push({.end = now_ + static_cast<double>(missed) / rate_,
                     .number = figures_.requests++,
                     .chunks = Chunks(request.chunks.begin(), request.chunks.end()),
                     .leased = run});
  }

  [[nodiscard]] const PrefixFigures& figures() const noexcept { return figures_; }

 private:
  using Chunks = std::vector<std::uint32_t>;

  /// A request whose prompt is being computed.
  struct UnderWay {
    double end = 0;            ///< in seconds
    std::uint64_t number = 0;  ///< of the request
    Chunks chunks = {};        ///< its whole ones, from the front
    std::size_t leased = 0;    ///< chunks of them, from the front
  };
  /// Puts what ends first at the front of a queue.
  struct EndsLater {
    bool operator()(const UnderWay& a, const UnderWay& b) const noexcept {
      return std::pair(a.end, a.number) > std::pair(b.end, b.number);
    }
  };

  [[nodiscard]] ChunkOrder& stored() noexcept { return tiers_.back(); }

  /// Goes on to the time at which a request comes: requests that have ended by then end first.
  void wait_for(std::optional<std::uint64_t> arrival_ms) {
    if (arrival_ms) now_ = std::max(now_, static_cast<double>(*arrival_ms) / 1e3);
    while (!under_way_.empty() && (!arrival_ms || under_way_.top().end <= now_)) {
      now_ = std::max(now_, under_way_.top().end);
      end(under_way_.top());
      under_way_.pop();
    }
  }

  /// Uses and leases the longest run that is stored. Returns its chunks.
  std::size_t find_run(std::span<const std::uint32_t> chunks) {
    const auto missing =
        std::ranges::find_if_not(chunks, [&](std::uint32_t chunk) { return stored().has(chunk); });
    const auto run = chunks.first(static_cast<std::size_t>(missing - chunks.begin()));
    for (const std::uint32_t chunk : run) ++leases_[chunk];
    for (const std::uint32_t chunk : std::views::reverse(run)) stored().use(chunk);
    return run.size();
  }

  /// Reads a chunk of the lowest tier.
  void read(std::uint32_t chunk) {
    std::size_t tier = 0;
    while (!tiers_[tier].has(chunk)) ++tier;
    figures_.tiers[tier].hit_tokens += chunk_tokens_;
    if (tier + 1 < tiers_.size()) tiers_[tier].use(chunk);
    for (std::size_t above = 0; above < tier; ++above) {
      if (tiers_[above].room() > 0) put(above, chunk);
    }
  }

  /// Returns whether the tier has the chunk now.
  bool put(std::size_t tier, std::uint32_t chunk) {
    ChunkOrder& order = tiers_[tier];
    const bool is_lowest = tier + 1 == tiers_.size();
    if (order.is_full()) {
      if (!order.evict([&](std::uint32_t each) { return !is_lowest || !leases_.contains(each); })) {
        return false;
      }
      ++figures_.tiers[tier].evicted;
    }
    order.add(chunk);
    std::uint64_t& most = figures_.tiers[tier].chunks_most;
    most = std::max(most, order.size());
    return true;
  }

  /// Stores the chunks of a request whose prompt is computed.
  void end(const UnderWay& request) {
    // Others may have stored some meanwhile: new chunks make no room among those of their request.
    Chunks held;
    const auto hold = [&](std::uint32_t chunk) {
      ++leases_[chunk];
      held.push_back(chunk);
    };
    for (const std::uint32_t chunk : request.chunks) {
      if (stored().has(chunk)) hold(chunk);
    }
    for (std::size_t i = 0; i < request.chunks.size(); ++i) {
      if (stored().has(request.chunks[i])) continue;
      if (!put(tiers_.size() - 1, request.chunks[i])) {
        figures_.refused_chunks += request.chunks.size() - i;
        break;
      }
      hold(request.chunks[i]);
    }
    for (const std::uint32_t chunk : std::views::reverse(request.chunks)) {
      if (stored().has(chunk)) stored().use(chunk);
    }
    for (const std::uint32_t chunk : held) return_lease(chunk);
    for (const std::uint32_t chunk : std::span(request.chunks).first(request.leased)) {
      return_lease(chunk);
    }
  }

  void return_lease(std::uint32_t chunk) {
    const auto lease = leases_.find(chunk);
    if (--lease->second == 0) leases_.erase(lease);
  }

  const std::uint64_t chunk_tokens_;
  const double rate_;
  std::vector<ChunkOrder> tiers_;
  std::unordered_map<std::uint32_t, std::uint32_t> leases_;  ///< by chunk: requests that hold one
  std::priority_queue<UnderWay, std::vector<UnderWay>, EndsLater> under_way_;
  double now_ = 0;
  PrefixFigures figures_;
};

PrefixTiers::PrefixTiers(std::unique_ptr<State> state) noexcept : state_(std::move(state)) {}
PrefixTiers::PrefixTiers(PrefixTiers&&) noexcept = default;
PrefixTiers& PrefixTiers::operator=(PrefixTiers&&) noexcept = default;
PrefixTiers::~PrefixTiers() = default;

Result<PrefixTiers> PrefixTiers::create(const PrefixTiersOptions& options) {
  if (options.tiers.empty() || options.tiers.back() == 0 || options.chunk_tokens == 0) {
    return fail(Errc::invalid_argument,
                "{} tiers for chunks of {} tokens: the lowest needs room for one at least",
                options.tiers.size(), options.chunk_tokens);
  }
  const double rate = options.prefill_tokens_per_second;
  if (!(rate > 0) || !std::isfinite(rate)) {
    return fail(Errc::invalid_argument, "a prefill of {} tokens a second computes nothing", rate);
  }
  return PrefixTiers(std::make_unique<State>(options));
}

void PrefixTiers::apply(const PrefixRequest& request) { state_->apply(request); }

const PrefixFigures& PrefixTiers::figures() const noexcept { return state_->figures(); }

}  // namespace terrace::tuning
