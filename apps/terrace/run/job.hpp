// A run that has been checked: what `terrace run` was asked for, resolved and loaded.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "backend_choice.hpp"
#include "gates.hpp"
#include "outlier_file.hpp"
#include "run/needles.hpp"
#include "run/options.hpp"
#include "run/token_text.hpp"
#include "run/turns_file.hpp"
#include "terrace/core/config.hpp"
#include "terrace/core/result.hpp"
#include "terrace/engine/llama_model.hpp"
#include "terrace/policies/budget.hpp"
#include "terrace/runtime/machine_profile.hpp"
#include "terrace/runtime/options.hpp"

namespace terrace::apps {

struct RunJob {
  Config config;
  std::vector<std::string> policies;
  offload::BackendChoice backend;         ///< of every policy
  std::optional<MachineProfile> profile;  ///< the one that the config names
  std::string model_folder;
  engine::LlamaModel model;
  SharedGates gates;             ///< null where no policy needs them
  SharedOutliers outlier_heads;  ///< null where no file is named
  TokenText text;                ///< the context, then the tokens that are fed and scored
  std::size_t context = 0;
  std::size_t decode = 0;         ///< steps after the context, and after each turn
  std::size_t prefill_chunk = 0;  ///< tokens of a prompt at a time; 0 = whole
  std::vector<Turn> turns;        ///< later prompts
  bool generate = false;
  std::vector<TokenId> end_tokens;  ///< tokens that end the generation; may be empty
  std::vector<Needle> needles;
  AskedAt needles_asked = AskedAt::after;
  std::string needles_form;  ///< empty = that of a file
  std::string save;          ///< as RunOptions has them
  std::string restore;
  std::string model_digest;  ///< empty where nothing is kept or looked for

  /// Tokens of a turn at a time.
  [[nodiscard]] std::size_t turn_chunk() const noexcept {
    return prefill_chunk == 0 ? 512 : prefill_chunk;
  }
  /// The place in the text of the tokens decoded after a prompt: after the context (0) or a turn
  /// (from 1 on). Each continues at the end of the one before.
  [[nodiscard]] std::size_t text_behind(std::size_t prompt) const noexcept {
    return context + prompt * decode;
  }
  /// Tokens of all prompts, and the tokens decoded after them.
  [[nodiscard]] std::size_t conversation_tokens() const noexcept;
  /// Tokens that a sequence of the job may come to have.
  [[nodiscard]] std::size_t tokens_max() const noexcept;
  [[nodiscard]] bool tokens_are_bytes() const noexcept { return model.config().vocabulary == 256; }
};

/// Resolves and checks everything before any of it costs time, then loads the model.
/// Errors: invalid_argument for what was typed wrong; others for what could not be read.
Result<RunJob> prepare_job(const RunOptions& options);

/// Returns the files that a run reads: nothing that it writes may take their place.
std::vector<NamedFile> job_sources(const RunOptions& options, const Config& config);

/// Returns the tokens of the context that are kept, or looked for, under a name. The last token is
/// always computed: its logits say what comes after it.
[[nodiscard]] PrefixQuery kept_context(const RunJob& job, const std::string& name);

/// Returns the config of one policy of the job.
Config config_of_policy(const RunJob& job, const std::string& policy);

/// Returns what a runtime of the job is told: as the config has it, but a budget of more tokens
/// than there will be is one of all tokens. Memory is reserved by the budget. Errors: those of
/// RuntimeOptions::from.
Result<RuntimeOptions> runtime_options(const RunJob& job, const Config& config, Dtype dtype);

/// The options that a policy of the job gets, and the numbers that follow from them.
struct JobPolicy {
  RuntimeOptions options;
  RetrievalTraits traits;
  IndexLayout layout;
  policies::BudgetSplit split;

  [[nodiscard]] CacheSharing cache_sharing() const noexcept;
};

/// Errors: those of RuntimeOptions::from, of making the policy and of its index's layout.
Result<JobPolicy> policy_of_job(const RunJob& job, const std::string& policy);

/// Returns the config of full attention with all KV in device memory, however much that is.
Config config_of_reference(const RunJob& job);

}  // namespace terrace::apps
