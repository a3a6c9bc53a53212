#include "tensors.hpp"

#include "sized_struct.hpp"
#include "values.hpp"

namespace terrace::bindings {
namespace {

/// Errors: invalid_argument: numbers without memory.
Result<std::span<const float>> span_of(const float* numbers, std::size_t count,
                                       std::string_view name) {
  if (numbers != nullptr || count == 0) return std::span(numbers, numbers == nullptr ? 0 : count);
  return fail(Errc::invalid_argument, "hints.{} is NULL, and its count {}", name, count);
}

Result<PromptHints> read_hints(const terrace_prompt_hints* given) {
  TERRACE_ASSIGN(const terrace_prompt_hints hints, read_optional_struct<terrace_prompt_hints>(
                                                       given, TERRACE_PROMPT_HINTS_INIT, "hints"));
  PromptHints read;
  TERRACE_ASSIGN(read.pre_rope_keys,
                 span_of(hints.pre_rope_keys, hints.pre_rope_key_count, "pre_rope_keys"));
  TERRACE_ASSIGN(read.query_window,
                 span_of(hints.query_window, hints.query_window_count, "query_window"));
  TERRACE_ASSIGN(read.attention_scores,
                 span_of(hints.attention_scores, hints.attention_score_count, "attention_scores"));
  return read;
}

}  // namespace

Result<LayerTensors> read_tensors(const terrace_tensors* given, std::size_t sequences) {
  constexpr std::size_t size_min = offsetof(terrace_tensors, dtype);
  TERRACE_ASSIGN(const terrace_tensors read,
                 read_struct<terrace_tensors>(given, TERRACE_TENSORS_INIT, size_min, "tensors"));
  TERRACE_TRY(check_reserved(read.reserved, "tensors"));
  TERRACE_ASSIGN(const Dtype dtype, dtype_of(read.dtype, "tensors.dtype"));
  LayerTensors layer{.tensors = {.query = read.query,
                                 .kv = {.keys = static_cast<const std::byte*>(read.keys),
                                        .values = static_cast<const std::byte*>(read.values),
                                        .token_stride = read.kv_token_stride,
                                        .head_stride = read.kv_head_stride},
                                 .speculated_query = read.speculated_query,
                                 .output = read.output,
                                 .dtype = dtype,
                                 .query_stride = read.query_stride,
                                 .output_stride = read.output_stride,
                                 .speculated_query_stride = read.speculated_query_stride}};
  for (std::size_t i = 0; read.hints != nullptr && i < sequences; ++i) {
    TERRACE_ASSIGN(layer.hints.emplace_back(), read_hints(read.hints[i]));
  }
  return layer;
}

Status check_views(terrace_view* const* views, std::size_t sequences) {
  if (views == nullptr) return fail(Errc::invalid_argument, "views is NULL");
  for (std::size_t i = 0; i < sequences; ++i) {
    if (views[i] == nullptr) return fail(Errc::invalid_argument, "view {} is NULL", i);
    TERRACE_TRY(check_struct_size(views[i]->size, sizeof(std::size_t), "view"));
  }
  return {};
}

Status write_view(terrace_view* target, const KvView& view, const KvShape& shape) {
  terrace_view written = TERRACE_VIEW_INIT;
  written.blocks = reinterpret_cast<void* const*>(view.resident.blocks);
  written.block_tokens = view.resident.block_tokens;
  written.sinks_begin = view.sinks.begin;
  written.sinks_end = view.sinks.end;
  written.window_begin = view.window.begin;
  written.window_end = view.window.end;
  written.selected = reinterpret_cast<void* const*>(view.selected);
  written.selected_count = view.selected_count;
  written.selected_stride = view.selected_stride;
  written.lists = list_count(shape, view.scope);
  return write_struct(target, written, "view");
}

}  // namespace terrace::bindings
