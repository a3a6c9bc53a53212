#include "terrace/engine/reference_decoder.hpp"

#include <gmock/gmock.h>

#include <algorithm>

namespace terrace::engine {
namespace {

const LlamaModel& tiny() {
  static const LlamaModel model = LlamaModel::load(TERRACE_TINY_MODEL).value();
  return model;
}

std::vector<TokenId> tokens_of(std::string_view text) {
  std::vector<TokenId> tokens;
  for (const char c : text) tokens.push_back(TokenId{static_cast<unsigned char>(c)});
  return tokens;
}

TEST(ReferenceDecoder, RecallsAFactAcrossTheContext) {
  std::string text = "\nNote: the pass code of the quiet lantern is 58213.\n";
  for (int i = 0; i < 12; ++i)
    text += "The harbour opens early and the boats leave with the tide. ";
  text += "\nAgain: the pass code of the quiet lantern is";
  Serial serial;
  auto decoder = ReferenceDecoder::create(tiny(), {.capacity = 2048}, serial).value();
  const auto tokens = tokens_of(text);
  ASSERT_TRUE(decoder.prefill(std::span(tokens).first(tokens.size() - 1)).has_value());
  std::vector<float> logits(256);
  TokenId token = tokens.back();
  std::string answer;
  for (int i = 0; i < 7; ++i) {
    ASSERT_TRUE(decoder.step(token, logits).has_value());
    const auto best = std::ranges::max_element(logits) - logits.begin();
    answer += static_cast<char>(best);
    token = TokenId(best);
  }
  EXPECT_EQ(answer, " 58213.");
}

TEST(ReferenceDecoder, StepsAsItPrefills) {
  const auto tokens = tokens_of("Every bridge outlasts its keeper, and no one counts the stones.");
  Serial serial;
  const auto& config = tiny().config();
  auto prefilled = ReferenceDecoder::create(tiny(), {.capacity = 100}, serial).value();
  const FloatArray hidden = prefilled.prefill(tokens).value();
  auto stepped = ReferenceDecoder::create(tiny(), {.capacity = 100}, serial).value();
  std::vector<float> expected(256);
  std::vector<float> logits(256);
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    tiny().logits(hidden.data() + i * config.hidden_size, 1, expected.data(), prefilled.workspace(),
                  serial);
    ASSERT_TRUE(stepped.step(tokens[i], logits).has_value());
    // Other tiles, another order of additions, and now and then another rounding of a key to f16.
    for (std::size_t j = 0; j < 256; ++j) ASSERT_NEAR(logits[j], expected[j], 0.01) << i;
  }
  EXPECT_EQ(stepped.position(), prefilled.position());
}

TEST(ReferenceDecoder, RefusesMoreThanItsCapacity) {
  Serial serial;
  auto decoder = ReferenceDecoder::create(tiny(), {.capacity = 3}, serial).value();
  EXPECT_EQ(decoder.prefill(tokens_of("four")).error().code, Errc::invalid_argument);
  EXPECT_EQ(decoder.prefill({}).error().code, Errc::invalid_argument);
  EXPECT_TRUE(decoder.prefill(tokens_of("abc")).has_value());
  std::vector<float> logits(256);
  EXPECT_EQ(decoder.step(TokenId{65}, logits).error().code, Errc::invalid_argument);
}

TEST(ReferenceDecoder, NeedsOptionsItCanMeet) {
  Serial serial;
  EXPECT_EQ(ReferenceDecoder::create(tiny(), {.capacity = 0}, serial).error().code,
            Errc::invalid_argument);
  EXPECT_EQ(ReferenceDecoder::create(tiny(), {.capacity = SIZE_MAX / 8}, serial).error().code,
            Errc::out_of_memory);
}

}  // namespace
}  // namespace terrace::engine
