// A second stage: what selecting four times as many rows, and of these the best by codes of rests,
// takes beside selecting them at once.
#include "terrace/kernels/refine.hpp"

#include <algorithm>
#include <memory>

#include "kernels/choice.hpp"
#include "kernels/contender.hpp"
#include "kernels/questions.hpp"
#include "terrace/core/rng.hpp"
#include "terrace/kernels/reference.hpp"
#include "terrace/kernels/select.hpp"

namespace terrace::bench {
namespace {

constexpr std::size_t refine_chunk_tokens = 256;  // as policies have them
constexpr std::size_t factor = 4;

struct RefineSetting {
  std::string name;
  std::size_t codes;
  std::size_t count;
  std::size_t group;
  std::size_t head_dim;
  std::size_t bits = 2;
};

/// The selection of one KV head.
class Refining {
 public:
  Refining(const RefineSetting& setting, bool quick)
      : choice_(choice_of(setting, quick)),
        shapes_{.bits = setting.bits, .pq = {}, .chunk_begin = pq_.subspaces * refine_chunk_tokens},
        fixed_(normal_numbers(pq_.centroids() * setting.head_dim, 9)),
        chunk_bytes_(shapes_.chunk_begin +
                     shapes_.chunk_bytes(choice_.shape(), refine_chunk_tokens)),
        memory_(divide_up(choice_.tokens(), refine_chunk_tokens) * chunk_bytes_),
        chunks_(cut_chunks(memory_, chunk_bytes_)),
        proposed_(factor * choice_.count()) {
    Rng rng(11);
    for (std::byte& code : memory_) code = static_cast<std::byte>(rng.below(pq_.centroids()));
    std::vector<float> keys = normal_numbers(choice_.tokens() * setting.head_dim, 12);
    kernels::host::refine_encode({.shape = choice_.shape(),
                                  .codes = shapes_,
                                  .index = index(),
                                  .tokens = {0, choice_.tokens()},
                                  .keys = keys.data()});
    run();
    kernels::reference::refine_select(second());
    choice_.expect();
  }

  /// Both stages.
  void run() {
    Serial threads;
    PqSelect proposal = first();
    proposal.common.count.mean = proposed_.size();
    proposal.common.ids = proposed_.data();
    proposal.common.id_count = &proposed_count_;
    proposal.common.id_stride = proposed_.size();
    kernels::host::pq_select(proposal, threads);
    kernels::host::refine_select(second(), threads);
  }
  /// One stage.
  void run_coarse() {
    Serial threads;
    kernels::host::pq_select(first(), threads);
  }

  [[nodiscard]] Status verify() const { return choice_.verify(choice_.count() / 100); }
  [[nodiscard]] Status verify_coarse() const { return choice_.verify_count(); }

 private:
  static Choice choice_of(const RefineSetting& setting, bool quick) {
    const std::size_t codes = quick ? std::min<std::size_t>(4096, setting.codes) : setting.codes;
    return {
        {.layers = 1, .query_heads = setting.group, .kv_heads = 1, .head_dim = setting.head_dim},
        codes,
        std::min(setting.count, codes / 8)};
  }
  [[nodiscard]] IndexView index() {
    return {.fixed = reinterpret_cast<const std::byte*>(fixed_.data()),
            .chunks = chunks_.data(),
            .chunk_tokens = refine_chunk_tokens,
            .token_count = choice_.tokens()};
  }
  [[nodiscard]] PqSelect first() {
    return {.common = choice_.common(), .pq = pq_, .index = index()};
  }
  [[nodiscard]] RefineSelect second() {
    return {.common = choice_.common(),
            .codes = shapes_,
            .index = index(),
            .proposed = proposed_.data(),
            .proposed_count = &proposed_count_,
            .proposed_stride = proposed_.size()};
  }

  Choice choice_;
  PqShape pq_;
  RefineShape shapes_;
  std::vector<float> fixed_;
  std::size_t chunk_bytes_;
  std::vector<std::byte> memory_;
  std::vector<std::byte*> chunks_;
  std::vector<std::uint32_t> proposed_;
  std::uint32_t proposed_count_ = 0;
};

Question refine_question(const RefineSetting& setting) {
  const auto prepare = [setting](bool quick) -> Result<Contest> {
    const auto refining = std::make_shared<Refining>(setting, quick);
    return Contest{
        .ours = contender(setting.name, refining, &Refining::run, &Refining::verify),
        .peer = contender("one stage", refining, &Refining::run_coarse, &Refining::verify_coarse)};
  };
  return {.name = setting.name,
          .unit = "s",
          .parameters = {{"threads", 1},
                         {"codes", setting.codes},
                         {"bits", setting.bits},
                         {"factor", factor},
                         {"head_dim", setting.head_dim},
                         {"query_heads", setting.group},
                         {"selected", setting.count}},
          .prepare = prepare};
}

}  // namespace

std::vector<Question> refine_questions() {
  std::vector<Question> all;
  for (const std::size_t bits : {std::size_t{1}, std::size_t{2}}) {
    const std::string end = "_r" + std::to_string(bits);
    all.push_back(refine_question({"refine_g3_n3876_k189" + end, 3876, 189, 3, 64, bits}));
    all.push_back(refine_question({"refine_g4_n16384_k512" + end, 16'384, 512, 4, 128, bits}));
    all.push_back(refine_question({"refine_g4_n131072_k1024" + end, 131'072, 1024, 4, 128, bits}));
  }
  return all;
}

}  // namespace terrace::bench
