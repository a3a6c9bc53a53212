#include "run/prompt_recording.hpp"

#include <filesystem>

namespace terrace::apps {

Result<std::unique_ptr<PromptRecording>> PromptRecording::open(const RunJob& job,
                                                               const std::string& file) {
  if (file.empty() || job.turns.empty()) return nullptr;
  TERRACE_ASSIGN(std::string fingerprint, tuning::model_fingerprint(job.model_folder));
  TERRACE_ASSIGN(
      auto recorder,
      tuning::PrefixRecorder::open(
          file, {.chunk_tokens = job.config.integer("tier.chunk_tokens"),
                 .model =
                     tuning::ImportedModel{
                         .name = std::filesystem::path(job.model_folder).filename().string(),
                         .fingerprint = std::move(fingerprint),
                         .shape = job.model.config().kv_shape(kv_dtype(job)),
                         .weight_bytes = 2 * job.model.parameters()},
                 .source = "run"}));
  return std::unique_ptr<PromptRecording>(
      new PromptRecording(job.policies.front(), std::move(recorder)));
}

Status PromptRecording::record(const RunJob& job, const TimedPass& pass) {
  const auto context = std::span(job.text.tokens).first(job.context);
  std::vector<TokenId> tokens(context.begin(), context.end());
  TERRACE_TRY(recorder_.add(tokens));
  tokens.insert(tokens.end(), pass.fed.begin(), pass.fed.end());
  for (std::size_t turn = 0; turn < pass.turns.size(); ++turn) {
    tokens.insert(tokens.end(), job.turns[turn].begin(), job.turns[turn].end());
    TERRACE_TRY(recorder_.add(tokens));
    const std::vector<TokenId>& fed = pass.turns[turn].fed;
    tokens.insert(tokens.end(), fed.begin(), fed.end());
  }
  return {};
}

}  // namespace terrace::apps
