// Selecting from product-quantisation codes: look-up table, scan and exact top-k.
#include <algorithm>
#include <numeric>

#include "kernels/choice.hpp"
#include "kernels/questions.hpp"
#include "terrace/core/rng.hpp"
#include "terrace/core/version.hpp"
#include "terrace/kernels/reference.hpp"
#include "terrace/kernels/select.hpp"

namespace terrace::bench {
namespace {

constexpr std::size_t pq_head_dim = 128;
constexpr std::size_t pq_chunk_tokens = 256;  // as policies have them

struct PqSetting {
  std::string name;
  std::size_t codes = 131'072;
  std::size_t count = 1024;
  std::size_t group = 1;
  PqShape pq{.subspaces = 2, .bits = 6};
};

/// The selection of one KV head.
class PqSelecting {
 public:
  PqSelecting(const PqSetting& setting, bool quick)
      : choice_(choice_of(setting, quick)),
        pq_(setting.pq),
        fixed_(normal_numbers(pq_.centroids() * pq_head_dim, 9)),
        memory_(choice_.tokens() * pq_.subspaces),
        chunks_(cut_chunks(memory_, pq_chunk_tokens * pq_.subspaces)) {
    Rng rng(11);
    for (std::byte& code : memory_) code = static_cast<std::byte>(rng.below(pq_.centroids()));
    kernels::reference::pq_select(op());
    choice_.expect();
  }

  void run() {
    Serial threads;
    kernels::host::pq_select(op(), threads);
  }

  /// Within 0.1 % of the exact order: rounding may swap neighbours in rank.
  [[nodiscard]] Status verify() const { return choice_.verify(choice_.count() / 1000); }

 private:
  static Choice choice_of(const PqSetting& setting, bool quick) {
    const std::size_t codes = quick ? 4096 : setting.codes;
    return {{.layers = 1, .query_heads = setting.group, .kv_heads = 1, .head_dim = pq_head_dim},
            codes,
            std::min(setting.count, codes / 4)};
  }
  [[nodiscard]] PqSelect op() {
    return {.common = choice_.common(),
            .pq = pq_,
            .index = {.fixed = reinterpret_cast<const std::byte*>(fixed_.data()),
                      .chunks = chunks_.data(),
                      .chunk_tokens = pq_chunk_tokens,
                      .token_count = choice_.tokens()}};
  }

  Choice choice_;
  PqShape pq_;
  std::vector<float> fixed_;
  std::vector<std::byte> memory_;
  std::vector<std::byte*> chunks_;
};

Question pq_question(const PqSetting& setting) {
  const auto prepare = [setting](bool quick) -> Result<Contest> {
    const auto selecting = std::make_shared<PqSelecting>(setting, quick);
    return Contest{.ours = {.name = setting.name,
                            .version = std::string(version()),
                            .run = [selecting] { selecting->run(); },
                            .verify = [selecting] { return selecting->verify(); }},
                   .peer = {}};
  };
  return {.name = setting.name,
          .unit = "s",
          .parameters = {{"threads", 1},
                         {"codes", setting.codes},
                         {"subspaces", setting.pq.subspaces},
                         {"bits", setting.pq.bits},
                         {"head_dim", pq_head_dim},
                         {"query_heads", setting.group},
                         {"selected", setting.count}},
          .prepare = prepare};
}

}  // namespace

std::vector<Question> pq_questions() {
  return {
      pq_question({.name = "pq_scan_topk_n131072_m2_b6_k1024"}),
      pq_question({.name = "pq_scan_topk_n131072_m2_b6_k13107", .count = 13'107}),
      pq_question({.name = "pq_scan_topk_n131072_m4_b6_k1024", .pq = {.subspaces = 4, .bits = 6}}),
      pq_question({.name = "pq_scan_topk_n131072_m4_b8_k1024", .pq = {.subspaces = 4, .bits = 8}}),
      pq_question({.name = "pq_scan_topk_n131072_m8_b8_k1024", .pq = {.subspaces = 8, .bits = 8}}),
      pq_question({.name = "pq_select_g4_n131072_m2_b6_k1024", .group = 4}),
      pq_question({.name = "pq_select_g4_n131072_m4_b6_k1024",
                   .group = 4,
                   .pq = {.subspaces = 4, .bits = 6}})};
}

}  // namespace terrace::bench
