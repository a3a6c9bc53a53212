// The decoder with its arithmetic on the device: the logits of PyTorch, and what observers see.
#include <gmock/gmock.h>

#include <chrono>

#include "engine/golden.hpp"
#include "terrace/engine/attention_probe.hpp"
#include "terrace/engine/decoder.hpp"
#include "terrace/offload/cuda/cuda_backend.hpp"
#include "terrace/offload/host_backend.hpp"
#include "terrace/runtime/runtime.hpp"

namespace terrace::engine {
namespace {

using nlohmann::json;

struct Decoding {
  Decoding(const LlamaModel& model, const std::string& policy, std::unique_ptr<Backend> backend,
           Dtype kv_dtype = Dtype::f32, std::size_t rope_length = 0,
           std::size_t chunk_tokens = 512) {
    RuntimeOptions options{.shape = model.config().kv_shape(kv_dtype),
                           .policy = policy,
                           .budget = {.kind = TokenBudget::Kind::tokens, .value = 64},
                           .sink_tokens = 8,
                           .until_ready = UntilReady::wait,
                           .deadline = std::chrono::hours{1}};  // sanitizers take minutes
    runtime = Runtime::open(options, std::move(backend)).value();
    decoder =
        Decoder::create(model, *runtime, {.chunk_tokens = chunk_tokens, .rope_length = rope_length})
            .value();
    sequence = runtime->open_sequence().value();
  }

  void decode(std::span<const TokenId> tokens, std::size_t prompt) {
    ASSERT_TRUE(decoder->prefill(*sequence, tokens.first(prompt)).has_value());
    for (const TokenId token : tokens.subspan(prompt)) {
      const Status done = decoder->step(*sequence, token);
      ASSERT_TRUE(done.has_value()) << done.error().message();
    }
  }

  std::unique_ptr<Runtime> runtime;
  std::unique_ptr<Decoder> decoder;
  std::unique_ptr<Sequence> sequence;
};

std::unique_ptr<Backend> cuda() { return offload::CudaBackend::create({}).value(); }
std::unique_ptr<Backend> host() { return offload::HostBackend::create({}).value(); }

TEST(CudaDecoder, MeetsTheGoldenLogits) {
  const LlamaModel model = LlamaModel::load(golden_folder() + "/llama3_rope_model").value();
  for (const json& golden : cases_of("llama3_rope_logits.json")) {
    const auto tokens = tokens_of(golden);
    const auto last = golden.at("positions").get<std::vector<std::size_t>>().back();
    Decoding run(model, "full", cuda());
    run.decode(std::span(tokens).first(last + 1), std::max<std::size_t>(1, last - 3));
    EXPECT_LE(distance(run.decoder->logits(), golden.at("logits").back()), f32_tolerance);
  }
}

TEST(CudaDecoder, MeetsTheGoldenLogitsWithBiasesAndEveryRopeScaling) {
  for (const json& golden : cases_of("variant_logits.json")) {
    SCOPED_TRACE(golden.at("config").dump());
    const LlamaModel model = load_variant(golden).value();
    const auto tokens = tokens_of(golden);
    Decoding run(model, "full", cuda(), Dtype::f32, tokens.size());
    run.decode(tokens, tokens.size() - 3);
    EXPECT_LE(distance(run.decoder->logits(), golden.at("logits").back()), f32_tolerance);
  }
}

TEST(CudaDecoder, MeetsTheGoldenLogitsOfEveryArchitecture) {
  for (const json& golden : cases_of("architecture_logits.json")) {
    SCOPED_TRACE(golden.at("model"));
    const LlamaModel model = load_architecture(golden).value();
    const auto tokens = tokens_of(golden);
    Decoding run(model, "full", cuda(), Dtype::f32, tokens.size());
    run.decode(tokens, tokens.size() - 3);
    EXPECT_LE(distance(run.decoder->logits(), golden.at("logits").back()), f32_tolerance);
  }
}

TEST(CudaDecoder, RefusesKeysAndValuesThatTheirDtypeCannotHold) {
  const TemporaryFolder folder;
  copy_with_changed_weights(folder, "model.layers.1.self_attn.v_proj.weight", 60000);
  const LlamaModel model = LlamaModel::load(folder.path()).value();
  const auto tokens = tokens_of(cases_of("tiny_logits.json").front());
  Decoding run(model, "full", cuda(), Dtype::f16);
  const Status refused = run.decoder->prefill(*run.sequence, tokens);
  ASSERT_FALSE(refused.has_value());
  EXPECT_THAT(std::string(refused.error().message()),
              testing::AllOf(testing::HasSubstr("layer 1"), testing::HasSubstr("--kv-dtype bf16")));
  Decoding wide(model, "full", cuda(), Dtype::bf16);
  EXPECT_TRUE(wide.decoder->prefill(*wide.sequence, tokens).has_value());
}

TEST(CudaDecoder, PredictsWhatTheHostDoes) {
  const LlamaModel tiny = LlamaModel::load(tiny_model()).value();
  const auto tokens = tokens_of(cases_of("tiny_logits.json").back());
  const auto text = std::span(tokens).first(std::min<std::size_t>(tokens.size(), 130));
  for (const std::string policy : {"full", "streaming", "qpq", "infinigen"}) {
    Decoding on_host(tiny, policy, host());
    Decoding on_device(tiny, policy, cuda());
    AttentionProbe probe(tiny.config().kv_shape(Dtype::f32), text.size());
    for (Decoding* const run : {&on_host, &on_device}) {
      run->decoder->observe(&probe);
      run->decode(text, text.size() - 4);
    }
    for (std::size_t i = 0; i < on_host.decoder->logits().size(); ++i) {
      // A row more or less may be selected where two weigh alike.
      const double tolerance = policy == "qpq" || policy == "infinigen" ? 0.1 : f32_tolerance;
      ASSERT_NEAR(on_device.decoder->logits()[i], on_host.decoder->logits()[i], tolerance)
          << policy;
    }
    for (std::size_t layer = 0; layer < tiny.config().layers; ++layer) {
      const auto expected = on_host.decoder->query(layer);
      const auto query = on_device.decoder->query(layer);
      for (std::size_t i = 0; i < query.size(); ++i) {
        ASSERT_NEAR(query[i], expected[i], 0.1) << policy;
      }
    }
  }
}

/// Logits after a prompt in two turns, and one step.
std::vector<float> logits_in_pieces(std::unique_ptr<Backend> backend, std::size_t piece,
                                    std::size_t chunk) {
  const LlamaModel model = LlamaModel::load(golden_folder() + "/llama3_rope_model").value();
  const auto golden = tokens_of(cases_of("llama3_rope_logits.json").back());
  std::vector<TokenId> text;
  for (std::size_t i = 0; i < 300; ++i) text.push_back(golden[(i + i / 97) % golden.size()]);
  Decoding run(model, "qpq", std::move(backend), Dtype::f32, 0, chunk);
  for (const auto turn : {std::span(text).first(260), std::span(text).subspan(260, 39)}) {
    const Status done = run.decoder->prefill(*run.sequence, turn, {.piece_tokens = piece});
    EXPECT_TRUE(done.has_value()) << done.error().message();
  }
  EXPECT_TRUE(run.decoder->step(*run.sequence, text.back()).has_value());
  return {run.decoder->logits().begin(), run.decoder->logits().end()};
}

TEST(CudaDecoder, GivesTheSameBitsHoweverAPromptIsCut) {
  const auto whole = logits_in_pieces(cuda(), 0, 512);
  EXPECT_EQ(logits_in_pieces(cuda(), 0, 256), whole);
  EXPECT_EQ(logits_in_pieces(cuda(), 110, 512), whole);
  const auto on_host = logits_in_pieces(host(), 0, 512);
  for (std::size_t i = 0; i < whole.size(); ++i) ASSERT_NEAR(whole[i], on_host[i], 0.1);
}

TEST(CudaDecoder, RefusesRowsOfAPieceThatTheirDtypeCannotHold) {
  const LlamaModel model = model_with("model.layers.1.self_attn.v_proj.weight", 60000);
  Decoding run(model, "streaming", cuda(), Dtype::f16);
  const auto tokens = tokens_of(cases_of("tiny_logits.json").back());
  const Status refused =
      run.decoder->prefill(*run.sequence, std::span(tokens).first(100), {.piece_tokens = 40});
  ASSERT_FALSE(refused.has_value());
  EXPECT_THAT(std::string(refused.error().message()), testing::HasSubstr("layer 1"));
  EXPECT_EQ(run.sequence->length(), 0U);
}

TEST(CudaDecoder, ShowsObserversTheRows) {
  const LlamaModel tiny = LlamaModel::load(tiny_model()).value();
  const KvShape shape = tiny.config().kv_shape(Dtype::f32);
  const auto tokens = tokens_of(cases_of("tiny_logits.json").back());
  const auto text = std::span(tokens).first(100);
  Serial serial;
  AttentionQuality quality[2];
  for (const bool on_device : {false, true}) {
    Decoding run(tiny, "streaming", on_device ? cuda() : host());
    AttentionProbe probe(shape, text.size());
    run.decoder->observe(&probe);
    run.decode(text, text.size() - 1);
    quality[on_device ? 1 : 0] = probe.measure(*run.sequence, *run.decoder, serial);
  }
  EXPECT_NEAR(quality[1].mass_sum, quality[0].mass_sum, 1e-3);
}

TEST(CudaDecoder, LeavesTheModelOutOfDeviceMemory) {
  const LlamaModel tiny = LlamaModel::load(tiny_model()).value();
  // Room for a step's tiles, and half of what the weights take.
  constexpr std::size_t limit = std::size_t{6} << 20;
  ASSERT_GT(tiny.parameters() * sizeof(float), limit);
  auto backend = offload::CudaBackend::create({.device_memory_limit = limit}).value();
  Decoding run(tiny, "streaming", std::move(backend));
  const std::vector<TokenId> tokens(60, TokenId{65});
  run.decode(tokens, 58);
  EXPECT_LE(run.runtime->backend().memory(Tier::device).peak, limit);
}

TEST(CudaDecoder, RefusesTokensThatTheModelLacks) {
  const LlamaModel tiny = LlamaModel::load(tiny_model()).value();
  Decoding run(tiny, "streaming", cuda());
  const std::vector<TokenId> tokens{TokenId{65}, TokenId{9999}};
  const Status refused = run.decoder->prefill(*run.sequence, tokens);
  ASSERT_FALSE(refused.has_value());
  EXPECT_THAT(std::string(refused.error().message()), ::testing::HasSubstr("9999"));
  run.decode(std::vector<TokenId>(10, TokenId{65}), 8);
}

}  // namespace
}  // namespace terrace::engine
