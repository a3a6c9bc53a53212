#include "terrace/engine/llama_model.hpp"

#include <gmock/gmock.h>

#include <cmath>

#include "core/temporary_folder.hpp"
#include "terrace/engine/reference_decoder.hpp"
#include "thread_parallel.hpp"

namespace terrace::engine {
namespace {

using testing::HasSubstr;

const LlamaModel& tiny() {
  static const LlamaModel model = LlamaModel::load(TERRACE_TINY_MODEL).value();
  return model;
}

std::vector<TokenId> some_tokens(std::size_t count) {
  std::vector<TokenId> tokens(count);
  for (std::size_t i = 0; i < count; ++i) tokens[i] = TokenId(32 + i * i % 90);
  return tokens;
}

/// Logits of a step that follows a prefill.
std::vector<float> decode(Parallel& parallel, std::size_t chunk_rows) {
  const auto tokens = some_tokens(301);
  auto decoder =
      ReferenceDecoder::create(
          tiny(), {.kv_dtype = Dtype::f16, .capacity = 301, .chunk_rows = chunk_rows}, parallel)
          .value();
  EXPECT_TRUE(decoder.prefill(std::span(tokens).first(300)).has_value());
  std::vector<float> logits(tiny().config().vocabulary);
  EXPECT_TRUE(decoder.step(tokens.back(), logits).has_value());
  return logits;
}

TEST(LlamaModel, GivesTheSameBitsOnAnyNumberOfThreads) {
  Serial serial;
  const auto expected = decode(serial, 128);
  for (const std::size_t threads : {2U, 4U}) {
    ThreadParallel parallel(threads);
    EXPECT_EQ(decode(parallel, 128), expected) << threads;
  }
}

TEST(LlamaModel, HardlyMindsTheSizeOfPrefillChunks) {
  Serial serial;
  const auto expected = decode(serial, 512);
  // Not bit for bit: other tiles add in another order, and a key that lies between two halves may
  // then be rounded to the other one. A wrong row would be off by whole units.
  for (const std::size_t chunk_rows : {1U, 37U, 64U, 299U}) {
    const auto logits = decode(serial, chunk_rows);
    for (std::size_t i = 0; i < logits.size(); ++i) ASSERT_NEAR(logits[i], expected[i], 0.01);
  }
}

TEST(LlamaModel, HandsOutKeysBeforeAndAfterRotation) {
  Serial serial;
  const auto& config = tiny().config();
  Workspace workspace = tiny().make_workspace(4).value();
  std::vector<float> hidden(4 * config.hidden_size);
  ASSERT_TRUE(tiny().embed(some_tokens(4), hidden.data()).has_value());
  std::vector<float> query(4 * config.query_size());
  std::vector<float> key(4 * config.kv_size());
  std::vector<float> value(key.size());
  std::vector<float> key_pre_rope(key.size());
  tiny().project_qkv(0, hidden.data(), {.first_position = 0, .count = 4},
                     {.query = query.data(),
                      .key = key.data(),
                      .value = value.data(),
                      .key_pre_rope = key_pre_rope.data()},
                     workspace, serial);
  const std::size_t half = config.head_dim / 2;
  for (std::size_t row = 0; row < 4; ++row) {
    for (std::size_t i = 0; i < half; ++i) {
      const double angle = double(row) * std::pow(config.rope_theta, -double(i) / double(half));
      const double a = key_pre_rope[row * config.kv_size() + i];
      const double b = key_pre_rope[row * config.kv_size() + half + i];
      EXPECT_NEAR(key[row * config.kv_size() + i], a * std::cos(angle) - b * std::sin(angle), 1e-5);
      EXPECT_NEAR(key[row * config.kv_size() + half + i], b * std::cos(angle) + a * std::sin(angle),
                  1e-5);
    }
  }
}

TEST(LlamaModel, RefusesATokenOutsideItsVocabulary) {
  std::vector<float> hidden(2 * tiny().config().hidden_size);
  const TokenId tokens[] = {TokenId{65}, TokenId{256}};
  const Status status = tiny().embed(tokens, hidden.data());
  EXPECT_EQ(status.error().code, Errc::invalid_argument);
  EXPECT_THAT(std::string(status.error().message()), HasSubstr("token 256"));
}

TEST(LlamaModel, RefusesAWorkspaceWithoutRows) {
  EXPECT_EQ(tiny().make_workspace(0).error().code, Errc::invalid_argument);
  EXPECT_EQ(tiny().make_workspace(SIZE_MAX).error().code, Errc::invalid_argument);
}

TEST(LlamaModel, NamesTheFileOfATruncatedModel) {
  const TemporaryFolder folder;
  const std::filesystem::path tiny_folder = TERRACE_TINY_MODEL;
  std::filesystem::copy(tiny_folder / "config.json", folder.path());
  std::filesystem::copy(tiny_folder / "model.safetensors", folder.path());
  std::filesystem::resize_file(folder.path() / "model.safetensors", 1'000'000);
  const auto model = LlamaModel::load(folder.path());
  EXPECT_EQ(model.error().code, Errc::corrupt);
  EXPECT_THAT(std::string(model.error().message()), HasSubstr("model.safetensors"));
}

}  // namespace
}  // namespace terrace::engine
