#include "bench_rows.hpp"

#include <fmt/chrono.h>

#include <chrono>
#include <cstdio>
#include <filesystem>

#include "document.hpp"
#include "output.hpp"

namespace terrace::apps {
namespace {

constexpr std::string_view columns = R"(Columns:
  value                     median of the samples
  spread                    half of the distance between the quartiles, as a share of the median
  better                    how many times as good as the peer
  peer                      another way to do the same work: name, version and value
)";

}  // namespace

void add_bench_options(CLI::App& command, BenchOptions& options, std::string_view words) {
  command.footer(fmt::format("{}{}", columns, words));
  command.add_flag("--quick", options.quick, "small and short: whether it works, not how fast");
  command.add_option("--only", options.only, "rows with this in their names")->option_text("TEXT");
  add_key_flags(command, {&profile_flag, 1}, options.shared);
  add_shared_options(command, options.shared);
}

std::string_view quick_note(bool quick) noexcept {
  return quick ? "; quick: small sizes, which say only that it works" : "";
}

Result<Config> bench_config(const BenchOptions& options) {
  TERRACE_ASSIGN(Settings settings, resolve_settings(options.shared));
  TERRACE_TRY(settings.profile);
  return std::move(settings.config);
}

Status keep_wanted(const BenchOptions& options, std::vector<bench::Question>& questions) {
  std::erase_if(questions, [&](const bench::Question& question) {
    return question.name.find(options.only) == std::string::npos;
  });
  if (!questions.empty()) return {};
  return fail(Errc::invalid_argument, "--only {}: no row has that in its name", options.only);
}

std::vector<bench::Row> ask_all(std::span<const bench::Question> questions,
                                const BenchOptions& options) {
  Progress progress(options.shared.quiet);
  return ask_all(questions, options, progress);
}

std::vector<bench::Row> ask_all(std::span<const bench::Question> questions,
                                const BenchOptions& options, Progress& progress) {
  std::vector<bench::Row> rows;
  for (const bench::Question& question : questions) {
    progress.show("bench", question.name,
                  static_cast<double>(rows.size()) / static_cast<double>(questions.size()));
    rows.push_back(bench::ask(question, {.quick = options.quick}));
  }
  progress.clear();
  return rows;
}

void warn_of_quick_profile(const BenchOptions& options, std::string_view whose) {
  if (!options.quick || options.shared.quiet) return;
  warn(
      "the {} figures in {} are of --quick, and show only that it works; measure without it before "
      "anything is planned by them",
      whose, options.profile_file);
}

void print_rows_document(std::string_view command, const Config& config, const Machine& machine,
                         std::span<const bench::Row> rows) {
  Json document = document_head(command, config, machine);
  document["rows"] = Json::array();
  for (const bench::Row& row : rows) document["rows"].push_back(bench::to_json(row));
  print_document(document);
}

}  // namespace terrace::apps
