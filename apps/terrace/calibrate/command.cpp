// `terrace calibrate`: which KV heads have keys that are like no others, on windows of a text.
#include <algorithm>
#include <array>
#include <memory>

#include "calibrate/calibration.hpp"
#include "document.hpp"
#include "outlier_file.hpp"
#include "output.hpp"

namespace terrace::apps {
namespace {

constexpr std::array calibrate_flags{
    KeyFlag{"--backend", "backend", "auto, host or cuda"},
    KeyFlag{"--kv-dtype", "kv.dtype", "element type of stored keys and values: f16, bf16 or f32"},
};

constexpr const char* calibrate_columns = R"(
Columns:
  share     part of a KV head's keys without a match: for every second key in a chunk
            (retention.merge_chunk), the likeness to the nearest remaining key is below the
            threshold, a quantile over all heads (--quantile). Mean over windows
  outlier   among the heads with the largest shares (--outlier-share): --write names them in a
            file for retention.outlier_heads, with which chelsea keeps their tokens unmerged
)";

void print_calibration(const CalibrateOptions& options, const Calibration& found,
                       const Machine& machine, std::span<const policies::KvHead> outliers) {
  print_out("model     {}\ntext      {}: {} windows of {} tokens\nmachine   {}, {}\n", found.model,
            found.text, options.windows, options.window, machine.cpu, machine.isa);
  print_out("threshold {:.4f}, quantile {} of the likeness of nearest keys\n\n",
            found.shares.threshold, options.quantile);
  print_out("{:>5} {:>5} {:>7}\n", "layer", "head", "share");
  for (const auto& [head, share] : found.shares.heads) {
    print_out("{:>5} {:>5} {:>7.4f}{}\n", index(head.layer), index(head.head), share,
              std::ranges::binary_search(outliers, head) ? "  outlier" : "");
  }
}

void print_calibration_json(const CalibrateOptions& options, const Calibration& found,
                            const Machine& machine, std::span<const policies::KvHead> outliers) {
  Json document = document_head("calibrate", found.config, machine);
  document["model"] = found.model;
  document["text"] = {
      {"path", found.text}, {"windows", options.windows}, {"window_tokens", options.window}};
  document["quantile"] = options.quantile;
  document["threshold"] = found.shares.threshold;
  document["rows"] = Json::array();
  for (const auto& [head, share] : found.shares.heads) {
    document["rows"].push_back({{"layer", index(head.layer)},
                                {"head", index(head.head)},
                                {"share", share},
                                {"outlier", std::ranges::binary_search(outliers, head)}});
  }
  print_document(document);
}

Result<int> run_calibrate(const CalibrateOptions& options) {
  Progress progress(options.shared.quiet);
  TERRACE_ASSIGN(const Calibration found, calibrate(options, progress));
  const std::vector<policies::KvHead> outliers = found.shares.largest(options.outlier_share);
  const Machine machine = read_machine(found.gpu);
  (options.shared.json() ? print_calibration_json : print_calibration)(options, found, machine,
                                                                       outliers);
  // The table comes first: a file that cannot be written must not cost it.
  if (!options.target.empty()) {
    TERRACE_TRY(replace_file(options.target,
                             outlier_file(found.shares, found.shape, options.outlier_share)));
  }
  return 0;
}

}  // namespace

void add_calibrate_command(CLI::App& program, Invocation& invocation) {
  CLI::App* const command =
      program.add_subcommand("calibrate", "find the KV heads whose keys are unlike each other");
  command->footer(calibrate_columns);
  const auto options = std::make_shared<CalibrateOptions>();
  add_model_option(*command, options->model);
  command->add_option("--text", options->text_file, "text whose bytes are the tokens")
      ->option_text("FILE");
  command->add_option("--tokens", options->tokens_file, "little-endian 32-bit ids")
      ->option_text("FILE");
  add_count(*command, "--window", options->window, "tokens of a window [2048]");
  add_count(*command, "--windows", options->windows, "windows, from the text's beginning on [8]");
  command
      ->add_option("--quantile", options->quantile,
                   "of the likeness of nearest keys, below which there is no match [0.25]")
      ->option_text("NUMBER");
  command->add_option("--outlier-share", options->outlier_share, "of all KV heads [0.04]")
      ->option_text("NUMBER");
  command->add_option("--write", options->target, "write the outlier heads")->option_text("FILE");
  add_key_flags(*command, calibrate_flags, options->shared);
  add_shared_options(*command, options->shared);
  command->callback([options, &invocation] {
    invocation = {[options] { return run_calibrate(*options); }, options->shared.verbose};
  });
}

}  // namespace terrace::apps
