// The smallest embedder: a made-up model of one layer, whose KV memory is Terrace's.
#include <cstdio>
#include <terrace/offload/registry.hpp>
#include <terrace/runtime/runtime.hpp>
#include <vector>

using namespace terrace;

namespace {

Result<double> run() {
  const KvShape shape{
      .layers = 1, .query_heads = 4, .kv_heads = 2, .head_dim = 64, .dtype = Dtype::f32};
  TERRACE_ASSIGN(auto chosen, offload::make_backend("host", {}));
  TERRACE_ASSIGN(auto runtime,
                 Runtime::open({.shape = shape, .policy = "pqcache"}, std::move(chosen.backend)));
  TERRACE_ASSIGN(auto compute, runtime->backend().make_queue({.name = "compute"}));
  TERRACE_ASSIGN(auto sequence, runtime->open_sequence());

  // Your model computes K and V; here [tokens, kv_heads, 2, head_dim], any strides will do.
  const std::size_t tokens = 1000;
  std::vector<float> kv(tokens * 2 * 128);
  for (std::size_t i = 0; i < kv.size(); ++i)
    kv[i] = static_cast<float>(i * 2654435761U % 1000) / 1000;
  const auto* rows = reinterpret_cast<const std::byte*>(kv.data());
  const KvTensors tensors{
      .keys = rows, .values = rows + 256, .token_stride = 1024, .head_stride = 512};

  TERRACE_TRY(sequence->begin_prefill(tokens));
  TERRACE_TRY(sequence->append(LayerId{0}, {.tokens = {0, tokens}, .kv = tensors}, *compute));
  TERRACE_TRY(sequence->finish(LayerId{0}, *compute));
  TERRACE_TRY(sequence->end_prefill());

  std::vector<float> query(4 * 64, 0.1F);
  std::vector<float> output(4 * 64);
  TERRACE_TRY(sequence->begin_step());
  TERRACE_TRY(sequence->attend(LayerId{0}, {.query = query.data(), .kv = tensors}, output.data(),
                               *compute));
  TERRACE_TRY(sequence->end_step());
  TERRACE_TRY(compute->drain(std::chrono::seconds{10}));
  const SequenceCounters counters = sequence->counters();
  return static_cast<double>(counters.attended) / static_cast<double>(counters.lists);
}

}  // namespace

int main() {
  const Result<double> attended = run();
  if (!attended) {
    std::fprintf(stderr, "embed: %.*s\n", static_cast<int>(attended.error().message().size()),
                 attended.error().message().data());
    return 1;
  }
  std::printf("one step over 1001 tokens attended to %.0f of them\n", *attended);
}
