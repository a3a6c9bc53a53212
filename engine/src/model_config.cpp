#include "terrace/engine/model_config.hpp"

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>

#include "architectures.hpp"
#include "json_file.hpp"
#include "known_keys.hpp"
#include "rope_config.hpp"
#include "shown_list.hpp"

namespace terrace::engine {
namespace {

using nlohmann::json;

Status check_numbers(const ConfigFields& fields) {
  TERRACE_ASSIGN(const std::string activation, fields.text("hidden_act", "silu"));
  if (activation != "silu") {
    return fail(Errc::unsupported, "{}: hidden_act is {}; only \"silu\" is supported",
                fields.file(), ConfigFields::shown(activation));
  }
  if (fields.find("quantization_config") != nullptr) {
    return fail(Errc::unsupported, "{}: quantization_config: weights must be F32, F16 or BF16",
                fields.file());
  }
  return {};
}

Status check_heads(const ConfigFields& fields, const ModelConfig& config) {
  if (config.query_heads % config.kv_heads != 0) {
    return fail(Errc::invalid_argument,
                "{}: num_key_value_heads {} does not divide "
                "num_attention_heads {}",
                fields.file(), config.kv_heads, config.query_heads);
  }
  if (config.head_dim % 2 != 0 || config.head_dim == 0 || config.head_dim > 1024) {
    return fail(Errc::invalid_argument, "{}: head_dim is {}; an even number up to 1024 is needed",
                fields.file(), config.head_dim);
  }
  return {};
}

/// Reads what the shape of keys and values follows from.
Status read_heads(const ConfigFields& fields, const ArchitectureRow& row, ModelConfig& config) {
  // Limits far above any model of these architectures, so low that no product below overflows.
  TERRACE_ASSIGN(config.layers, fields.count("num_hidden_layers", 1024));
  TERRACE_ASSIGN(config.query_heads, fields.count("num_attention_heads", 1024));
  const std::size_t kv_heads = row.kv_heads_default > 0 ? row.kv_heads_default : config.query_heads;
  TERRACE_ASSIGN(config.kv_heads, fields.count("num_key_value_heads", 1024, kv_heads));
  if (fields.find("head_dim") != nullptr || row.head_dim_default > 0) {
    TERRACE_ASSIGN(config.head_dim, fields.count("head_dim", 1024, row.head_dim_default));
    return check_heads(fields, config);
  }
  TERRACE_ASSIGN(const std::size_t hidden, fields.count("hidden_size", 1U << 17));
  if (hidden % config.query_heads != 0) {
    return fail(Errc::invalid_argument,
                "{}: num_attention_heads {} does not divide hidden_size {};"
                " state head_dim",
                fields.file(), config.query_heads, hidden);
  }
  config.head_dim = hidden / config.query_heads;
  return check_heads(fields, config);
}

Status read_sizes(const ConfigFields& fields, const ArchitectureRow& row, ModelConfig& config) {
  TERRACE_ASSIGN(config.hidden_size, fields.count("hidden_size", 1U << 17));
  TERRACE_ASSIGN(config.intermediate_size, fields.count("intermediate_size", 1U << 20));
  TERRACE_ASSIGN(config.vocabulary, fields.count("vocab_size", 1U << 24));
  TERRACE_ASSIGN(config.positions_max, fields.count("max_position_embeddings", std::size_t{1} << 31,
                                                    row.positions_default));
  return {};
}

Status read_biases(const ConfigFields& fields, const ArchitectureRow& row, ModelConfig& config) {
  TERRACE_ASSIGN(const bool stated, fields.flag("attention_bias", row.bias_default));
  const bool asked = stated && row.biases != BiasKey::none;
  config.qkv_biases = asked || row.biases == BiasKey::qkv_always;
  config.attention_out_bias = asked && row.biases == BiasKey::qkv_and_out;
  TERRACE_ASSIGN(const bool mlp, fields.flag("mlp_bias"));
  config.mlp_biases = mlp && row.has_mlp_biases;
  return {};
}

/// Some files write numbers below zero, or ids that no token has, to mean no token.
Result<std::vector<TokenId>> end_tokens_of(const ConfigFields& fields, std::size_t vocabulary) {
  std::vector<TokenId> tokens;
  const json* const value = fields.find("eos_token_id");
  if (value == nullptr) return tokens;
  for (const json& id : value->is_array() ? *value : json::array({*value})) {
    if (!id.is_number_integer()) {
      return fail(Errc::invalid_argument,
                  "{}: eos_token_id is {}; a token's number, or a list of them, is needed",
                  fields.file(), ConfigFields::shown(*value));
    }
    const auto number = id.get<std::int64_t>();
    if (number >= 0 && static_cast<std::uint64_t>(number) < vocabulary) {
      tokens.push_back(TokenId{static_cast<std::uint32_t>(number)});
    }
  }
  return tokens;
}

/// Returns an error that says what to do if the folder has no model. The reader of a file reports a
/// link to nothing.
Status check_folder(const std::filesystem::path& folder) {
  namespace fs = std::filesystem;
  std::error_code unknown;
  const bool there = fs::is_directory(folder, unknown);
  const fs::path looked_at = there ? folder / "config.json" : folder;
  if (fs::symlink_status(looked_at, unknown).type() != fs::file_type::not_found) return {};
  return fail(Errc::io_error,
              "{}: {}; name the folder of a Hugging Face model, with config.json and "
              "model.safetensors",
              folder.string(), there ? "holds no config.json" : "there is no such folder");
}

}  // namespace

Result<ModelConfig> read_model_config(const std::filesystem::path& folder) {
  TERRACE_TRY(check_folder(folder));
  const std::filesystem::path path = folder / "config.json";
  TERRACE_ASSIGN(const json root, read_json_object(path));
  const ConfigFields fields(root, path.string());
  ModelConfig config;
  std::vector<std::string> unused;
  TERRACE_ASSIGN(const ArchitectureRow* const row, find_architecture(fields));
  config.architecture = row->architecture;
  TERRACE_TRY(check_numbers(fields));
  TERRACE_TRY(read_heads(fields, *row, config));
  TERRACE_TRY(read_sizes(fields, *row, config));
  TERRACE_ASSIGN(config.rms_norm_epsilon,
                 fields.number("rms_norm_eps", {0, 1}, row->epsilon_default));
  TERRACE_TRY(read_rope(fields, *row, config, unused));
  TERRACE_ASSIGN(config.tied_embeddings, fields.flag("tie_word_embeddings"));
  TERRACE_TRY(read_biases(fields, *row, config));
  TERRACE_TRY(check_keys(fields, *row, config, unused));
  if (!unused.empty()) {
    config.notes.push_back(
        {ModelNote::Level::warning,
         fmt::format("{}: keys that have no effect: {}", path.string(), shown_list(unused))});
  }
  return config;
}

Result<KvShape> read_kv_shape(const std::filesystem::path& folder, Dtype dtype) {
  TERRACE_TRY(check_folder(folder));
  const std::filesystem::path path = folder / "config.json";
  TERRACE_ASSIGN(const json root, read_json_object(path));
  const ConfigFields fields(root, path.string());
  static const ArchitectureRow unknown;
  const ArchitectureRow* const row = find_architecture(fields).value_or(&unknown);
  ModelConfig config;
  TERRACE_TRY(read_heads(fields, *row, config));
  return config.kv_shape(dtype);
}

Result<std::vector<TokenId>> read_end_tokens(const std::filesystem::path& folder,
                                             std::size_t vocabulary) {
  const std::filesystem::path generation = folder / "generation_config.json";
  std::error_code ignored;
  if (std::filesystem::exists(generation, ignored)) {
    TERRACE_ASSIGN(const json root, read_json_object(generation));
    const ConfigFields fields(root, generation.string());
    if (fields.find("eos_token_id") != nullptr) return end_tokens_of(fields, vocabulary);
  }
  const std::filesystem::path path = folder / "config.json";
  TERRACE_ASSIGN(const json root, read_json_object(path));
  return end_tokens_of(ConfigFields(root, path.string()), vocabulary);
}

}  // namespace terrace::engine
