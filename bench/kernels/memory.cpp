// Reading memory, and gathering scattered rows of it.
#include <array>
#include <cstring>

#include "kernels/memory_read.hpp"
#include "kernels/questions.hpp"
#include "kernels/sample_rows.hpp"
#include "terrace/core/version.hpp"
#include "terrace/kernels/rows.hpp"

namespace terrace::bench {
namespace {

constexpr std::size_t words_per_line = 8;

std::size_t region_bytes(bool quick) { return std::size_t{1} << (quick ? 20 : 28); }

/// f16 rows of `row_bytes`.
KvShape shape_of_rows(std::size_t row_bytes) {
  return {.layers = 1, .query_heads = 1, .kv_heads = 1, .head_dim = row_bytes / 4};
}

Result<Contest> prepare_read(bool quick) {
  const KvShape shape = shape_of_rows(256);
  TERRACE_ASSIGN(auto rows, SampleRows::create(shape, region_bytes(quick) / shape.row_bytes(), 1));
  Contender read = memory_read(rows->memory());
  read.run = [rows, run = read.run] { run(); };  // keeps the rows
  return Contest{.ours = std::move(read), .peer = {}};
}

/// A gather of every row of a region, in random order, into one staging area.
struct Gather {
  std::shared_ptr<SampleRows> rows;
  std::vector<MissedRow> missed;
  std::vector<std::byte> staging;
  std::uint32_t count = 0;
  KvShape shape;

  static Result<std::shared_ptr<Gather>> create(std::size_t row_bytes, bool quick) {
    auto gather = std::make_shared<Gather>();
    gather->shape = shape_of_rows(row_bytes);
    const std::size_t there = region_bytes(quick) / row_bytes;
    TERRACE_ASSIGN(gather->rows, SampleRows::create(gather->shape, there, 2));
    const std::vector<std::uint32_t> order = shuffled(there, 3);
    // As many rows as one step stages: a few mebibytes, read from anywhere.
    gather->count = static_cast<std::uint32_t>(std::max<std::size_t>(there / 64, 1));
    gather->staging.resize(gather->count * row_bytes);
    for (std::uint32_t i = 0; i < gather->count; ++i) {
      gather->missed.push_back({order[i], 0, gather->staging.data() + i * row_bytes});
    }
    return gather;
  }

  [[nodiscard]] Contender contender(const std::string& name) const {
    return {.name = name,
            .version = std::string(version()),
            .bytes = static_cast<double>(staging.size()),
            .run = {},
            .verify = {}};
  }

  void run() {
    Serial threads;
    kernels::host::fetch_rows(
        {.shape = shape, .missed = missed.data(), .missed_count = &count, .source = rows->table()},
        threads);
  }

  [[nodiscard]] Status verify() const {
    for (const MissedRow& row : missed) {
      if (std::memcmp(row.target, rows->row(row.position), shape.row_bytes()) != 0) {
        return fail(Errc::corrupt, "row {} came out different", row.position);
      }
    }
    return {};
  }
};

Result<Contender> gather_rows(const std::string& name, std::size_t row_bytes, bool quick) {
  TERRACE_ASSIGN(const std::shared_ptr<Gather> gather, Gather::create(row_bytes, quick));
  Contender contender = gather->contender(name);
  contender.run = [gather] { gather->run(); };
  contender.verify = [gather] { return gather->verify(); };
  return contender;
}

/// Small rows against rows so large that the way between them costs nothing.
Result<Contest> prepare_gather(bool quick) {
  TERRACE_ASSIGN(Contender small, gather_rows("gather_rows_256B", 256, quick));
  // The largest row there is: a head of 1024 in f16.
  TERRACE_ASSIGN(Contender large, gather_rows("gather_rows_4096B", 4096, quick));
  return Contest{.ours = std::move(small), .peer = std::move(large)};
}

}  // namespace

std::uint64_t sum_words(std::span<const std::byte> memory) {
  // A sum per word of a line: enough to keep the loads, few enough to stay in registers.
  std::array<std::uint64_t, words_per_line> sums{};
  constexpr std::size_t line = words_per_line * sizeof(std::uint64_t);
  for (std::size_t at = 0; at + line <= memory.size(); at += line) {
    std::array<std::uint64_t, words_per_line> words;
    std::memcpy(words.data(), memory.data() + at, line);
    for (std::size_t i = 0; i < words_per_line; ++i) sums[i] += words[i];
  }
  std::uint64_t total = 0;
  for (const std::uint64_t sum : sums) total += sum;
  return total;
}

Contender memory_read(std::span<const std::byte> memory) {
  auto sum = std::make_shared<std::uint64_t>();
  return {.name = "memory_read",
          .version = std::string(version()),
          .bytes = static_cast<double>(memory.size()),
          .run = [memory, sum] { *sum = sum_words(memory); },
          .verify = [sum, expected = sum_words(memory)]() -> Status {
            if (*sum == expected) return {};
            return fail(Errc::corrupt, "the words added up to something else");
          }};
}

std::vector<Question> memory_questions() {
  return {
      {.name = "memory_read",
       .unit = "B/s",
       .better = Better::higher,
       .parameters = {{"threads", 1}, {"bytes", region_bytes(false)}},
       .prepare = prepare_read},
      {.name = "gather_rows_256B",
       .unit = "B/s",
       .better = Better::higher,
       .parameters = {{"threads", 1}, {"region_bytes", region_bytes(false)}, {"row_bytes", 256}},
       .prepare = prepare_gather},
  };
}

}  // namespace terrace::bench
