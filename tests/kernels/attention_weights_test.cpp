// Weights that decode attention gives: against the reference, and what they leave alone.
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>

#include "kernels/attention_scenario.hpp"
#include "kernels/attention_shapes.hpp"
#include "kernels/weights_near.hpp"

namespace terrace {
namespace {

using testing::AttentionCase;
using testing::AttentionScenario;
using testing::first_wrong_weight;
using testing::Guarded;
using testing::make_shape;

constexpr float nan = std::numeric_limits<float>::quiet_NaN();

/// Attention with weights; places that were not written are NaN.
class Weighed {
 public:
  Weighed(AttentionScenario& scenario, ListScope scope)
      : scenario_(scenario),
        scope_(scope),
        output_(scenario.query_.size(), nan),
        sums_(list_count(scenario.options_.shape, scope) * scenario.weights_stride(), nan) {}

  DecodeAttention op() { return scenario_.op(output_.data(), scope_, sums_.data()); }

  const Weighed& run() {
    testing::run(op());
    EXPECT_TRUE(output_.intact() && sums_.intact());
    return *this;
  }
  const Weighed& run_reference() {
    kernels::reference::decode_attention(op());
    return *this;
  }

  [[nodiscard]] std::vector<float> output() const { return copy(output_); }
  [[nodiscard]] std::vector<float> sums() const { return copy(sums_); }
  [[nodiscard]] float weight(std::size_t list, std::size_t entry) const {
    return sums()[list * scenario_.weights_stride() + entry];
  }
  /// The sum over a list's entries.
  [[nodiscard]] double total(std::size_t list, std::size_t entries) const {
    const std::vector<float> all = sums();
    double sum = 0;
    for (std::size_t i = 0; i < entries; ++i) {
      sum += double{all[list * scenario_.weights_stride() + i]};
    }
    return sum;
  }

 private:
  static std::vector<float> copy(Guarded<float> guarded) {
    return {guarded.span().begin(), guarded.span().end()};
  }

  AttentionScenario& scenario_;
  ListScope scope_;
  Guarded<float> output_;
  Guarded<float> sums_;
};

/// Checks weights of either scope, if query heads have no lists of their own.
void expect_like_reference(const AttentionCase& options) {
  SCOPED_TRACE(options.text());
  AttentionScenario scenario(options);
  const std::vector<float> unweighed = scenario.run();
  for (const ListScope scope : {ListScope::kv_head, ListScope::query_head}) {
    if (options.scope == ListScope::query_head && scope == ListScope::kv_head) continue;
    Weighed weighed(scenario, scope);
    const std::vector<float> expected = Weighed(scenario, scope).run_reference().sums();
    EXPECT_EQ(first_wrong_weight(weighed.run().sums(), expected), "");
    EXPECT_EQ(weighed.output(), unweighed) << "weights change the output";
  }
}

TEST(AttentionWeights, AgreeWithTheReferenceForEveryShape) {
  testing::for_each_attention_shape({1, 2, 3, 4, 7, 8, 11, 33},
                                    [](const KvShape& shape, std::size_t off) {
                                      expect_like_reference({.shape = shape,
                                                             .block_tokens = 3,
                                                             .sinks = 5,
                                                             .window = 40,
                                                             .selected = 23,
                                                             .misalignment = off});
                                    });
}

TEST(AttentionWeights, AgreeWithTheReferenceForEveryList) {
  std::size_t number = 0;
  for (const ListScope scope : {ListScope::kv_head, ListScope::query_head}) {
    for (const std::size_t count : {0U, 1U, 15U, 16U, 17U, 254U, 511U, 512U, 513U, 700U}) {
      for (const std::size_t pseudo : {0U, 19U}) {
        if (!testing::takes_shape(number++)) continue;
        expect_like_reference({.shape = make_shape(2, 2, 64, Dtype::f16),
                               .sinks = count % 3,
                               .window = count,
                               .selected = count,
                               .pseudo = pseudo,
                               .scope = scope,
                               .biased = count % 2 == 1});
      }
    }
  }
}

TEST(AttentionWeights, OfAQueryHeadAddUpToOne) {
  for (const ListScope scope : {ListScope::kv_head, ListScope::query_head}) {
    AttentionScenario scenario({.shape = make_shape(3, 2, 64, Dtype::f16),
                                .sinks = 4,
                                .window = 600,
                                .selected = 90,
                                .pseudo = 30,
                                .scope = scope,
                                .biased = true});
    Weighed weighed(scenario, ListScope::query_head);
    weighed.run();
    for (std::size_t head = 0; head < 6; ++head) {
      EXPECT_NEAR(weighed.total(head, scenario.entries(head)), 1, 1e-5) << head;
      EXPECT_TRUE(std::isnan(weighed.weight(head, scenario.entries(head)))) << "written behind";
    }
  }
}

TEST(AttentionWeights, OfAKvHeadAreTheSumsOfItsQueryHeads) {
  AttentionScenario scenario(
      {.shape = make_shape(3, 2, 16, Dtype::f16), .sinks = 4, .window = 600, .selected = 9});
  Weighed heads(scenario, ListScope::query_head);
  Weighed lists(scenario, ListScope::kv_head);
  heads.run();
  lists.run();
  for (std::size_t list = 0; list < 2; ++list) {
    for (std::size_t i = 0; i < scenario.entries(3 * list); ++i) {
      float sum = 0;
      for (std::size_t h = 0; h < 3; ++h) sum += heads.weight(3 * list + h, i);
      EXPECT_NEAR(lists.weight(list, i), sum, 1e-6F * sum) << list << " " << i;
    }
  }
}

TEST(AttentionWeights, AreZeroWhereLogitsAreMinusInfinity) {
  AttentionScenario scenario({.shape = make_shape(2, 1, 16, Dtype::f32), .window = 520});
  constexpr float infinity = std::numeric_limits<float>::infinity();
  std::fill(scenario.query_.begin(), scenario.query_.end(), 0.0F);
  scenario.query_[0] = scenario.query_[16] = -1;
  const auto set_keys = [&](float even, float odd) {
    for (std::size_t p = 0; p < scenario.tokens(); ++p) {
      store_f32(scenario.store_.row(0, p), Dtype::f32, 0, p % 2 == 0 ? even : odd);
    }
  };
  Weighed weighed(scenario, ListScope::query_head);
  set_keys(infinity, 1);
  weighed.run();
  for (std::size_t i = 0; i < 520; ++i) {
    const bool none = (scenario.tokens() - 520 + i) % 2 == 0;
    EXPECT_NEAR(double{weighed.weight(0, i)}, none ? 0 : 1.0 / 260, 1e-6) << i;
  }
  set_keys(infinity, infinity);
  weighed.run();
  for (std::size_t i = 0; i < 520; ++i) {
    EXPECT_EQ(weighed.weight(0, i), 0) << i;
    EXPECT_EQ(weighed.weight(1, i), 0) << i;
  }
}

TEST(AttentionWeights, AreNanForHeadsWhoseOutputIs) {
  AttentionScenario scenario({.shape = make_shape(2, 1, 16, Dtype::f32), .window = 600});
  scenario.query_[16] = nan;
  Weighed weighed(scenario, ListScope::query_head);
  weighed.run();
  EXPECT_NEAR(weighed.total(0, 600), 1, 1e-5);
  for (std::size_t i = 0; i < 600; ++i) EXPECT_TRUE(std::isnan(weighed.weight(1, i))) << i;
}

}  // namespace
}  // namespace terrace
