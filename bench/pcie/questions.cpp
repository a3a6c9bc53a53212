#include "pcie/questions.hpp"

#include <fmt/core.h>

#include <algorithm>

#include "pcie/link_ends.hpp"
#include "terrace/core/version.hpp"

namespace terrace::bench {
namespace {

constexpr Direction directions[] = {Direction::host_to_device, Direction::device_to_host};
constexpr std::size_t bulk_bytes = std::size_t{1} << 28;
constexpr std::size_t piece_bytes[] = {64, std::size_t{1} << 16, std::size_t{1} << 20,
                                       std::size_t{1} << 24, bulk_bytes};

/// One backend's link, made when it is first needed.
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
    return LinkEnds::create(std::move(backend), quick ? std::size_t{1} << 22 : bulk_bytes);
  }

  std::function<Result<std::unique_ptr<Backend>>()> make_;
  bool tried_ = false;
  Result<std::shared_ptr<LinkEnds>> ends_{nullptr};
};

using Prepare = std::function<Result<Contest>(LinkEnds&)>;

/// Collects the questions about one link.
class Questions {
 public:
  explicit Questions(std::function<Result<std::unique_ptr<Backend>>()> make)
      : ends_(std::make_shared<LazyEnds>(std::move(make))) {}

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
  std::vector<Question> all_;
};

/// What a way is held against: the largest piece at once.
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

Prepare piece_both_ways(Direction direction) {
  return [=](LinkEnds& ends) -> Result<Contest> {
    TERRACE_ASSIGN(const Work work, ends.piece(direction, ends.bytes()));
    const bool down = direction == Direction::host_to_device;
    TERRACE_ASSIGN(const Work other, ends.piece(directions[down ? 1 : 0], ends.bytes()));
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

Json of_rows(std::size_t row_bytes) {
  return {{"row_bytes", row_bytes}, {"moved_bytes", bulk_bytes / 16}};
}

std::vector<Question> host_questions(const PcieBackends& backends) {
  Questions questions(backends.host);
  for (const Direction direction : directions) {
    for (const std::size_t bytes : piece_bytes) {
      questions.rate(fmt::format("host_copy_{}_{}", to_string(direction), bytes),
                     {{"link", backends.host_link}, {"bytes", bytes}}, piece(direction, bytes));
    }
    for (const std::size_t row_bytes : scattered_row_bytes) {
      Json parameters = of_rows(row_bytes);
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
  const std::size_t bytes = quick ? std::size_t{1} << 22 : std::size_t{1} << 30;
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

Json of_piece(const char* memory) { return {{"bytes", bulk_bytes}, {"memory", memory}}; }

void ask_of_pieces(Questions& questions) {
  questions.time("host_to_device_latency", {{"bytes", 64}}, piece(Direction::host_to_device, 64));
  for (const Direction direction : directions) {
    const std::string_view way = to_string(direction);
    questions.rate(fmt::format("{}_memcpy_ce", way), of_piece("registered"),
                   piece(direction, bulk_bytes));
    questions.rate(fmt::format("{}_bidirectional_memcpy_ce", way), of_piece("registered"),
                   piece_both_ways(direction));
    questions.rate(fmt::format("{}_memcpy_ce_pinned", way), of_piece("cudaHostAlloc"),
                   piece(direction, bulk_bytes, HostEnd::driver));
    questions.rate(fmt::format("{}_memcpy_ce_pageable", way), of_piece("pageable"),
                   piece(direction, bulk_bytes, HostEnd::pageable));
  }
}

void ask_of_rows(Questions& questions) {
  for (const Direction direction : directions) {
    const std::string_view way = to_string(direction);
    questions.rate(fmt::format("{}_memcpy_sm", way), of_rows(1 << 20),
                   rows(direction, Method::kernel, 1 << 20, false));
    for (const std::size_t row_bytes : scattered_row_bytes) {
      questions.rate(fmt::format("kv_scatter_{}_ce_{}", way, row_bytes), of_rows(row_bytes),
                     rows(direction, Method::copies, row_bytes));
      questions.rate(fmt::format("kv_scatter_{}_sm_{}", way, row_bytes), of_rows(row_bytes),
                     rows(direction, Method::kernel, row_bytes));
      questions.rate(fmt::format("kv_contiguous_{}_sm_{}", way, row_bytes), of_rows(row_bytes),
                     rows(direction, Method::kernel, row_bytes, false));
    }
  }
}

void ask_beside_attention(Questions& questions) {
  for (const auto& [method, name] : {std::pair{Method::copies, "ce"}, {Method::kernel, "sm"}}) {
    questions.rate(fmt::format("kv_scatter_host_to_device_{}_4096_beside_attention", name),
                   of_rows(4096), rows_beside_attention(method, 4096));
    questions.time(fmt::format("attention_beside_kv_scatter_host_to_device_{}_4096", name),
                   of_rows(4096), attention_beside_rows(method, 4096));
  }
}

std::vector<Question> device_questions(const PcieBackends& backends) {
  Questions questions(backends.device);
  ask_of_pieces(questions);
  ask_of_rows(questions);
  ask_beside_attention(questions);
  std::vector<Question> all = questions.take();
  all.push_back({.name = "pinned_set_up",
                 .unit = "s",
                 .better = Better::lower,
                 .parameters = {{"bytes", std::size_t{1} << 30}},
                 .prepare = [backends](bool quick) { return set_up(backends, quick); }});
  return all;
}

/// The same from memory that is not the nearest to the device.
std::vector<Question> far_questions(const PcieBackends& backends) {
  Questions questions(backends.far_device);
  for (const Direction direction : directions) {
    const std::string_view way = to_string(direction);
    questions.rate(fmt::format("{}_memcpy_ce_far", way), of_piece("registered"),
                   piece(direction, bulk_bytes));
    questions.rate(fmt::format("kv_scatter_{}_sm_4096_far", way), of_rows(4096),
                   rows(direction, Method::kernel, 4096));
  }
  return questions.take();
}

}  // namespace

std::vector<Question> pcie_questions(const PcieBackends& backends) {
  std::vector<Question> all = host_questions(backends);
  for (auto* const questions : {&device_questions, &far_questions}) {
    for (Question& question : questions(backends)) all.push_back(std::move(question));
  }
  return all;
}

}  // namespace terrace::bench
