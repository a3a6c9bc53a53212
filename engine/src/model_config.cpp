#include "terrace/engine/model_config.hpp"

#include <nlohmann/json.hpp>
#include <string>

#include "json_file.hpp"

namespace terrace::engine {
namespace {

using nlohmann::json;

struct Range {
  double low;
  double high;
};

/// Reads typed values of one JSON object; errors name the file, the key and what is accepted.
class Fields {
 public:
  Fields(const json& object, std::string file) : object_(object), file_(std::move(file)) {}

  /// A key that holds null counts as missing: this is how Hugging Face writes "default".
  [[nodiscard]] const json* find(const char* key) const {
    const auto found = object_.find(key);
    return found == object_.end() || found->is_null() ? nullptr : &*found;
  }

  [[nodiscard]] Result<std::size_t> count(const char* key, std::size_t high,
                                          std::optional<std::size_t> fallback = {}) const {
    const json* value = find(key);
    if (value == nullptr && fallback) return *fallback;
    if (value == nullptr) return missing(key);
    if (!value->is_number_unsigned() || value->get<std::uint64_t>() == 0 ||
        value->get<std::uint64_t>() > high) {
      return fail(Errc::invalid_argument, "{}: {} is {}; an integer from 1 to {} is needed", file_,
                  key, shown(*value), high);
    }
    return value->get<std::size_t>();
  }

  [[nodiscard]] Result<double> number(const char* key, Range range,
                                      std::optional<double> fallback = {}) const {
    const json* value = find(key);
    if (value == nullptr && fallback) return *fallback;
    if (value == nullptr) return missing(key);
    if (!value->is_number() || !(value->get<double>() >= range.low) ||
        !(value->get<double>() <= range.high)) {
      return fail(Errc::invalid_argument, "{}: {} is {}; a number from {} to {} is needed", file_,
                  key, shown(*value), range.low, range.high);
    }
    return value->get<double>();
  }

  [[nodiscard]] Result<bool> flag(const char* key) const {
    const json* value = find(key);
    if (value == nullptr) return false;
    if (!value->is_boolean()) {
      return fail(Errc::invalid_argument, "{}: {} is {}; true or false is needed", file_, key,
                  shown(*value));
    }
    return value->get<bool>();
  }

  [[nodiscard]] Result<std::string> text(const char* key, const char* fallback) const {
    const json* value = find(key);
    if (value == nullptr) return std::string(fallback);
    if (!value->is_string()) {
      return fail(Errc::invalid_argument, "{}: {} is {}; a string is needed", file_, key,
                  shown(*value));
    }
    return value->get<std::string>();
  }

  [[nodiscard]] Result<Fields> object(const char* key) const {
    const json* value = find(key);
    if (value == nullptr || !value->is_object()) {
      return fail(Errc::invalid_argument, "{}: {} is {}; an object is needed", file_, key,
                  value == nullptr ? "missing" : shown(*value));
    }
    return Fields(*value, file_ + ": " + key);
  }

  [[nodiscard]] const std::string& file() const noexcept { return file_; }

  /// A value for an error line: short, and on one line whatever it holds.
  static std::string shown(const json& value) {
    return value.dump(-1, ' ', true, json::error_handler_t::replace).substr(0, 40);
  }

 private:
  [[nodiscard]] tl::unexpected<Error> missing(const char* key) const {
    return fail(Errc::invalid_argument, "{}: {} is missing", file_, key);
  }

  const json& object_;
  std::string file_;
};

Status check_architecture(const Fields& fields) {
  const json* names = fields.find("architectures");
  if (names != nullptr) {
    if (*names != json::array({"LlamaForCausalLM"})) {
      return fail(Errc::unsupported,
                  "{}: architectures is {}; only [\"LlamaForCausalLM\"] is "
                  "supported",
                  fields.file(), Fields::shown(*names));
    }
  } else {
    TERRACE_ASSIGN(const std::string type, fields.text("model_type", ""));
    if (type != "llama") {
      return fail(Errc::unsupported,
                  "{}: names no architecture; \"architectures\": "
                  "[\"LlamaForCausalLM\"] is needed",
                  fields.file());
    }
  }
  TERRACE_ASSIGN(const std::string activation, fields.text("hidden_act", "silu"));
  if (activation != "silu") {
    return fail(Errc::unsupported, "{}: hidden_act is {}; only \"silu\" is supported",
                fields.file(), Fields::shown(activation));
  }
  for (const char* key : {"attention_bias", "mlp_bias"}) {
    TERRACE_ASSIGN(const bool biased, fields.flag(key));
    if (biased) return fail(Errc::unsupported, "{}: {} must be false", fields.file(), key);
  }
  if (fields.find("quantization_config") != nullptr) {
    return fail(Errc::unsupported, "{}: quantization_config: weights must be F32, F16 or BF16",
                fields.file());
  }
  return {};
}

Result<Llama3RopeScaling> read_llama3_scaling(const Fields& fields) {
  Llama3RopeScaling scaling;
  TERRACE_ASSIGN(scaling.factor, fields.number("factor", {1, 1e6}));
  TERRACE_ASSIGN(scaling.low_freq_factor, fields.number("low_freq_factor", {1e-6, 1e6}));
  TERRACE_ASSIGN(scaling.high_freq_factor, fields.number("high_freq_factor", {1e-6, 1e6}));
  TERRACE_ASSIGN(scaling.original_positions,
                 fields.count("original_max_position_embeddings", std::size_t{1} << 31));
  if (scaling.high_freq_factor <= scaling.low_freq_factor) {
    return fail(Errc::invalid_argument, "{}: high_freq_factor {} must be above low_freq_factor {}",
                fields.file(), scaling.high_freq_factor, scaling.low_freq_factor);
  }
  return scaling;
}

Status read_rope_type(const Fields& fields, ModelConfig& config) {
  // Older files say "type" where newer ones say "rope_type".
  const char* key =
      fields.find("rope_type") == nullptr && fields.find("type") != nullptr ? "type" : "rope_type";
  TERRACE_ASSIGN(const std::string type, fields.text(key, "default"));
  if (type == "default") return {};
  if (type != "llama3") {
    return fail(Errc::unsupported, "{}: {} is {}; \"default\" and \"llama3\" are supported",
                fields.file(), key, Fields::shown(type));
  }
  TERRACE_ASSIGN(config.rope_scaling, read_llama3_scaling(fields));
  return {};
}

Status read_rope(const Fields& fields, ModelConfig& config) {
  constexpr Range theta_range{1, 1e12};
  TERRACE_ASSIGN(config.rope_theta, fields.number("rope_theta", theta_range, 10000.0));
  const char* key = fields.find("rope_parameters") != nullptr ? "rope_parameters" : "rope_scaling";
  if (fields.find(key) == nullptr) return {};
  TERRACE_ASSIGN(const Fields rope, fields.object(key));
  TERRACE_ASSIGN(config.rope_theta, rope.number("rope_theta", theta_range, config.rope_theta));
  return read_rope_type(rope, config);
}

Status read_sizes(const Fields& fields, ModelConfig& config) {
  // Limits far above any model of this architecture, so low that no product below overflows.
  TERRACE_ASSIGN(config.hidden_size, fields.count("hidden_size", 1U << 17));
  TERRACE_ASSIGN(config.layers, fields.count("num_hidden_layers", 1024));
  TERRACE_ASSIGN(config.query_heads, fields.count("num_attention_heads", 1024));
  TERRACE_ASSIGN(config.kv_heads, fields.count("num_key_value_heads", 1024, config.query_heads));
  TERRACE_ASSIGN(config.intermediate_size, fields.count("intermediate_size", 1U << 20));
  TERRACE_ASSIGN(config.vocabulary, fields.count("vocab_size", 1U << 24));
  TERRACE_ASSIGN(config.positions_max,
                 fields.count("max_position_embeddings", std::size_t{1} << 31, 2048));
  if (fields.find("head_dim") == nullptr && config.hidden_size % config.query_heads != 0) {
    return fail(Errc::invalid_argument,
                "{}: num_attention_heads {} does not divide hidden_size {};"
                " state head_dim",
                fields.file(), config.query_heads, config.hidden_size);
  }
  TERRACE_ASSIGN(config.head_dim,
                 fields.count("head_dim", 1024, config.hidden_size / config.query_heads));
  return {};
}

Status check_heads(const Fields& fields, const ModelConfig& config) {
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

}  // namespace

Result<ModelConfig> read_model_config(const std::filesystem::path& folder) {
  const std::filesystem::path path = folder / "config.json";
  TERRACE_ASSIGN(const json root, read_json_object(path));
  const Fields fields(root, path.string());
  ModelConfig config;
  TERRACE_TRY(check_architecture(fields));
  TERRACE_TRY(read_sizes(fields, config));
  TERRACE_TRY(check_heads(fields, config));
  TERRACE_ASSIGN(config.rms_norm_epsilon, fields.number("rms_norm_eps", {0, 1}, 1e-6));
  TERRACE_TRY(read_rope(fields, config));
  TERRACE_ASSIGN(config.tied_embeddings, fields.flag("tie_word_embeddings"));
  return config;
}

}  // namespace terrace::engine
