#include "runtime/scenario.hpp"

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <numeric>

#include "doubles/memory_store.hpp"
#include "terrace/core/rng.hpp"
#include "terrace/runtime/step_room.hpp"

namespace terrace::testing {
namespace {

constexpr Duration patience = std::chrono::seconds{120};

// Sums of four uniforms: near enough to normal, and the same on every machine.
float normal(Rng& rng) {
  const double sum = rng.uniform() + rng.uniform() + rng.uniform() + rng.uniform();
  return static_cast<float>((sum - 2) * std::sqrt(3.0));
}

StepRoomQuery step_query(const RuntimeOptions& options, std::size_t tokens) noexcept {
  return {.shape = options.shape,
          .block_tokens = options.block_tokens,
          .device_memory = SIZE_MAX,
          .tokens = tokens,
          .rows = tokens};
}

}  // namespace

Traffic Traffic::branch(std::size_t position, std::uint64_t seed) const {
  Traffic other = *this;
  other.parts_.push_back({position, seed});
  return other;
}

std::uint64_t Traffic::seed_at(std::size_t position) const noexcept {
  std::uint64_t seed = 0;
  for (const Part& part : parts_) {
    if (part.begin <= position) seed = part.seed;
  }
  return seed;
}

std::vector<std::byte> Traffic::row(std::size_t layer, std::size_t head,
                                    std::size_t position) const {
  std::vector<std::byte> bytes(shape_.row_bytes());
  Rng rng(seed_at(position), {layer, head, position});
  for (std::size_t i = 0; i < 2 * shape_.head_dim; ++i) {
    store_f32(bytes.data(), shape_.dtype, i, normal(rng));
  }
  return bytes;
}

std::vector<std::byte> Traffic::rows(std::size_t layer, TokenRange tokens) const {
  std::vector<std::byte> all;
  all.reserve(shape_.kv_heads * tokens.size() * shape_.row_bytes());
  for (std::size_t head = 0; head < shape_.kv_heads; ++head) {
    for (std::size_t position = tokens.begin; position < tokens.end; ++position) {
      const std::vector<std::byte> one = row(layer, head, position);
      all.insert(all.end(), one.begin(), one.end());
    }
  }
  return all;
}

std::vector<float> Traffic::query(std::size_t layer, std::size_t position) const {
  std::vector<float> values(shape_.query_heads * shape_.head_dim);
  Rng rng(seed_at(position) + 1, {layer, position});
  for (float& value : values) value = normal(rng);
  return values;
}

std::vector<TokenId> Traffic::tokens(std::size_t count) const {
  constexpr std::uint64_t positions = 4'096;
  std::vector<TokenId> ids;
  for (std::size_t i = 0; i < count; ++i) {
    ids.push_back(TokenId{static_cast<std::uint32_t>(seed_at(i) * positions + i)});
  }
  return ids;
}

KvTensors Traffic::tensors(const std::vector<std::byte>& rows, std::size_t tokens) const noexcept {
  return {.keys = rows.data(),
          .values = rows.data() + shape_.row_bytes() / 2,
          .token_stride = shape_.row_bytes(),
          .head_stride = tokens * shape_.row_bytes()};
}

std::unique_ptr<Step> begin_step(Runtime& runtime, Sequence& sequence, Queue& compute,
                                 std::size_t tokens) {
  const StepMember member{&sequence, tokens};
  return runtime.begin_step({&member, 1}, compute).value();
}

Status end_step(Step& step) {
  TERRACE_TRY(step.end());
  return step.status(0);
}

std::size_t Scenario::least_step_bytes(std::size_t tokens) const {
  return least_step_room(step_query(runtime, tokens)).bytes(runtime.shape);
}

std::size_t Scenario::spare_step_bytes(std::size_t tokens) const {
  return step_room(step_query(runtime, tokens)).bytes(runtime.shape) - least_step_bytes(tokens);
}

void forget_prompt(Runtime& runtime) {
  runtime.release_step_memory();
  runtime.backend().reset_peak();
}

Drive::Drive(Runtime& runtime, const Traffic& traffic)
    : Drive(runtime.open_sequence().value(), runtime, traffic) {}

Drive::Drive(std::unique_ptr<Sequence> sequence, Runtime& runtime, const Traffic& traffic)
    : Drive(std::move(sequence), runtime, runtime.backend().make_queue({.name = "compute"}).value(),
            traffic) {}

Drive::Drive(std::unique_ptr<Sequence> sequence, Runtime& runtime, std::unique_ptr<Queue> compute,
             const Traffic& traffic)
    : runtime_(runtime),
      traffic_(traffic),
      compute_(std::move(compute)),
      sequence_(std::move(sequence)) {}

Drive::~Drive() {
  EXPECT_TRUE(compute_->drain(patience).has_value() || compute_->clear_error().has_value());
}

Status Drive::prefill(std::size_t length, std::size_t piece) {
  const std::size_t first = sequence_->length();
  TERRACE_TRY(sequence_->begin_prompt(length - first));
  Status given;
  while (given && sequence_->length() < length) {
    const std::size_t rest = length - sequence_->length();
    given = give_piece(piece == 0 ? rest : std::min(piece, rest));
  }
  if (!given && sequence_->phase() == SequencePhase::idle) {
    TERRACE_TRY(sequence_->truncate(first));
  }
  if (given) forget_what_was_read();
  return given;
}

std::unique_ptr<Step> Drive::begin_prompt(std::size_t tokens) {
  EXPECT_TRUE(sequence_->begin_prompt(tokens).has_value());
  return begin_step(tokens);
}

bool Drive::appends() const {
  return runtime_.retention_traits() == nullptr &&
         runtime_.options().prompts == PromptAttention::exact;
}

Status Drive::give_piece(std::size_t tokens) {
  const std::size_t first = sequence_->length();
  const auto step = begin_step(tokens);
  TERRACE_TRY(step->status(0));
  for (std::size_t layer = 0; layer < traffic_.shape().layers; ++layer) {
    TERRACE_TRY(give_layer(*step, layer, {first, first + tokens}));
  }
  return end_step(*step);
}

Status Drive::give_layer(Step& step, std::size_t layer, TokenRange tokens) {
  rows_.push_back(traffic_.rows(layer, tokens));
  std::vector<float>& queries = queries_.emplace_back();
  for (std::size_t position = tokens.begin; position < tokens.end; ++position) {
    const std::vector<float> one = traffic_.query(layer, position);
    queries.insert(queries.end(), one.begin(), one.end());
  }
  const PromptHints hints{.query_window = queries};
  StepTensors tensors{.query = queries.data(),
                      .kv = traffic_.tensors(rows_.back(), tokens.size()),
                      .hints = {&hints, 1}};
  const auto id = static_cast<LayerId>(layer);
  if (appends()) return step.append(id, tensors);
  tensors.output = unfinished_.emplace_back(queries.size()).data();
  tensors.speculated_query = queries.data();
  tensors.speculated_query_stride = traffic_.shape().query_heads * traffic_.shape().head_dim;
  return step.attend(id, tensors);
}

void Drive::forget_what_was_read() {
  rows_.clear();
  queries_.clear();
  unfinished_.clear();
}

Status Drive::step() {
  const KvShape& shape = traffic_.shape();
  const std::size_t numbers = shape.query_heads * shape.head_dim;
  const std::size_t position = sequence_->length();
  StepOutput& output = unfinished_.emplace_back(shape.layers * numbers);
  const auto step = begin_step();
  TERRACE_TRY(step->status(0));
  for (std::size_t layer = 0; layer < shape.layers; ++layer) {
    rows_.push_back(traffic_.rows(layer, {position, position + 1}));
    queries_.push_back(traffic_.query(layer, position));
    TERRACE_TRY(
        step->attend(static_cast<LayerId>(layer), {.query = queries_.back().data(),
                                                   .kv = traffic_.tensors(rows_.back(), 1),
                                                   .speculated_query = queries_.back().data(),
                                                   .output = output.data() + layer * numbers,
                                                   .speculated_query_stride = numbers}));
  }
  TERRACE_TRY(end_step(*step));
  TERRACE_TRY(compute_->drain(patience));
  outputs_.push_back(std::move(output));
  forget_what_was_read();
  return {};
}

Status Drive::steps(std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) TERRACE_TRY(step());
  return {};
}

void Drive::expect_kept_rows_right() {
  std::vector<std::byte> row(traffic_.shape().row_bytes());
  for (std::size_t layer = 0; layer < traffic_.shape().layers; ++layer) {
    for (std::size_t head = 0; head < traffic_.shape().kv_heads; ++head) {
      for (std::uint32_t position = 0; position < sequence_->length(); ++position) {
        const Status read = sequence_->read_rows(static_cast<LayerId>(layer),
                                                 static_cast<HeadId>(head), {&position, 1}, row);
        const bool stays =
            position < sequence_->sinks().end || sequence_->window().contains(position);
        if (!stays && !read) continue;
        ASSERT_TRUE(read.has_value()) << read.error().message();
        ASSERT_EQ(row, traffic_.row(layer, head, position))
            << "layer " << layer << " head " << head << " position " << position;
      }
    }
  }
}

void Drive::expect_all_rows_right() {
  const std::size_t length = sequence_->length();
  const TokenRange sinks = sequence_->sinks();
  const TokenRange window = sequence_->window();
  EXPECT_EQ(sinks.begin, 0U);
  EXPECT_LE(sinks.end, window.begin);
  EXPECT_EQ(window.end, length);
  std::vector<std::uint32_t> positions(length);
  std::iota(positions.begin(), positions.end(), 0U);
  const std::size_t bytes = traffic_.shape().row_bytes();
  std::vector<std::byte> rows(length * bytes);
  for (std::size_t layer = 0; layer < traffic_.shape().layers; ++layer) {
    for (std::size_t head = 0; head < traffic_.shape().kv_heads; ++head) {
      const Status read = sequence_->read_rows(static_cast<LayerId>(layer),
                                               static_cast<HeadId>(head), positions, rows);
      ASSERT_TRUE(read.has_value()) << read.error().message();
      for (std::size_t position = 0; position < length; ++position) {
        const std::vector<std::byte> right = traffic_.row(layer, head, position);
        ASSERT_EQ(std::memcmp(rows.data() + position * bytes, right.data(), bytes), 0)
            << "layer " << layer << " head " << head << " position " << position << " of "
            << length;
      }
    }
  }
}

namespace {

/// Returns the steps of fuzz tests that the environment asks for, in thousands.
std::size_t fuzz_thousands() {
  const char* const steps = std::getenv("TERRACE_FUZZ_STEPS");
  return steps == nullptr ? SIZE_MAX - 1 : std::strtoull(steps, nullptr, 10) / 1000;
}

}  // namespace

std::size_t random_rounds(std::size_t usual) {
  return std::max<std::size_t>(1, std::min(usual, 1 + fuzz_thousands()) / scenario_slowness);
}

bool takes_variant(std::size_t number) {
  // Coprime to the numbers of values that settings have, so that all values are met.
  const std::size_t each = fuzz_thousands() < 10 ? 5 : 1;
  return number % std::max(each, scenario_slowness) == 0;
}

std::unique_ptr<Runtime> Scenario::open() const {
  return open(make_scenario_backend(backend, scheduler));
}

std::unique_ptr<Runtime> Scenario::open(std::unique_ptr<Backend> on) const {
  RuntimeOptions options = runtime;
  const char* const pages = std::getenv("TERRACE_TEST_HOST_PAGES");
  if (pages != nullptr && options.below_host.store == nullptr) {
    options.below_host = {.store = std::make_shared<doubles::MemoryStore>(),
                          .host_bytes = std::strtoull(pages, nullptr, 10) * options.block_tokens *
                                        options.shape.token_bytes()};
  }
  auto opened = Runtime::open(options, std::move(on));
  if (!opened) ADD_FAILURE() << opened.error().message();
  return std::move(opened).value();
}

std::vector<StepOutput> outputs_of(const Scenario& scenario, std::size_t length, std::size_t steps,
                                   std::uint64_t seed) {
  const auto runtime = scenario.open();
  const Traffic traffic(scenario.runtime.shape, seed);
  Drive drive(*runtime, traffic);
  Status done = length > 0 ? drive.prefill(length) : Status{};
  if (done) done = drive.steps(steps);
  EXPECT_TRUE(done.has_value()) << done.error().message();
  return drive.outputs();
}

}  // namespace terrace::testing
