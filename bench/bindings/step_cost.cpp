// Prints the times of steps through C++ and through the C interface as JSON, in microseconds: of
// each step, divided by its layers. Sequences are short, so that a call's own cost shows.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "terrace.h"
#include "terrace/offload/caller_queue.hpp"
#include "terrace/offload/registry.hpp"
#include "terrace/runtime/runtime.hpp"

namespace {

using namespace terrace;
using Times = std::vector<double>;

constexpr std::size_t batch = 8, layers = 30, query_heads = 9, kv_heads = 3, head_dim = 64;
constexpr std::size_t steps = 200, budget_tokens = 4096;

[[noreturn]] void stop(std::string_view why) {
  std::fprintf(stderr, "step_cost: %s\n", std::string(why).c_str());
  std::exit(1);
}

template <typename T>
T must(Result<T> result) {
  if (result) return std::move(*result);
  stop(result.error().message());
}

void must(const Status& status) {
  if (status) return;
  stop(status.error().message());
}

void must(terrace_status status) {
  if (status == TERRACE_OK) return;
  stop(terrace_message());
}

/// The tensors of one layer: all sequences attend with the same numbers.
struct Rows {
  std::vector<float> query = std::vector<float>(batch * query_heads * head_dim, 0.5F);
  std::vector<float> keys = std::vector<float>(batch * kv_heads * head_dim, 0.25F);
  std::vector<float> values = std::vector<float>(batch * kv_heads * head_dim, 0.125F);
  std::vector<float> output = std::vector<float>(batch * query_heads * head_dim);
};

template <typename Step>
Times time_steps(const Step& step) {
  Times times;
  for (std::size_t i = 0; i < steps; ++i) {
    const auto begin = std::chrono::steady_clock::now();
    step();
    const std::chrono::duration<double, std::micro> taken =
        std::chrono::steady_clock::now() - begin;
    times.push_back(taken.count() / layers);
  }
  return times;
}

Times through_cpp(Rows& rows) {
  const KvShape shape{.layers = layers,
                      .query_heads = query_heads,
                      .kv_heads = kv_heads,
                      .head_dim = head_dim,
                      .dtype = Dtype::f32};
  auto chosen = must(offload::make_backend("host", {}));
  RuntimeOptions options{.shape = shape, .policy = "pqcache"};
  options.budget = {.kind = TokenBudget::Kind::tokens, .value = budget_tokens};
  const auto runtime = must(Runtime::open(options, std::move(chosen.backend)));
  const auto compute = must(offload::make_caller_queue(runtime->backend(), {}));
  std::vector<std::unique_ptr<Sequence>> sequences;
  std::vector<StepMember> members;
  for (std::size_t i = 0; i < batch; ++i) {
    sequences.push_back(must(runtime->open_sequence()));
    members.push_back({sequences.back().get(), 1});
  }
  StepTensors tensors{.query = rows.query.data()};
  tensors.kv = {.keys = reinterpret_cast<const std::byte*>(rows.keys.data()),
                .values = reinterpret_cast<const std::byte*>(rows.values.data()),
                .token_stride = kv_heads * head_dim * sizeof(float),
                .head_stride = head_dim * sizeof(float)};
  tensors.output = rows.output.data();
  return time_steps([&] {
    const auto step = must(runtime->begin_step(members, *compute));
    for (std::uint32_t l = 0; l < layers; ++l) must(step->attend(LayerId{l}, tensors));
    must(step->end());
  });
}

Times through_c(Rows& rows) {
  terrace_config* config = nullptr;
  must(terrace_config_create(&config));
  must(terrace_config_set(config, "backend", "host"));
  must(terrace_config_set(config, "retrieval.policy", "pqcache"));
  must(terrace_config_set(config, "retrieval.budget", std::to_string(budget_tokens).c_str()));
  terrace_shape shape = TERRACE_SHAPE_INIT;
  shape.layers = layers;
  shape.query_heads = query_heads;
  shape.kv_heads = kv_heads;
  shape.head_dim = head_dim;
  shape.dtype = TERRACE_DTYPE_F32;
  terrace_runtime* runtime = nullptr;
  must(terrace_runtime_open(config, &shape, &runtime));
  terrace_queue* compute = nullptr;
  must(terrace_queue_wrap_caller(runtime, nullptr, &compute));
  std::vector<terrace_sequence*> sequences(batch);
  for (auto& sequence : sequences) must(terrace_sequence_open(runtime, nullptr, &sequence));
  terrace_step_options members = TERRACE_STEP_OPTIONS_INIT;
  members.sequences = sequences.data();
  members.count = batch;
  members.compute = compute;
  terrace_tensors tensors = TERRACE_TENSORS_INIT;
  tensors.query = rows.query.data();
  tensors.keys = rows.keys.data();
  tensors.values = rows.values.data();
  tensors.kv_token_stride = kv_heads * head_dim * sizeof(float);
  tensors.kv_head_stride = head_dim * sizeof(float);
  tensors.output = rows.output.data();
  const Times times = time_steps([&] {
    terrace_step* step = nullptr;
    must(terrace_step_begin(runtime, &members, &step));
    for (std::uint32_t l = 0; l < layers; ++l) must(terrace_step_attend(step, l, &tensors));
    must(terrace_step_end(step, nullptr));
    terrace_step_close(step);
  });
  for (terrace_sequence* sequence : sequences) terrace_sequence_close(sequence);
  terrace_queue_close(compute);
  terrace_runtime_close(runtime);
  terrace_config_close(config);
  return times;
}

}  // namespace

int main() {
  Rows rows;
  const nlohmann::json json{{"cpp", through_cpp(rows)}, {"c", through_c(rows)}};
  std::puts(json.dump().c_str());
  return 0;
}
