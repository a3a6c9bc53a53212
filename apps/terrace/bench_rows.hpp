// The common part of the benches of single figures: choosing the questions that are asked, and
// reporting the rows.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "command.hpp"
#include "harness/question.hpp"
#include "machine.hpp"
#include "progress.hpp"

namespace terrace::apps {

struct BenchOptions {
  SharedOptions shared;
  std::string only;          ///< part of the names of the rows wanted
  std::string profile_file;  ///< empty = no profile is written
  bool quick = false;
};

/// Returns the remark on figures in a table: under --quick they say only that the bench works.
std::string_view quick_note(bool quick) noexcept;

/// Adds --quick, --only, --profile and what all commands take; --help says below them what the
/// table's columns are, and `words`: what the rows' names are made of, a line each.
void add_bench_options(CLI::App& command, BenchOptions& options, std::string_view words);

/// Resolves the config; the profile it names must be one.
Result<Config> bench_config(const BenchOptions& options);

/// Removes the questions that --only does not name. Errors: invalid_argument: no question is left.
Status keep_wanted(const BenchOptions& options, std::vector<bench::Question>& questions);

/// Asks one after the other, and shows how far it is.
std::vector<bench::Row> ask_all(std::span<const bench::Question> questions,
                                const BenchOptions& options);

/// The same, where the questions say by `progress` what they do.
std::vector<bench::Row> ask_all(std::span<const bench::Question> questions,
                                const BenchOptions& options, Progress& progress);

/// Warns on standard error if a profile gets figures of --quick. `whose`: as "link's".
void warn_of_quick_profile(const BenchOptions& options, std::string_view whose);

/// Prints the JSON document of a bench.
void print_rows_document(std::string_view command, const Config& config, const Machine& machine,
                         std::span<const bench::Row> rows);

}  // namespace terrace::apps
