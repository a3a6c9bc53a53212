#include "calibrate/calibration.hpp"

#include <cstring>

#include "backend_choice.hpp"
#include "config_check.hpp"
#include "program_files.hpp"
#include "run/model_notes.hpp"
#include "run/token_text.hpp"
#include "terrace/engine/decoder.hpp"

namespace terrace::apps {
namespace {

constexpr std::size_t tokens_max = std::size_t{1} << 30;

/// Keeps the keys of a window, of all layers and KV heads.
class WindowKeys final : public engine::KvObserver {
 public:
  WindowKeys(const KvShape& shape, std::size_t tokens)
      : shape_(shape),
        tokens_(tokens),
        key_bytes_(shape.row_bytes() / 2),
        keys_(shape.layers * shape.kv_heads * tokens * key_bytes_) {}

  void on_rows(std::size_t layer, TokenRange tokens, const KvTensors& kv) override {
    for (std::size_t head = 0; head < shape_.kv_heads; ++head) {
      for (std::size_t t = 0; t < tokens.size(); ++t) {
        std::memcpy(key(layer, head, tokens.begin + t),
                    kv.keys + t * kv.token_stride + head * kv.head_stride, key_bytes_);
      }
    }
  }

  void add_to(policies::MatchSurvey& survey) {
    std::vector<const std::byte*> rows(tokens_);
    for (std::size_t list = 0; list < shape_.layers * shape_.kv_heads; ++list) {
      const std::size_t layer = list / shape_.kv_heads;
      const std::size_t head = list % shape_.kv_heads;
      for (std::size_t t = 0; t < tokens_; ++t) rows[t] = key(layer, head, t);
      survey.add({static_cast<LayerId>(layer), static_cast<HeadId>(head)}, rows);
    }
  }

 private:
  [[nodiscard]] std::byte* key(std::size_t layer, std::size_t head, std::size_t token) noexcept {
    return keys_.data() + ((layer * shape_.kv_heads + head) * tokens_ + token) * key_bytes_;
  }

  KvShape shape_;
  std::size_t tokens_;
  std::size_t key_bytes_;
  std::vector<std::byte> keys_;  ///< [layers, kv_heads, tokens, head_dim] in the KV dtype
};

Status check_numbers(const CalibrateOptions& options) {
  if (options.window < 2 || options.window > tokens_max) {
    return fail(Errc::invalid_argument, "--window {}: give 2 to {} tokens", options.window,
                tokens_max);
  }
  if (options.windows == 0 || options.windows > tokens_max / options.window) {
    return fail(Errc::invalid_argument, "--windows {}: give 1 to {} of {} tokens", options.windows,
                tokens_max / options.window, options.window);
  }
  for (const auto& [name, number] : {std::pair{"--quantile", options.quantile},
                                     std::pair{"--outlier-share", options.outlier_share}}) {
    if (number > 0 && number < 1) continue;
    return fail(Errc::invalid_argument, "{} {}: give a number between 0 and 1", name, number);
  }
  return {};
}

Status check_target(const CalibrateOptions& options, const Config& config,
                    const std::filesystem::path& folder) {
  std::vector<NamedFile> sources = config_sources(options.shared, config);
  for (const NamedFile& file : model_sources(folder)) sources.push_back(file);
  sources.push_back({"--text", options.text_file});
  sources.push_back({"--tokens", options.tokens_file});
  return check_targets({{"--write", options.target}}, sources);
}

/// Errors in a model's files are no wrong usage.
Error as_model_error(Error error) {
  if (error.code == Errc::invalid_argument) error.code = Errc::corrupt;
  return error;
}

/// Runs the model over one window after the other, with all rows kept and all attended to.
Status survey_windows(const engine::LlamaModel& model, const CalibrateOptions& options,
                      const Config& config, std::span<const TokenId> tokens, Progress& progress,
                      policies::MatchSurvey& survey) {
  const KvShape shape = model.config().kv_shape(*parse_dtype(config.text("kv.dtype")));
  TERRACE_ASSIGN(const RuntimeOptions runtime_options, RuntimeOptions::from(config, shape));
  TERRACE_ASSIGN(offload::ChosenBackend chosen, choose_backend(config));
  TERRACE_ASSIGN(const auto runtime, Runtime::open(runtime_options, std::move(chosen.backend)));
  TERRACE_ASSIGN(
      const auto decoder,
      engine::Decoder::create(
          model, *runtime, {.rope_length = options.window, .deadline = runtime_options.deadline}));
  WindowKeys keys(shape, options.window);
  decoder->observe(&keys);
  for (std::size_t window = 0; window < options.windows; ++window) {
    progress.show("calibrate", "windows",
                  static_cast<double>(window) / static_cast<double>(options.windows));
    TERRACE_ASSIGN(const auto sequence, runtime->open_sequence());
    TERRACE_TRY(
        decoder->prefill(*sequence, tokens.subspan(window * options.window, options.window)));
    keys.add_to(survey);
  }
  progress.clear();
  return {};
}

}  // namespace

Result<Calibration> calibrate(const CalibrateOptions& options, Progress& progress) {
  TERRACE_TRY(check_numbers(options));
  TERRACE_ASSIGN(Config config, resolve_config(options.shared));
  const Config full =
      with_values(config, {{"retrieval.policy", "full"}, {"retention.policy", "none"}});
  std::filesystem::path folder = options.model;
  if (folder.empty()) {
    TERRACE_ASSIGN(folder, bundled_model());
  }
  TERRACE_TRY(check_target(options, config, folder));
  TERRACE_ASSIGN(const offload::BackendChoice backend, find_backend(full));
  const auto shape = engine::read_model_config(folder).map_error(as_model_error);
  if (!shape) return tl::unexpected(shape.error());
  TERRACE_ASSIGN(const TokenText text,
                 read_tokens({options.text_file, options.tokens_file, "--windows or --window"},
                             shape->vocabulary, options.window * options.windows));
  const auto model = engine::LlamaModel::load(folder).map_error(as_model_error);
  if (!model) return tl::unexpected(model.error());
  show_model_notes(*model, options.shared);
  const KvShape kv_shape = model->config().kv_shape(*parse_dtype(config.text("kv.dtype")));
  policies::MatchSurvey survey(kv_shape, config.integer("retention.merge_chunk"));
  TERRACE_TRY(survey_windows(*model, options, full, text.tokens, progress, survey));
  return Calibration{.config = std::move(config),
                     .model = folder.string(),
                     .text = text.path,
                     .gpu = backend.device,
                     .shape = kv_shape,
                     .shares = survey.shares(options.quantile)};
}

}  // namespace terrace::apps
