// `terrace bench quality`: what each policy keeps of full attention's words, for several budgets
// and texts. Each figure is one that `terrace run` gives.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "run/figures.hpp"
#include "run/options.hpp"

namespace terrace::apps {

struct QualityOptions {
  RunOptions run;                       ///< without text and budget
  std::vector<std::string> text_files;  ///< if both lists are empty: the default text
  std::vector<std::string> token_files;
  std::string budgets = "0.05,0.1,0.2";
  std::string report_file;  ///< empty = no report is written
  bool quick = false;       ///< figures say only that it works
};

/// The entries of a policy that a budget limits.
enum class Counted : std::uint8_t {
  rows,     ///< attended exactly; with retention, the entries after a flush
  entries,  ///< all, those that stand for clusters too, in the mean
};

/// The result of a policy, on one text, with one budget.
struct QualityCell {
  std::string policy;
  std::string budget;
  Counted counted = Counted::rows;
  std::optional<PolicyFigures> figures = {};  ///< empty = `reason` says why
  std::string reason = {};
  /// The share of clusters that are estimated, where estimates had to be taken away to leave room
  /// for rows.
  std::optional<double> estimated_share = {};
  std::size_t entries_wanted = 0;  ///< Counted::entries: the budget that they are to fill
  bool on_target = true;           ///< they do, to a hundredth
};

struct TextQuality {
  std::string path;
  double full_bits = 0;  ///< per token, of full attention
  std::vector<QualityCell> cells = {};
};

struct QualityStudy {
  Config config;
  std::string model;
  std::string gpu;  ///< name of the device in use; empty = no device
  std::size_t context = 0;
  std::size_t scored = 0;
  bool bytes = false;  ///< tokens are bytes
  bool quick = false;
  std::vector<TextQuality> texts = {};

  /// Returns the unit of bits: per byte or per token.
  [[nodiscard]] const char* unit() const noexcept { return bytes ? "bits/byte" : "bits/token"; }
};

/// Runs every policy within every budget on every text. A policy that gives pseudo-entries, or a
/// retention policy, is run once more per budget with fewer rows, so that all its entries together
/// fill the budget. If hardly a row would be left, it gets fewer estimates, too. Errors: those of
/// prepare_job; of a policy alone they are its cell's reason.
Result<QualityStudy> study_quality(const QualityOptions& options, Progress& progress);

}  // namespace terrace::apps
