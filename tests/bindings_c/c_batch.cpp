#include "bindings_c/c_batch.hpp"

namespace terrace::testing {
namespace {

constexpr std::uint64_t patience_ns = 60'000'000'000;

}  // namespace

CBatch::CBatch(terrace_runtime* runtime, terrace_queue* compute, const KvShape& shape,
               std::size_t count, Dtype dtype)
    : runtime_(runtime), compute_(compute), shape_(shape), dtype_(dtype), outputs_(count) {
  for (std::size_t i = 0; i < count; ++i) {
    traffics_.emplace_back(shape_, i + 1);
    terrace_sequence* sequence = nullptr;
    EXPECT_OK(terrace_sequence_open(runtime, nullptr, &sequence));
    sequences_.emplace_back(sequence);
  }
}

CBatch::Layer CBatch::layer(std::size_t layer, std::span<const BatchMember> members) const {
  Layer data;
  std::size_t numbers = 0;
  for (const auto& [sequence, tokens] : members) {
    const std::size_t begin = terrace_sequence_length(sequences_[sequence].get());
    std::vector<float>& window = data.windows.emplace_back();
    for (std::size_t position = begin; position < begin + tokens; ++position) {
      const auto query = traffics_[sequence].query(layer, position);
      data.queries.resize((numbers + query.size()) * size_bytes(dtype_));
      for (const float number : query) store_f32(data.queries.data(), dtype_, numbers++, number);
      window.insert(window.end(), query.begin(), query.end());
      const auto rows = traffics_[sequence].rows(layer, {position, position + 1});
      data.rows.insert(data.rows.end(), rows.begin(), rows.end());
    }
  }
  data.outputs.resize(data.queries.size());
  for (std::size_t i = 0; i < numbers; ++i) {
    data.speculated.push_back(load_f32(data.queries.data(), dtype_, i));
  }
  for (const std::vector<float>& window : data.windows) {
    terrace_prompt_hints& hints = data.hints.emplace_back();
    hints = TERRACE_PROMPT_HINTS_INIT;
    hints.query_window = window.data();
    hints.query_window_count = window.size();
  }
  for (const terrace_prompt_hints& hints : data.hints) data.hint_pointers.push_back(&hints);
  data.tensors.query = data.queries.data();
  data.tensors.keys = data.rows.data();
  data.tensors.values = data.rows.data() + shape_.row_bytes() / 2;
  data.tensors.kv_token_stride = shape_.token_bytes();
  data.tensors.kv_head_stride = shape_.row_bytes();
  data.tensors.output = data.outputs.data();
  data.tensors.dtype = static_cast<std::int32_t>(dtype_);
  data.tensors.speculated_query = data.speculated.data();
  data.tensors.speculated_query_stride = shape_.query_heads * shape_.head_dim;
  data.tensors.hints = data.hint_pointers.data();
  return data;
}

StepHandle CBatch::begin(std::span<const BatchMember> members) {
  std::vector<terrace_sequence*> sequences;
  std::vector<std::size_t> tokens;
  for (const BatchMember& member : members) {
    sequences.push_back(sequences_[member.sequence].get());
    tokens.push_back(member.tokens);
  }
  terrace_step_options options = TERRACE_STEP_OPTIONS_INIT;
  options.sequences = sequences.data();
  options.count = sequences.size();
  options.tokens = tokens.data();
  options.compute = compute_;
  options.dtype = static_cast<std::int32_t>(dtype_);
  terrace_step* step = nullptr;
  EXPECT_OK(terrace_step_begin(runtime_, &options, &step));
  return StepHandle(step);
}

std::vector<terrace_status> CBatch::step(std::span<const BatchMember> members,
                                         std::span<const std::size_t> accepted) {
  std::vector<Layer> layers;
  for (std::size_t i = 0; i < shape_.layers; ++i) layers.push_back(layer(i, members));
  const StepHandle step = begin(members);
  for (std::size_t i = 0; i < shape_.layers; ++i) {
    EXPECT_OK(terrace_step_attend(step.get(), static_cast<std::uint32_t>(i), &layers[i].tensors));
  }
  EXPECT_OK(terrace_step_end(step.get(), accepted.empty() ? nullptr : accepted.data()));
  EXPECT_OK(terrace_queue_drain(compute_, patience_ns));
  std::vector<terrace_status> statuses;
  std::size_t first = 0;
  for (std::size_t i = 0; i < members.size(); ++i) {
    statuses.push_back(terrace_step_status(step.get(), i));
    const std::size_t kept = accepted.empty() ? members[i].tokens : accepted[i];
    if (statuses.back() == TERRACE_OK) keep(layers, members[i].sequence, first, kept);
    first += members[i].tokens;
  }
  return statuses;
}

void CBatch::keep(const std::vector<Layer>& layers, std::size_t member, std::size_t first,
                  std::size_t count) {
  const std::size_t floats = shape_.query_heads * shape_.head_dim;
  for (std::size_t token = first; token < first + count; ++token) {
    StepOutput& all = outputs_[member].emplace_back();
    for (const Layer& layer : layers) {
      for (std::size_t i = 0; i < floats; ++i) {
        all.push_back(load_f32(layer.outputs.data(), dtype_, token * floats + i));
      }
    }
  }
}

}  // namespace terrace::testing
