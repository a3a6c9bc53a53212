#include "nvme/questions.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <iterator>
#include <map>
#include <memory>
#include <optional>

#include "harness/samples.hpp"
#include "nvme/fio.hpp"
#include "nvme/open_pages.hpp"
#include "nvme/page_file.hpp"
#include "nvme/store_traffic.hpp"

namespace terrace::bench {
namespace {

constexpr std::uint64_t file_bytes = std::uint64_t{1} << 29;
constexpr std::uint64_t quick_file_bytes = std::uint64_t{1} << 23;
constexpr std::size_t page_bytes[] = {4096, 65536, std::size_t{1} << 20};
constexpr std::size_t depths[] = {1, 32};

std::string name_of(const Traffic& traffic) {
  return fmt::format("{}_{}_{}_d{}", traffic.writes ? "write" : "read",
                     traffic.scattered ? "scattered" : "sequential", traffic.page_bytes,
                     traffic.depth);
}

/// The figures of each round: Terrace's and, where there is fio, fio's.
struct Rounds {
  std::vector<TrafficFigures> ours;
  std::vector<TrafficFigures> peers;
};

std::vector<double> samples_of(const std::vector<TrafficFigures>& rounds,
                               double TrafficFigures::* figure) {
  std::vector<double> samples;
  samples.reserve(rounds.size());
  for (const TrafficFigures& round : rounds) samples.push_back(round.*figure);
  return samples;
}

/// The files, and what traffic over them has shown.
class Disk {
 public:
  explicit Disk(NvmeOptions options) : options_(std::move(options)) {}

  /// Measures traffic, once.
  Result<const Rounds*> rounds(const Traffic& traffic) {
    TERRACE_TRY(open());
    auto [known, is_new] = rounds_.try_emplace(name_of(traffic));
    if (is_new) known->second = measure(traffic);
    return known->second.map([](const Rounds& all) { return &all; });
  }

  [[nodiscard]] const PageFile& file() const { return *ours_; }
  [[nodiscard]] const std::string& fio_version() const { return fio_version_; }
  /// Why there is no peer; empty if there is a peer.
  [[nodiscard]] const std::string& no_peer() const { return no_peer_; }

 private:
  Status open() {
    if (opened_) return *opened_;
    opened_ = make_files();
    return *opened_;
  }

  Status make_files() {
    const std::uint64_t bytes = options_.quick ? quick_file_bytes : file_bytes;
    TERRACE_ASSIGN(ours_, PageFile::create(options_.folder, bytes));
    if (ours_->engine() != "io_uring") {
      no_peer_ = "fio would go another way than Terrace, which has no io_uring here";
      return {};
    }
    const auto version = find_fio();
    if (!version) {
      no_peer_ = version.error().message();
      return {};
    }
    fio_version_ = *version;
    TERRACE_ASSIGN(peers_, PageFile::create(options_.folder, bytes));
    return {};
  }

  Result<Rounds> measure(const Traffic& traffic) {
    const int count = options_.quick ? 1 : 5;
    const Duration time = std::chrono::milliseconds(options_.quick ? 20 : 400);
    Rounds all;
    for (int round = 0; round < count; ++round) {
      TERRACE_ASSIGN(const TrafficFigures ours, ours_->run(traffic, time));
      all.ours.push_back(ours);
      if (!peers_) continue;
      // The same bytes for both, but for what fio would overwrite.
      const auto peer = run_fio(traffic.writes ? *peers_ : *ours_, traffic, time);
      if (peer) {
        all.peers.push_back(*peer);
      } else {
        no_peer_ = peer.error().message();
        peers_.reset();
      }
    }
    return all;
  }

  NvmeOptions options_;
  std::optional<Status> opened_;
  std::unique_ptr<PageFile> ours_;
  std::unique_ptr<PageFile> peers_;
  std::string fio_version_;
  std::string no_peer_;
  std::map<std::string, Result<Rounds>> rounds_;
};

Question question(const std::shared_ptr<Disk>& disk, const Traffic& traffic, std::string name,
                  double TrafficFigures::* figure) {
  const bool is_rate = figure == &TrafficFigures::bytes_per_second;
  Question asked{.name = std::move(name),
                 .unit = is_rate ? "B/s" : "s",
                 .better = is_rate ? Better::higher : Better::lower,
                 .parameters = {{"bytes", traffic.page_bytes}, {"depth", traffic.depth}},
                 .prepare = {}};
  asked.count = [disk, traffic, figure](Row& row) -> Status {
    TERRACE_ASSIGN(const Rounds* const rounds, disk->rounds(traffic));
    row.parameters["engine"] = disk->file().engine();
    row.parameters["direct"] = disk->file().direct();
    row.parameters["file_bytes"] = disk->file().bytes();
    put_samples(row, samples_of(rounds->ours, figure));
    if (rounds->peers.empty()) {
      row.parameters["no_peer"] = disk->no_peer();
    } else {
      row.peer = PeerFigure{"fio", disk->fio_version(), median(samples_of(rounds->peers, figure))};
    }
    return {};
  };
  return asked;
}

}  // namespace

std::vector<Question> nvme_questions(const NvmeOptions& options) {
  const auto disk = std::make_shared<Disk>(options);
  std::vector<Question> all;
  for (const bool writes : {false, true}) {
    for (const bool scattered : {false, true}) {
      for (const std::size_t bytes : page_bytes) {
        for (const std::size_t depth : depths) {
          const Traffic traffic{
              .writes = writes, .scattered = scattered, .page_bytes = bytes, .depth = depth};
          const std::string name = name_of(traffic);
          all.push_back(question(disk, traffic, "nvme_" + name, &TrafficFigures::bytes_per_second));
          if (!scattered) continue;
          all.push_back(question(disk, traffic, "nvme_cpu_per_request_" + name,
                                 &TrafficFigures::cpu_seconds_per_request));
        }
      }
    }
  }
  std::ranges::move(store_questions(options.folder, options.quick), std::back_inserter(all));
  all.push_back(open_question(options.folder, options.quick));
  return all;
}

}  // namespace terrace::bench
