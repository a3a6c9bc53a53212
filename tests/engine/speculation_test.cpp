// Queries that the engine speculates for policies that ask for them.
#include <gtest/gtest.h>

#include <map>
#include <mutex>
#include <utility>

#include "decoding.hpp"
#include "golden.hpp"
#include "runtime/own_policy.hpp"

namespace terrace::engine {
namespace {

constexpr std::size_t prompt = 200;

/// A policy that keeps what it is asked to select by, and selects nothing.
class QueriesSeen final : public terrace::testing::OwnPolicy {
 public:
  struct Seen {
    std::vector<float> query;
    std::vector<float> speculated;
  };

  QueriesSeen() : OwnPolicy({.name = "seen", .needs_speculated_query = true}) {}

  [[nodiscard]] Result<Ticket> select(std::span<const SelectRequest> batch, Queue& queue,
                                      const Ops& /*ops*/) const override {
    return queue.call(
        Phase::select,
        [this, requests = std::vector(batch.begin(), batch.end())]() -> Result<std::size_t> {
          for (const SelectRequest& request : requests) see(request);
          return 0;
        });
  }
  /// Returns what was seen of a token of a layer. The queue must be idle.
  [[nodiscard]] const Seen& of(std::size_t layer, std::size_t position) const {
    return seen_.at({layer, position});
  }

 private:
  void see(const SelectRequest& request) const {
    const std::size_t size = request.shape.query_heads * request.shape.head_dim;
    const std::lock_guard lock(mutex_);
    seen_[{index(request.layer), request.window.end - 1}] = {
        .query = {request.query, request.query + size},
        .speculated = {request.speculated_query, request.speculated_query + size}};
    std::fill_n(request.out.id_count, request.shape.kv_heads, 0U);
  }

  mutable std::mutex mutex_;
  mutable std::map<std::pair<std::size_t, std::size_t>, Seen> seen_;
};

/// The query that layer 1 has if its input is that of layer 0, the token's embedding.
std::vector<float> speculated_from_embedding(const LlamaModel& model, TokenId token,
                                             std::size_t position) {
  Serial serial;
  const ModelConfig& config = model.config();
  Workspace workspace = model.make_workspace(1).value();
  std::vector<float> hidden(config.hidden_size);
  EXPECT_TRUE(model.embed({&token, 1}, hidden.data()).has_value());
  std::vector<float> query(config.query_size());
  std::vector<float> key(config.kv_size());
  std::vector<float> value(config.kv_size());
  model.project_qkv(1, hidden.data(), {position, 1},
                    {.query = query.data(), .key = key.data(), .value = value.data()}, workspace,
                    serial);
  return query;
}

struct Speculation : ::testing::Test {
  LlamaModel tiny = LlamaModel::load(tiny_model()).value();
  std::vector<TokenId> tokens = tokens_of(cases_of("tiny_logits.json").back());
  std::shared_ptr<QueriesSeen> policy = std::make_shared<QueriesSeen>();
};

TEST_F(Speculation, LooksFromTheInputOfTheLayerBeforeInAStep) {
  Decoding run(tiny, {.budget = small_budget, .own_policy = policy});
  ASSERT_TRUE(run.prefill(std::span(tokens).first(prompt)).has_value());
  for (std::size_t i = prompt; i < prompt + 3; ++i) {
    ASSERT_TRUE(run.step(tokens[i]).has_value());
    EXPECT_EQ(policy->of(0, i).speculated, policy->of(0, i).query);
    EXPECT_EQ(policy->of(1, i).speculated, speculated_from_embedding(tiny, tokens[i], i));
    for (std::size_t layer = 1; layer < tiny.config().layers; ++layer) {
      EXPECT_NE(policy->of(layer, i).speculated, policy->of(layer, i).query);
    }
  }
}

TEST_F(Speculation, LooksFromTheInputOfTheLayerBeforeInAPromptThatSelects) {
  Decoding run(tiny, {.budget = small_budget,
                      .piece_tokens = 7,
                      .own_policy = policy,
                      .prompts = PromptAttention::retrieved});
  ASSERT_TRUE(run.prefill(std::span(tokens).first(prompt)).has_value());
  ASSERT_TRUE(run.prefill(std::span(tokens).subspan(prompt, 20)).has_value());
  for (std::size_t i = prompt; i < prompt + 20; ++i) {
    EXPECT_EQ(policy->of(0, i).speculated, policy->of(0, i).query);
    const auto expected = speculated_from_embedding(tiny, tokens[i], i);
    const std::vector<float>& speculated = policy->of(1, i).speculated;
    // Rows are multiplied in tiles, which add in another order.
    for (std::size_t k = 0; k < expected.size(); ++k) {
      ASSERT_NEAR(speculated[k], expected[k], 1e-3) << i;
    }
  }
}

}  // namespace
}  // namespace terrace::engine
