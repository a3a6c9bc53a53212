#include "pcie/questions.hpp"

#include <fmt/core.h>

#include <algorithm>

#include "pcie/link_ends.hpp"
#include "terrace/core/version.hpp"

namespace terrace::bench {
namespace {

constexpr Direction directions[] = {Direction::host_to_device, Direction::device_to_host};
constexpr std::size_t set_up_bytes = std::size_t{1} << 30;
constexpr std::size_t piece_bytes[] = {64,          std::size_t{1} << 16, std::size_t{1} << 20,
                                       quick_bytes, std::size_t{1} << 24, bulk_bytes};

/// The link of a backend, made when it is first needed.
class LazyEnds {
 public:
  explicit LazyEnds(std::function<Result<std::unique_ptr<Backend>>()> make)
      : make_(std::move(make)) {}

  Result<LinkEnds*> get(bool quick) {
    if (!tried_) {
      tried_ = true;
      ends_ = create(quick);
    }
    return ends_.map([](const std::shared_ptr<LinkEnds>& ends) { return ends.get(); });
  }

 private:
  [[nodiscard]] Result<std::shared_ptr<LinkEnds>> create(bool quick) const {
    TERRACE_ASSIGN(auto backend, make_());
    return LinkEnds::create(std::move(backend), quick ? quick_bytes : bulk_bytes);
  }

  std::function<Result<std::unique_ptr<Backend>>()> make_;
  bool tried_ = false;
  Result<std::shared_ptr<LinkEnds>> ends_{nullptr};
};

using Prepare = std::function<Result<Contest>(LinkEnds&)>;

/// Collects the questions about one link.
class Questions {
 public:
  Questions(std::function<Result<std::unique_ptr<Backend>>()> make, bool quick)
      : ends_(std::make_shared<LazyEnds>(std::move(make))),
        bytes_(quick ? quick_bytes : bulk_bytes) {}

  [[nodiscard]] bool has_room_for(std::size_t bytes) const { return bytes <= bytes_; }
  [[nodiscard]] Json of_bulk(const char* memory) const {
    return {{"bytes", bytes_}, {"memory", memory}};
  }
  /// Parameters of rows, as large as there is room for.
  [[nodiscard]] Json of_rows(std::size_t row_bytes) const {
    const std::size_t row = std::min(row_bytes, bytes_);
    return {{"row_bytes", row}, {"moved_bytes", moved_bytes(bytes_, row)}};
  }

  void rate(std::string name, Json parameters, Prepare prepare) {
    add(std::move(name), "B/s", Better::higher, std::move(parameters), std::move(prepare));
  }
  void time(std::string name, Json parameters, Prepare prepare) {
    add(std::move(name), "s", Better::lower, std::move(parameters), std::move(prepare));
  }
  std::vector<Question> take() { return std::move(all_); }

 private:
  void add(std::string name, const char* unit, Better better, Json parameters, Prepare prepare) {
    all_.push_back(
        {.name = std::move(name),
         .unit = unit,
         .better = better,
         .parameters = std::move(parameters),
         .prepare = [ends = ends_, prepare = std::move(prepare)](bool quick) -> Result<Contest> {
           TERRACE_ASSIGN(LinkEnds* const link, ends->get(quick));
           return prepare(*link);
         }});
  }

  std::shared_ptr<LazyEnds> ends_;
  std::size_t bytes_;  ///< at both ends
  std::vector<Question> all_;
};

/// The peer of each way: the largest piece at once.
Result<Contender> bulk(LinkEnds& ends, Direction direction) {
  TERRACE_ASSIGN(const Work work, ends.piece(direction, ends.bytes()));
  Contender peer = contender(work);
  peer.name = "one piece";
  return peer;
}

Prepare piece(Direction direction, std::size_t bytes, HostEnd host = HostEnd::locked) {
  return [=](LinkEnds& ends) -> Result<Contest> {
    TERRACE_ASSIGN(const Work work, ends.piece(direction, std::min(bytes, ends.bytes()), host));
    return Contest{.ours = contender(work), .peer = {}};
  };
}

Direction opposite(Direction direction) {
  const bool down = direction == Direction::host_to_device;
  return down ? Direction::device_to_host : Direction::host_to_device;
}

Prepare piece_both_ways(Direction direction) {
  return [=](LinkEnds& ends) -> Result<Contest> {
    TERRACE_ASSIGN(const Work work, ends.piece(direction, ends.bytes()));
    TERRACE_ASSIGN(const Work other, ends.piece(opposite(direction), ends.bytes()));
    TERRACE_ASSIGN(Contender ours, contender_beside(work, other));
    TERRACE_ASSIGN(Contender alone, bulk(ends, direction));
    return Contest{.ours = std::move(ours), .peer = std::move(alone)};
  };
}

Prepare rows(Direction direction, Method method, std::size_t row_bytes, bool scattered = true) {
  return [=](LinkEnds& ends) -> Result<Contest> {
    TERRACE_ASSIGN(const Work work,
                   ends.rows(direction, method, std::min(row_bytes, ends.bytes()), scattered));
    TERRACE_ASSIGN(Contender peer, bulk(ends, direction));
    return Contest{.ours = contender(work), .peer = std::move(peer)};
  };
}

/// Rows that kernels move both ways at once, against one way alone.
Prepare rows_both_ways(Direction direction, std::size_t row_bytes) {
  return [=](LinkEnds& ends) -> Result<Contest> {
    const std::size_t row = std::min(row_bytes, ends.bytes());
    TERRACE_ASSIGN(const Work work, ends.rows(direction, Method::kernel, row, false));
    TERRACE_ASSIGN(const Work other, ends.rows(opposite(direction), Method::kernel, row, false));
    TERRACE_ASSIGN(Contender ours, contender_beside(work, other));
    Contender alone = contender(work);
    return Contest{.ours = std::move(ours), .peer = std::move(alone)};
  };
}

/// Rows that are fetched while attention runs, against rows that are fetched alone.
Prepare rows_beside_attention(Method method, std::size_t row_bytes) {
  return [=](LinkEnds& ends) -> Result<Contest> {
    TERRACE_ASSIGN(const Work work, ends.rows(Direction::host_to_device, method, row_bytes));
    TERRACE_ASSIGN(const Work attention, ends.attention());
    TERRACE_ASSIGN(Contender ours, contender_beside(work, attention));
    Contender alone = contender(work);
    return Contest{.ours = std::move(ours), .peer = std::move(alone)};
  };
}

Prepare attention_beside_rows(Method method, std::size_t row_bytes) {
  return [=](LinkEnds& ends) -> Result<Contest> {
    TERRACE_ASSIGN(const Work attention, ends.attention());
    TERRACE_ASSIGN(const Work work, ends.rows(Direction::host_to_device, method, row_bytes));
    TERRACE_ASSIGN(Contender ours, contender_beside(attention, work));
    Contender alone = contender(attention);
    return Contest{.ours = std::move(ours), .peer = std::move(alone)};
  };
}

std::vector<Question> host_questions(const PcieBackends& backends) {
  Questions questions(backends.host, backends.quick);
  for (const Direction direction : directions) {
    for (const std::size_t bytes : piece_bytes) {
      if (!questions.has_room_for(bytes)) continue;
      questions.rate(host_copy_row(direction, bytes),
                     {{"bytes", bytes}, {"link", backends.host_link}}, piece(direction, bytes));
    }
    for (const std::size_t row_bytes : scattered_row_bytes) {
      Json parameters = questions.of_rows(row_bytes);
      parameters["link"] = backends.host_link;
      const bool gathers = direction == Direction::host_to_device;
      questions.rate(fmt::format("kv_scatter_{}_host_{}", to_string(direction), row_bytes),
                     parameters,
                     rows(direction, gathers ? Method::kernel : Method::copies, row_bytes));
    }
  }
  return questions.take();
}

/// Locked memory of the host, had and given back: the backend's against the driver's.
Result<Contest> set_up(const PcieBackends& backends, bool quick) {
  const std::size_t bytes = quick ? quick_bytes : set_up_bytes;
  const auto outcome = std::make_shared<Status>();
  const auto set_up_by_backend = [make = backends.device, bytes]() -> Status {
    TERRACE_ASSIGN(const auto backend, make());
    return backend->allocate({.bytes = bytes, .tier = Tier::host}).map([](const Buffer&) {});
  };
  const auto set_up_by_driver = [bytes] {
    return allocate_by_driver(bytes).map([](const DriverMemory&) {});
  };
  TERRACE_TRY(set_up_by_backend());
  TERRACE_TRY(set_up_by_driver());
  const auto contest = [&](const char* name, const auto& run) {
    return Contender{.name = name,
                     .version = std::string(version()),
                     .run = [outcome, run] { *outcome = run(); },
                     .verify = [outcome] { return *outcome; }};
  };
  return Contest{.ours = contest("registered", set_up_by_backend),
                 .peer = contest("cudaHostAlloc", set_up_by_driver)};
}

void ask_of_pieces(Questions& questions) {
  questions.time(latency_row, {{"bytes", 64}}, piece(Direction::host_to_device, 64));
  for (const Direction direction : directions) {
    const std::string_view way = to_string(direction);
    questions.rate(fmt::format("{}_memcpy_ce", way), questions.of_bulk("registered"),
                   piece(direction, bulk_bytes));
    questions.rate(fmt::format("{}_bidirectional_memcpy_ce", way), questions.of_bulk("registered"),
                   piece_both_ways(direction));
    questions.rate(fmt::format("{}_memcpy_ce_pinned", way), questions.of_bulk("cudaHostAlloc"),
                   piece(direction, bulk_bytes, HostEnd::driver));
    questions.rate(fmt::format("{}_memcpy_ce_pageable", way), questions.of_bulk("pageable"),
                   piece(direction, bulk_bytes, HostEnd::pageable));
  }
}

void ask_of_rows(Questions& questions) {
  for (const Direction direction : directions) {
    const std::string_view way = to_string(direction);
    questions.rate(fmt::format("{}_memcpy_sm", way), questions.of_rows(1 << 20),
                   rows(direction, Method::kernel, 1 << 20, false));
    questions.rate(fmt::format("{}_bidirectional_memcpy_sm", way), questions.of_rows(1 << 20),
                   rows_both_ways(direction, 1 << 20));
    for (const std::size_t row_bytes : scattered_row_bytes) {
      for (const auto& [method, by] : {std::pair{Method::copies, "ce"}, {Method::kernel, "sm"}}) {
        for (const auto& [scattered, lie] : {std::pair{true, "scatter"}, {false, "contiguous"}}) {
          questions.rate(fmt::format("kv_{}_{}_{}_{}", lie, way, by, row_bytes),
                         questions.of_rows(row_bytes),
                         rows(direction, method, row_bytes, scattered));
        }
      }
    }
  }
}

void ask_beside_attention(Questions& questions) {
  for (const auto& [method, name] : {std::pair{Method::copies, "ce"}, {Method::kernel, "sm"}}) {
    questions.rate(fmt::format("kv_scatter_host_to_device_{}_4096_beside_attention", name),
                   questions.of_rows(4096), rows_beside_attention(method, 4096));
    questions.time(fmt::format("attention_beside_kv_scatter_host_to_device_{}_4096", name),
                   questions.of_rows(4096), attention_beside_rows(method, 4096));
  }
}

std::vector<Question> device_questions(const PcieBackends& backends) {
  Questions questions(backends.device, backends.quick);
  ask_of_pieces(questions);
  ask_of_rows(questions);
  ask_beside_attention(questions);
  std::vector<Question> all = questions.take();
  all.push_back({.name = "pinned_set_up",
                 .unit = "s",
                 .better = Better::lower,
                 .parameters = {{"bytes", backends.quick ? quick_bytes : set_up_bytes}},
                 .prepare = [backends](bool quick) { return set_up(backends, quick); }});
  return all;
}

/// The same from memory that is not the nearest to the device.
std::vector<Question> far_questions(const PcieBackends& backends) {
  Questions questions(backends.far_device, backends.quick);
  for (const Direction direction : directions) {
    const std::string_view way = to_string(direction);
    questions.rate(fmt::format("{}_memcpy_ce_far", way), questions.of_bulk("registered"),
                   piece(direction, bulk_bytes));
    questions.rate(fmt::format("kv_scatter_{}_sm_4096_far", way), questions.of_rows(4096),
                   rows(direction, Method::kernel, 4096));
  }
  return questions.take();
}

}  // namespace

std::string host_copy_row(Direction direction, std::size_t bytes) {
  return fmt::format("host_copy_{}_{}", to_string(direction), bytes);
}

std::vector<Question> pcie_questions(const PcieBackends& backends) {
  std::vector<Question> all = host_questions(backends);
  for (auto* const questions : {&device_questions, &far_questions}) {
    for (Question& question : questions(backends)) all.push_back(std::move(question));
  }
  // Bytes that arrived are compared one by one, which takes longer than a link does.
  for (Question& question : all) question.seconds_each = 0.4;
  return all;
}

}  // namespace terrace::bench
