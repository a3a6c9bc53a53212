#include "mass_sampler.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <new>
#include <numeric>
#include <vector>

#include "layer/layer.hpp"
#include "terrace/kernels/retained_rows.hpp"

namespace terrace {
namespace {

bool attends_to_everything(const AttendedToken& token) noexcept {
  return token.window.begin <= token.sinks.end;
}

/// Turns from one sample to the next, of `turns`: about the golden section, so that a few samples
/// are spread over all layers, and no common divisor, so that each has its turn.
std::size_t stride_of(std::size_t turns) noexcept {
  std::size_t stride = turns * 5 / 8;
  while (std::gcd(stride, turns) != 1) ++stride;
  return stride;
}

/// The first token of a layer's step, and all tokens up to it, in a KV head.
class FirstToken {
 public:
  FirstToken(const RuntimePlan& plan, const Layer& layer, const HostRows& rows,
             std::size_t list_rows, std::size_t head) noexcept
      : plan_(plan),
        layer_(layer),
        rows_(rows),
        list_rows_(list_rows),
        token_(layer.first_token()),
        head_(head) {}

  /// Returns the share of the softmax over all tokens that lies on those attended to, mean over
  /// the KV head's query heads; NaN where logits are not finite. `queries` [group, head_dim].
  [[nodiscard]] double mass(const float* queries) const {
    const KvShape& shape = plan_.shape();
    const std::size_t group = shape.group();
    const std::size_t count = token_.window.end;
    const std::vector<const std::byte*> rows = key_rows();
    std::vector<float> weights(group * count);
    kernels::host::add_query_weights({.shape = shape,
                                      .queries = queries,
                                      .query_stride = group * shape.head_dim,
                                      .tokens = 1,
                                      .rows = rows,
                                      .seen = count,
                                      .sums = weights.data(),
                                      .stride = count});
    double sum = 0;
    for (std::size_t i = 0; i < group; ++i) {
      const std::span<const float> own = std::span(weights).subspan(i * count, count);
      const double all = std::reduce(own.begin(), own.end(), 0.0);  // 1 but for rounding
      if (!(all > 0)) return std::numeric_limits<double>::quiet_NaN();
      sum += std::min(1.0, attended_weight(own, head_ * group + i) / all);
    }
    return sum / static_cast<double>(group);
  }

 private:
  [[nodiscard]] std::vector<const std::byte*> key_rows() const {
    std::vector<const std::byte*> rows;
    rows.reserve(token_.window.end);
    const std::size_t row_bytes = plan_.shape().row_bytes();
    const std::size_t block_tokens = plan_.block_tokens();
    for (std::size_t position = 0; position < token_.window.end; position += block_tokens) {
      const std::byte* row = rows_.page(position / block_tokens);
      row += layer_.rows.row_offset(head_, position);
      const std::size_t here = std::min(block_tokens, token_.window.end - position);
      for (std::size_t i = 0; i < here; ++i) rows.push_back(row + i * row_bytes);
    }
    return rows;
  }

  [[nodiscard]] double attended_weight(std::span<const float> weights,
                                       std::size_t query_head) const {
    const TokenRange middle{token_.sinks.end, token_.window.begin};
    const auto up_to = [&](std::size_t position) {
      return weights.begin() + static_cast<std::ptrdiff_t>(position);
    };
    double sum = std::reduce(weights.begin(), up_to(middle.begin), 0.0) +
                 std::reduce(up_to(middle.end), weights.end(), 0.0);
    for (const std::uint32_t id : selected(query_head)) sum += weights[id];
    const std::vector<EntryList>& heads = layer_.retention.entries.now().heads;
    if (heads.empty()) return sum;
    const EntryList& entries = heads[head_];
    for (std::size_t i = 0; i < entries.size(); ++i) {
      const std::uint32_t position = entries.positions[i];
      // An entry of several tokens is the row of none.
      if (entries.degrees[i] == 1 && middle.contains(position)) sum += weights[position];
    }
    return sum;
  }

  [[nodiscard]] std::span<const std::uint32_t> selected(std::size_t query_head) const noexcept {
    if (!token_.selected) return {};
    const bool own_list = plan_.traits().lists == ListScope::query_head;
    const std::size_t list = own_list ? query_head : head_;
    const SelectionBuffers lists = token_.selection.on_host();
    return {lists.ids + list * list_rows_, lists.counts[list]};
  }

  const RuntimePlan& plan_;
  const Layer& layer_;
  const HostRows& rows_;
  std::size_t list_rows_;
  const AttendedToken& token_;
  std::size_t head_;
};

}  // namespace

MassSampler::MassSampler(const SequenceServices& services,
                         std::span<const std::unique_ptr<Layer>> layers) noexcept
    : plan_(services.plan),
      progress_(services.progress),
      work_(services.work),
      keeper_(services.memory.host.chunks().get()),
      layers_(layers) {
  const std::size_t every = plan_.options.mass_every;
  if (every == 0) return;
  // Sequences of a batch that began together are not all sampled in the same step, and short ones
  // do not all begin with the same layer.
  const std::size_t number = index(work_.id);
  const std::size_t turns = layers.size() * plan_.shape().kv_heads;
  steps_left_ = every - number % every;
  turn_ = number % turns * stride_of(turns) % turns;
}

Layer& MassSampler::sampled_layer() const noexcept {
  return *layers_[turn_ / plan_.shape().kv_heads];
}

std::size_t MassSampler::sampled_head() const noexcept { return turn_ % plan_.shape().kv_heads; }

void MassSampler::begin_step(bool decodes) {
  // The weight of tokens that are gone is not known.
  decodes_ = decodes && plan_.options.mass_every > 0 && !plan_.drops();
  sampled_ = decodes_ && steps_left_ == 1;
  if (!sampled_ || query_) return;
  const std::size_t numbers = plan_.shape().group() * plan_.shape().head_dim;
  Result<Buffer> memory =
      work_.backend.allocate({.bytes = numbers * sizeof(float), .tier = Tier::host});
  sampled_ = memory.has_value();
  if (memory) query_ = std::move(*memory);
}

Status MassSampler::keep_query(const Layer& layer, const float* query, Queue& compute) {
  if (!sampled_ || &layer != &sampled_layer()) return {};
  if (attends_to_everything(layer.first_token())) return {};
  const auto* const all = reinterpret_cast<const std::byte*>(query);
  const CopyExtent extents[] = {
      {query_.data(), all + sampled_head() * query_.bytes(), query_.bytes()}};
  // After the layer, the engine may write other queries to this memory.
  TERRACE_ASSIGN(copied_, compute.copy(Phase::offload, extents));
  work_.counters.bytes.index += query_.bytes();
  return {};
}

Status MassSampler::count(bool exact) {
  if (!sampled_) return {};
  Layer& layer = sampled_layer();
  std::optional<double> mass = 1.0;
  if (!exact && !attends_to_everything(layer.first_token())) {
    TERRACE_TRY(work_.await(WaitReason::rows, copied_));
    mass = mass_of(layer);
  }
  if (!mass) return {};
  work_.counters.attention_mass += *mass;
  ++work_.counters.mass_samples;
  if (keeper_ != nullptr) keeper_->note_mass(*mass);
  return {};
}

void MassSampler::end_step() noexcept {
  if (!decodes_) return;
  if (sampled_) {
    const std::size_t turns = layers_.size() * plan_.shape().kv_heads;
    turn_ = (turn_ + stride_of(turns)) % turns;
    steps_left_ = plan_.options.mass_every;
  } else if (steps_left_ > 1) {
    --steps_left_;
  }
  sampled_ = decodes_ = false;
}

std::optional<double> MassSampler::mass_of(Layer& layer) const {
  const Result<HostRows> rows = layer.host_rows({0, layer.first_token().window.end});
  if (!rows) return std::nullopt;
  try {
    const double mass = FirstToken(plan_, layer, *rows, progress_.list_rows(), sampled_head())
                            .mass(query_.as<float>());
    return std::isfinite(mass) ? std::optional(mass) : std::nullopt;
  } catch (const std::bad_alloc&) {
    return std::nullopt;
  }
}

}  // namespace terrace
