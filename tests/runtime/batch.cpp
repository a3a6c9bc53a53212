#include "runtime/batch.hpp"

#include <algorithm>
#include <array>

namespace terrace::testing {
namespace {

constexpr std::chrono::seconds patience{60};

}  // namespace

std::vector<BatchMember> one_token_each(std::span<const std::size_t> sequences) {
  std::vector<BatchMember> members;
  for (const std::size_t sequence : sequences) members.push_back({sequence});
  return members;
}

Batch::Batch(Runtime& runtime, std::size_t count)
    : Batch(runtime, count, runtime.backend().make_queue({.name = "compute"}).value()) {}

Batch::Batch(Runtime& runtime, std::size_t count, std::unique_ptr<Queue> compute)
    : runtime_(runtime), shape_(runtime.options().shape), compute_(std::move(compute)) {
  for (std::size_t i = 0; i < count; ++i) {
    traffics_.push_back(std::make_unique<Traffic>(shape_, i + 1));
    drives_.push_back(std::make_unique<Drive>(runtime, *traffics_.back()));
  }
  outputs_.resize(count);
}

void Batch::fill(LayerData& data, std::size_t layer, std::span<const BatchMember> members) const {
  for (const BatchMember& member : members) {
    const Traffic& traffic = *traffics_[member.sequence];
    const std::size_t begin = drives_[member.sequence]->sequence().length();
    std::vector<float>& window = data.windows.emplace_back();
    for (std::size_t position = begin; position < begin + member.tokens; ++position) {
      std::vector<float> query = traffic.query(layer, position);
      for (float& number : query) number *= query_factor_;
      data.queries.insert(data.queries.end(), query.begin(), query.end());
      window.insert(window.end(), query.begin(), query.end());
      const auto rows = traffic.rows(layer, {position, position + 1});
      data.rows.insert(data.rows.end(), rows.begin(), rows.end());
    }
  }
  for (const std::vector<float>& window : data.windows) {
    if (has_hints_) data.hints.push_back({.query_window = window});
  }
  data.outputs.resize(data.queries.size());
  round(data);
}

void Batch::round(LayerData& data) const {
  data.given_queries.resize(data.queries.size() * size_bytes(dtype_));
  data.given_outputs.resize(data.given_queries.size());
  for (std::size_t i = 0; i < data.queries.size(); ++i) {
    store_f32(data.given_queries.data(), dtype_, i, data.queries[i]);
    data.queries[i] = load_f32(data.given_queries.data(), dtype_, i);
  }
}

void Batch::take_outputs(LayerData& data) const {
  std::vector<std::byte>& given = data.given_outputs;
  for (std::size_t i = 0; i < data.outputs.size(); ++i) {
    if (in_f32_) store_f32(given.data(), dtype_, i, data.outputs[i]);
    data.outputs[i] = load_f32(given.data(), dtype_, i);
  }
}

void Batch::keep(const std::vector<LayerData>& layers, std::size_t member, std::size_t first,
                 std::size_t count) {
  const auto floats = static_cast<std::ptrdiff_t>(shape_.query_heads * shape_.head_dim);
  for (std::size_t token = first; token < first + count; ++token) {
    StepOutput& all = outputs_[member].emplace_back();
    for (const LayerData& layer : layers) {
      const auto begin = layer.outputs.begin() + static_cast<std::ptrdiff_t>(token) * floats;
      all.insert(all.end(), begin, begin + floats);
    }
  }
}

std::unique_ptr<Step> Batch::begin(std::span<const BatchMember> members) {
  std::vector<StepMember> parts;
  for (const auto& [sequence, tokens] : members) {
    parts.push_back({&drives_[sequence]->sequence(), tokens});
  }
  return runtime_.begin_step(parts, *compute_, {.queries = given_dtype()}).value();
}

void Batch::attend(Step& step, std::size_t layer, LayerData& data) const {
  const Status attended = step.attend(
      static_cast<LayerId>(layer),
      {.query = in_f32_ ? static_cast<const void*>(data.queries.data()) : data.given_queries.data(),
       .kv = {.keys = data.rows.data(),
              .values = data.rows.data() + shape_.row_bytes() / 2,
              .token_stride = shape_.kv_heads * shape_.row_bytes(),
              .head_stride = shape_.row_bytes()},
       .speculated_query = data.queries.data(),
       .output = in_f32_ ? static_cast<void*>(data.outputs.data()) : data.given_outputs.data(),
       .dtype = given_dtype(),
       .hints = data.hints,
       .speculated_query_stride = shape_.query_heads * shape_.head_dim});
  EXPECT_TRUE(attended.has_value()) << attended.error().message();
}

void Batch::give_step_up(std::span<const BatchMember> members, std::size_t layers) {
  std::vector<LayerData> data(layers);
  for (std::size_t layer = 0; layer < layers; ++layer) fill(data[layer], layer, members);
  std::unique_ptr<Step> step = begin(members);
  for (std::size_t layer = 0; layer < layers; ++layer) attend(*step, layer, data[layer]);
  step.reset();
  EXPECT_TRUE(compute_->drain(patience).has_value());
}

void Batch::replace(std::size_t i, std::unique_ptr<Sequence> sequence, const Traffic& traffic) {
  drives_[i].reset();
  traffics_[i] = std::make_unique<Traffic>(traffic);
  drives_[i] = std::make_unique<Drive>(std::move(sequence), runtime_, *traffics_[i]);
  outputs_[i].clear();
}

std::vector<Status> Batch::step(std::span<const BatchMember> members,
                                std::span<const std::size_t> accepted) {
  std::vector<LayerData> layers(shape_.layers);
  for (std::size_t layer = 0; layer < layers.size(); ++layer) fill(layers[layer], layer, members);
  std::vector<std::size_t> lengths;
  for (const BatchMember& member : members) lengths.push_back(sequence(member.sequence).length());
  const auto step = begin(members);
  for (std::size_t layer = 0; layer < layers.size(); ++layer) attend(*step, layer, layers[layer]);
  const Status ended = step->end(accepted);
  EXPECT_TRUE(ended.has_value()) << ended.error().message();
  EXPECT_TRUE(compute_->drain(patience).has_value());
  for (LayerData& layer : layers) take_outputs(layer);
  std::vector<Status> statuses;
  std::size_t first = 0;
  for (std::size_t i = 0; i < members.size(); ++i) {
    statuses.push_back(step->status(i));
    const std::size_t kept = accepted.empty() ? members[i].tokens : accepted[i];
    // Tokens are kept, too, if the window after them finds no room and the sequence is paused.
    const Sequence& one = sequence(members[i].sequence);
    const bool paused = one.phase() == SequencePhase::paused && one.length() > lengths[i];
    if (statuses.back() || paused) keep(layers, members[i].sequence, first, kept);
    first += members[i].tokens;
  }
  return statuses;
}

void Batch::expect_step(std::span<const BatchMember> members,
                        std::span<const std::size_t> accepted) {
  for (const Status& status : step(members, accepted)) {
    EXPECT_TRUE(status.has_value()) << status.error().message();
  }
}

void Batch::expect_step(std::span<const std::size_t> sequences) {
  expect_step(one_token_each(sequences));
}

void Batch::expect_prompt(std::size_t i, std::size_t tokens, std::size_t piece) {
  ASSERT_TRUE(sequence(i).begin_prompt(tokens).has_value());
  for (std::size_t done = 0; done < tokens; done += piece) {
    expect_step(std::array{BatchMember{i, std::min(piece, tokens - done)}});
  }
}

void Batch::expect_appended_prompt(std::size_t i, std::size_t tokens, std::size_t piece) {
  ASSERT_TRUE(sequence(i).begin_prompt(tokens).has_value());
  for (std::size_t done = 0; done < tokens; done += piece) {
    const std::array members{BatchMember{i, std::min(piece, tokens - done)}};
    std::vector<LayerData> layers(shape_.layers);
    const auto step = begin(members);
    for (std::size_t layer = 0; layer < layers.size(); ++layer) {
      LayerData& data = layers[layer];
      fill(data, layer, members);
      const Status appended = step->append(
          static_cast<LayerId>(layer), {.kv = {.keys = data.rows.data(),
                                               .values = data.rows.data() + shape_.row_bytes() / 2,
                                               .token_stride = shape_.kv_heads * shape_.row_bytes(),
                                               .head_stride = shape_.row_bytes()},
                                        .hints = data.hints});
      ASSERT_TRUE(appended.has_value()) << appended.error().message();
      // Later work on the queue may have the tensors' memory.
      const auto overwritten = compute_->call(Phase::model, [&data]() -> Result<std::size_t> {
        std::ranges::fill(data.rows, std::byte{0xff});
        return 0;
      });
      ASSERT_TRUE(overwritten.has_value());
    }
    const Status ended = step->end();
    ASSERT_TRUE(ended.has_value()) << ended.error().message();
  }
}

}  // namespace terrace::testing
