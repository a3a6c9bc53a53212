#include "rope_config.hpp"

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <string_view>

namespace terrace::engine {
namespace {

constexpr Range theta_range{1, 1e12};
constexpr Range factor_range{1, 1e6};
constexpr Range attention_range{0, 1e6};
constexpr std::size_t positions_most = std::size_t{1} << 31;

/// A RoPE object of the config, and what beside it says something about it.
struct RopeFields {
  const ConfigFields& root;
  const ConfigFields& rope;
  const ArchitectureRow& row;
  const ModelConfig& config;

  /// The context that the model was first trained with. The config's own key, or its default, wins
  /// over the object's, as in transformers.
  [[nodiscard]] Result<std::size_t> original_positions() const {
    constexpr const char* key = "original_max_position_embeddings";
    const std::size_t fallback = row.original_positions_default;
    if (fallback > 0) return root.count(key, positions_most, fallback);
    const ConfigFields& owner = root.find(key) != nullptr ? root : rope;
    return owner.count(key, positions_most, config.positions_max);
  }
};

/// Returns the factor that transformers takes if yarn or longrope names no factor.
double stretch(const ModelConfig& config, std::size_t original_positions) {
  return static_cast<double>(config.positions_max) / static_cast<double>(original_positions);
}

Result<RopeScaling> read_linear(const RopeFields& fields) {
  LinearRopeScaling scaling;
  TERRACE_ASSIGN(scaling.factor, fields.rope.number("factor", factor_range));
  return scaling;
}

Result<RopeScaling> read_dynamic(const RopeFields& fields) {
  DynamicRopeScaling scaling;
  TERRACE_ASSIGN(scaling.factor, fields.rope.number("factor", factor_range));
  if (fields.config.rotated_dims() <= 2) {
    return fail(Errc::invalid_argument, "{}: dynamic scaling needs a head_dim above 2",
                fields.rope.file());
  }
  return scaling;
}

Result<RopeScaling> read_llama3(const RopeFields& fields) {
  Llama3RopeScaling scaling;
  TERRACE_ASSIGN(scaling.factor, fields.rope.number("factor", factor_range));
  TERRACE_ASSIGN(scaling.low_freq_factor, fields.rope.number("low_freq_factor", {1e-6, 1e6}));
  TERRACE_ASSIGN(scaling.high_freq_factor, fields.rope.number("high_freq_factor", {1e-6, 1e6}));
  TERRACE_ASSIGN(scaling.original_positions, fields.original_positions());
  if (scaling.high_freq_factor <= scaling.low_freq_factor) {
    return fail(Errc::invalid_argument, "{}: high_freq_factor {} must be above low_freq_factor {}",
                fields.rope.file(), scaling.high_freq_factor, scaling.low_freq_factor);
  }
  return scaling;
}

/// For yarn's numbers, 0 means the same as a missing key.
Result<double> number_or(const ConfigFields& fields, const char* key, double fallback) {
  TERRACE_ASSIGN(const double value, fields.number(key, {0, 1e6}, 0.0));
  return value == 0 ? fallback : value;
}

Result<double> yarn_attention_factor(const ConfigFields& rope, double factor) {
  if (rope.find("attention_factor") != nullptr) {
    return rope.number("attention_factor", attention_range);
  }
  TERRACE_ASSIGN(const double mscale, number_or(rope, "mscale", 0));
  TERRACE_ASSIGN(const double mscale_all_dim, number_or(rope, "mscale_all_dim", 0));
  const auto scale = [&](double by) { return factor <= 1 ? 1 : 0.1 * by * std::log(factor) + 1; };
  if (mscale == 0 || mscale_all_dim == 0) return scale(1);
  return scale(mscale) / scale(mscale_all_dim);
}

Result<RopeScaling> read_yarn(const RopeFields& fields) {
  YarnRopeScaling scaling;
  TERRACE_ASSIGN(scaling.original_positions, fields.original_positions());
  TERRACE_ASSIGN(scaling.factor,
                 fields.rope.number("factor", factor_range,
                                    stretch(fields.config, scaling.original_positions)));
  TERRACE_ASSIGN(scaling.attention_factor, yarn_attention_factor(fields.rope, scaling.factor));
  TERRACE_ASSIGN(scaling.beta_fast, number_or(fields.rope, "beta_fast", 32));
  TERRACE_ASSIGN(scaling.beta_slow, number_or(fields.rope, "beta_slow", 1));
  TERRACE_ASSIGN(scaling.truncate, fields.rope.flag("truncate", true));
  return scaling;
}

Result<RopeScaling> read_longrope(const RopeFields& fields) {
  constexpr Range divisors{1e-6, 1e9};
  const std::size_t pairs = fields.config.rotated_dims() / 2;
  LongRopeScaling scaling;
  TERRACE_ASSIGN(scaling.short_factors, fields.rope.numbers("short_factor", pairs, divisors));
  TERRACE_ASSIGN(scaling.long_factors, fields.rope.numbers("long_factor", pairs, divisors));
  TERRACE_ASSIGN(scaling.original_positions, fields.original_positions());
  TERRACE_ASSIGN(const double factor,
                 fields.rope.number("factor", {1e-6, 1e6},
                                    stretch(fields.config, scaling.original_positions)));
  const double derived =
      factor <= 1 ? 1
                  : std::sqrt(1 + std::log(factor) /
                                      std::log(static_cast<double>(scaling.original_positions)));
  TERRACE_ASSIGN(scaling.attention_factor,
                 fields.rope.number("attention_factor", attention_range, derived));
  return scaling;
}

struct RopeType {
  std::string_view name;
  Result<RopeScaling> (*read)(const RopeFields&);
  std::initializer_list<std::string_view> keys;  ///< of its own
};

const RopeType* find_type(std::string_view name) {
  static const RopeType types[] = {
      {"default", [](const RopeFields&) { return Result<RopeScaling>(); }, {}},
      {"linear", read_linear, {"factor"}},
      {"dynamic", read_dynamic, {"factor"}},
      {"llama3",
       read_llama3,
       {"factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings"}},
      {"yarn",
       read_yarn,
       {"factor", "attention_factor", "beta_fast", "beta_slow", "mscale", "mscale_all_dim",
        "truncate", "original_max_position_embeddings"}},
      {"longrope",
       read_longrope,
       {"factor", "attention_factor", "short_factor", "long_factor",
        "original_max_position_embeddings"}},
  };
  const auto* const found = std::ranges::find(types, name, &RopeType::name);
  return found == std::end(types) ? nullptr : found;
}

void note_unused(const ConfigFields& rope, const char* object, const RopeType& type,
                 std::vector<std::string>& unused) {
  for (const auto& [key, value] : rope.values().items()) {
    const bool common = key == "rope_type" || key == "type" || key == "rope_theta" ||
                        key == "partial_rotary_factor";
    const bool known = common || std::ranges::count(type.keys, key) > 0;
    if (!known && !value.is_null()) unused.push_back(std::string(object) + "." + key);
  }
}

/// Reads which part of a head is rotated; what an object says wins over `config`.
Status read_rotated(const ConfigFields& fields, const ArchitectureRow& row, double fallback,
                    ModelConfig& config) {
  TERRACE_ASSIGN(const double part, fields.number("partial_rotary_factor", {0, 1}, fallback));
  config.rotary_dims = static_cast<std::size_t>(static_cast<double>(config.head_dim) * part);
  if (part != 1 && !row.rotates_parts) {
    return fail(Errc::unsupported, "{}: partial_rotary_factor is {}; for {} only 1 is supported",
                fields.file(), part, row.architecture.name);
  }
  if (config.rotary_dims > 0 && config.rotary_dims % 2 == 0) return {};
  return fail(Errc::invalid_argument,
              "{}: partial_rotary_factor is {}: of a head of {}, {} elements are rotated; an even "
              "number above 0 is needed",
              fields.file(), part, config.head_dim, config.rotary_dims);
}

bool holds_something(const ConfigFields& fields, const char* key) {
  const nlohmann::json* const value = fields.find(key);
  return value != nullptr && !(value->is_object() && value->empty());
}

}  // namespace

Status read_rope(const ConfigFields& fields, const ArchitectureRow& row, ModelConfig& config,
                 std::vector<std::string>& unused) {
  TERRACE_TRY(read_rotated(fields, row, row.rotated_default, config));
  TERRACE_ASSIGN(config.rope_theta, fields.number("rope_theta", theta_range, 10000.0));
  // transformers looks at the older of the two spellings first.
  const bool older = holds_something(fields, "rope_scaling");
  const char* const key = older ? "rope_scaling" : "rope_parameters";
  if (older && holds_something(fields, "rope_parameters")) unused.emplace_back("rope_parameters");
  if (!holds_something(fields, key)) return {};
  TERRACE_ASSIGN(const ConfigFields rope, fields.object(key));
  const double part =
      static_cast<double>(config.rotary_dims) / static_cast<double>(config.head_dim);
  TERRACE_TRY(read_rotated(rope, row, part, config));
  TERRACE_ASSIGN(config.rope_theta, rope.number("rope_theta", theta_range, config.rope_theta));
  // Older files say "type" where newer ones say "rope_type".
  const char* const type_key =
      rope.find("rope_type") == nullptr && rope.find("type") != nullptr ? "type" : "rope_type";
  TERRACE_ASSIGN(const std::string name, rope.text(type_key, "default"));
  const bool renamed = row.scales_by_longrope && (name == "su" || name == "yarn");
  const RopeType* const type = find_type(renamed ? "longrope" : name);
  if (type == nullptr) {
    return fail(Errc::unsupported,
                "{}: {} is {}; default, linear, dynamic, llama3, yarn and longrope are supported",
                rope.file(), type_key, ConfigFields::shown(name));
  }
  TERRACE_ASSIGN(config.rope_scaling, type->read({fields, rope, row, config}));
  note_unused(rope, key, *type, unused);
  return {};
}

}  // namespace terrace::engine
