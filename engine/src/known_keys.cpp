#include "known_keys.hpp"

#include <algorithm>
#include <string_view>

#include "terrace/engine/safetensors.hpp"

namespace terrace::engine {
namespace {

using nlohmann::json;

constexpr std::string_view read_keys[] = {
    "architectures",
    "model_type",
    "hidden_act",
    "hidden_size",
    "num_hidden_layers",
    "num_attention_heads",
    "num_key_value_heads",
    "head_dim",
    "intermediate_size",
    "vocab_size",
    "max_position_embeddings",
    "rms_norm_eps",
    "rope_theta",
    "rope_scaling",
    "rope_parameters",
    "original_max_position_embeddings",
    "partial_rotary_factor",
    "tie_word_embeddings",
    "attention_bias",
    "mlp_bias",
    "eos_token_id",
    "quantization_config",
};

/// Keys of training, of tools, and of generating text, which change no logit.
constexpr std::string_view harmless_keys[] = {
    "_attn_implementation",
    "_attn_implementation_autoset",
    "_commit_hash",
    "_flash_attn_2_enabled",
    "_name_or_path",
    "add_cross_attention",
    "attention_dropout",
    "attn_implementation",
    "attn_pdrop",
    "auto_map",
    "bad_words_ids",
    "begin_suppress_tokens",
    "bos_token_id",
    "chunk_size_feed_forward",
    "cross_attention_hidden_size",
    "custom_pipelines",
    "decoder_start_token_id",
    "diversity_penalty",
    "do_sample",
    "dtype",
    "early_stopping",
    "embd_pdrop",
    "encoder_no_repeat_ngram_size",
    "exponential_decay_length_penalty",
    "finetuning_task",
    "forced_bos_token_id",
    "forced_eos_token_id",
    "hidden_dropout",
    "id2label",
    "initializer_range",
    "is_decoder",
    "is_encoder_decoder",
    "is_llama_config",
    "keys_to_ignore_at_inference",
    "label2id",
    "length_penalty",
    "max_length",
    "max_sequence_length",
    "max_window_layers",
    "min_length",
    "model_max_length",
    "no_repeat_ngram_size",
    "num_beam_groups",
    "num_beams",
    "num_return_sequences",
    "output_attentions",
    "output_hidden_states",
    "output_scores",
    "pad_token_id",
    "prefix",
    "pretraining_tp",
    "problem_type",
    "pruned_heads",
    "remove_invalid_values",
    "repetition_penalty",
    "resid_pdrop",
    "return_dict",
    "return_dict_in_generate",
    "router_aux_loss_coef",
    "sep_token_id",
    "suppress_tokens",
    "task_specific_params",
    "temperature",
    "tf_legacy_loss",
    "tie_encoder_decoder",
    "tokenizer_class",
    "top_k",
    "top_p",
    "torch_dtype",
    "torchscript",
    "transformers.js_config",
    "transformers_version",
    "typical_p",
    "unk_token_id",
    "unsloth_fixed",
    "unsloth_version",
    "use_bfloat16",
    "use_cache",
    "use_sliding_window",
};

/// A key of other architectures, and the values that ask for nothing.
struct ForeignKey {
  const char* name;
  std::vector<json> neutral;
};

const std::vector<ForeignKey>& foreign_keys() {
  static const std::vector<ForeignKey> keys{
      {"alibi", {false}},
      {"attention_chunk_size", {}},
      {"attention_multiplier", {}},
      {"attn_logit_softcapping", {0}},
      {"clip_qkv", {}},
      {"embedding_multiplier", {1}},
      {"final_logit_softcapping", {0}},
      {"kv_lora_rank", {}},
      {"logit_scale", {1}},
      {"logits_scaling", {1}},
      {"no_rope_layers", {json::array()}},
      {"num_experts", {0, 1}},
      {"num_local_experts", {0, 1}},
      {"parallel_attn", {false}},
      {"q_lora_rank", {}},
      {"qk_layernorm", {false}},
      {"qk_norm", {false}},
      {"query_pre_attn_scalar", {}},
      {"residual_multiplier", {1}},
      {"rope_interleaved", {false}},
      {"rotary_pct", {1}},
      {"scale_depth", {}},
      {"scale_emb", {1}},
      {"use_alibi", {false}},
      {"use_parallel_residual", {false}},
      {"use_qk_norm", {false}},
  };
  return keys;
}

tl::unexpected<Error> refuse(const ConfigFields& fields, const char* key) {
  return fail(
      Errc::unsupported,
      "{}: {} is {}, which is not computed; without the key the model runs as if it did not ask",
      fields.file(), key, ConfigFields::shown(*fields.find(key)));
}

/// A window that no position leaves, or one that is switched off, asks for nothing.
Status check_window(const ConfigFields& fields, const ArchitectureRow& row,
                    const ModelConfig& config) {
  if (row.window.has_switch) {
    TERRACE_ASSIGN(const bool on, fields.flag("use_sliding_window", row.window.is_on));
    if (!on) return {};
  }
  const auto positions = static_cast<double>(config.positions_max);
  if (const json* const window = fields.find("sliding_window")) {
    const bool slides = !window->is_number() || window->get<double>() < positions;
    return slides ? refuse(fields, "sliding_window") : Status();
  }
  const std::size_t tokens = fields.values().contains("sliding_window") ? 0 : row.window.tokens;
  if (tokens == 0 || static_cast<double>(tokens) >= positions) return {};
  return fail(Errc::unsupported,
              "{}: sliding_window is missing, and is {} then for {}, which is not computed; with "
              "null the model runs as if it had none",
              fields.file(), tokens, row.architecture.name);
}

Status check_windows(const ConfigFields& fields, const ArchitectureRow& row,
                     const ModelConfig& config) {
  TERRACE_TRY(check_window(fields, row, config));
  const json* const layers = fields.find("layer_types");
  if (layers == nullptr) return {};
  const bool full = layers->is_array() && std::ranges::all_of(*layers, [](const json& layer) {
                      return layer == "full_attention";
                    });
  return full ? Status() : refuse(fields, "layer_types");
}

bool is_known(std::string_view key) {
  return key == "sliding_window" || key == "layer_types" ||
         std::ranges::count(read_keys, key) > 0 || std::ranges::count(harmless_keys, key) > 0 ||
         std::ranges::count(foreign_keys(), key, &ForeignKey::name) > 0;
}

}  // namespace

Status check_keys(const ConfigFields& fields, const ArchitectureRow& row, const ModelConfig& config,
                  std::vector<std::string>& unused) {
  for (const auto& [name, neutral] : foreign_keys()) {
    const json* const value = fields.find(name);
    if (value != nullptr && std::ranges::count(neutral, *value) == 0) return refuse(fields, name);
  }
  TERRACE_TRY(check_windows(fields, row, config));
  for (const auto& [key, value] : fields.values().items()) {
    if (!value.is_null() && !is_known(key)) unused.push_back(shown_name(key));
  }
  return {};
}

}  // namespace terrace::engine
