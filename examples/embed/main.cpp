// The smallest embedder: a made-up model of one layer with its KV memory in Terrace.
#include <cstdio>
#include <string>
#include <terrace/terrace.hpp>
#include <vector>

using namespace terrace;

namespace {

/// Gives Terrace a prompt of `tokens` rows, then attends with one token; returns how many tokens
/// that one attended to.
Result<double> attend_once(const KvShape& shape, const KvTensors& kv, std::size_t tokens,
                           const float* query, float* output) {
  TERRACE_ASSIGN(auto chosen, offload::make_backend("host", {}));
  TERRACE_ASSIGN(auto runtime,
                 Runtime::open({.shape = shape, .policy = "pqcache"}, std::move(chosen.backend)));
  TERRACE_ASSIGN(auto compute, runtime->backend().make_queue({.name = "compute"}));
  TERRACE_ASSIGN(auto sequence, runtime->open_sequence());

  // The prompt. This model attends to it by itself: its rows alone are appended.
  TERRACE_TRY(sequence->begin_prompt(tokens));
  const StepMember prompt[] = {{sequence.get(), tokens}};
  TERRACE_ASSIGN(auto step, runtime->begin_step(prompt, *compute));
  TERRACE_TRY(step->append(LayerId{0}, {.kv = kv}));
  TERRACE_TRY(step->end());
  TERRACE_TRY(step->status(0));
  // If the index is not built yet, the next step would attend to all tokens.
  TERRACE_TRY(sequence->await_indexes());

  // A token.
  const StepMember token[] = {{sequence.get()}};
  TERRACE_TRY(step->begin_next(token));
  TERRACE_TRY(step->attend(LayerId{0}, {.query = query, .kv = kv, .output = output}));
  TERRACE_TRY(step->end());
  TERRACE_TRY(step->status(0));
  return static_cast<double>(sequence->counters().attended) / 2;  // it has two KV heads
}

}  // namespace

int main() {
  const KvShape shape{
      .layers = 1, .query_heads = 4, .kv_heads = 2, .head_dim = 64, .dtype = Dtype::f32};
  // Your model computes K and V; here [tokens, kv_heads, 2, head_dim], any strides will do.
  constexpr std::size_t tokens = 1000;
  std::vector<float> rows(tokens * 2 * 128);
  for (std::size_t i = 0; i < rows.size(); ++i)
    rows[i] = static_cast<float>(i * 2654435761U % 1000) / 1000;
  const auto* bytes = reinterpret_cast<const std::byte*>(rows.data());
  const KvTensors kv{
      .keys = bytes, .values = bytes + 256, .token_stride = 1024, .head_stride = 512};
  const std::vector<float> query(4 * 64, 0.1F);
  std::vector<float> output(4 * 64);

  const Result<double> attended = attend_once(shape, kv, tokens, query.data(), output.data());
  if (!attended) {
    std::fprintf(stderr, "embed: %s\n", std::string(attended.error().message()).c_str());
    return 1;
  }
  std::printf("one step over %zu tokens attended to %.0f of them\n", tokens + 1, *attended);
}
