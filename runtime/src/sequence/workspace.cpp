#include "workspace.hpp"

#include <cstring>

#include "layer/layer.hpp"
#include "memory/reserve_buffer.hpp"

namespace terrace {

// A buffer that has to grow has room for nothing meanwhile: the old memory is given back first.

Status Workspace::reserve(std::size_t length, std::span<const std::unique_ptr<Layer>> layers) {
  const bool may_select = progress_.list_rows() > 0;
  if (may_select) TERRACE_TRY(reserve_pseudo_entries(length));
  TERRACE_TRY(reserve_attention(length));
  if (!plan_.selects() || !may_select) return {};
  for (const auto& layer : layers) {
    for (AttendedToken& token : layer->tokens()) {
      TERRACE_TRY(
          token.selection.reserve(work_.backend, selection_size(plan_, progress_.list_rows())));
    }
  }
  TERRACE_TRY(reserve_seen(length));
  TERRACE_TRY(reserve_lists(layers));
  return reserve_candidates(length);
}

Status Workspace::reserve_attention(std::size_t length) {
  const policies::BudgetSplit split = progress_.split_at(length - 1);
  const bool everything = plan_.keeps_everything() || plan_.options.dense_layers > 0 ||
                          plan_.options.when == RetrievalWhen::spilled ||
                          progress_.prompt_selects();
  const std::size_t held = plan_.holds() ? progress_.most_kept() : 0;
  const std::size_t listed = everything      ? length
                             : plan_.drops() ? retained_entries(length)
                                             : split.sinks + split.window + split.selected + held;
  const std::size_t entries = listed + 1 + pseudo_entries_;
  if (entries <= entries_) return {};
  const std::size_t room = everything ? with_room(entries) : plan_.room_for(entries);
  const std::size_t floats = attention_scratch_floats(plan_.shape(), room);
  entries_ = 0;
  TERRACE_TRY(
      reserve_buffer(work_.backend, attention_scratch_, floats * sizeof(float), Purpose::staging));
  entries_ = room;
  return {};
}

std::size_t Workspace::retained_entries(std::size_t length) const noexcept {
  const policies::BudgetSplit& split = progress_.split();
  const std::size_t undecided = length - progress_.undecided_from(length - 1);
  const std::size_t usual = 2 * split.window;
  return split.sinks + progress_.most_kept() +
         (undecided > split.kept + usual ? with_room(undecided) : split.kept + usual);
}

Status Workspace::reserve_lists(std::span<const std::unique_ptr<Layer>> layers) {
  Backend& backend = work_.backend;
  const std::size_t rows = plan_.lists() * progress_.list_rows();
  const auto reserve = [&](Buffer& buffer, std::size_t bytes) {
    return reserve_buffer(backend, buffer, rows * bytes, Purpose::staging);
  };
  const std::size_t row_bytes = plan_.shape().row_bytes();
  for (const auto& layer : layers) TERRACE_TRY(layer->cache->reserve_staging(rows * row_bytes));
  if (layers.front()->cache->staging() == nullptr) TERRACE_TRY(reserve(staging_, row_bytes));
  TERRACE_TRY(reserve(rows_, sizeof(std::byte*)));
  TERRACE_TRY(reserve(missed_, sizeof(MissedRow)));
  if (plan_.traits().gives_logit_bias) TERRACE_TRY(reserve(logit_bias_, sizeof(float)));
  return {};
}

Status Workspace::reserve_seen(std::size_t length) {
  if (plan_.traits().lists == ListScope::kv_head || length <= positions_) return {};
  Backend& backend = work_.backend;
  const std::size_t room = with_room(length);
  const std::size_t bytes = plan_.shape().kv_heads * room * sizeof(std::uint32_t);
  positions_ = 0;
  TERRACE_TRY(reserve_buffer(backend, seen_, bytes, Purpose::staging));
  TERRACE_TRY(reserve_buffer(backend, seen_epoch_, sizeof(std::uint32_t), Purpose::staging));
  TERRACE_ASSIGN(Buffer zeros, backend.allocate({.bytes = bytes, .tier = Tier::host}));
  std::memset(zeros.data(), 0, bytes);
  const CopyExtent extents[] = {{seen_.data(), zeros.data(), bytes},
                                {seen_epoch_.data(), zeros.data(), sizeof(std::uint32_t)}};
  TERRACE_TRY(work_.copy_now(work_.lanes.index(), Phase::update, extents, zeros));
  positions_ = room;
  return {};
}

Status Workspace::reserve_pseudo_entries(std::size_t length) {
  const RetrievalPolicy& policy = (*plan_.policy);
  if (policy.pseudo_capacity(length) <= pseudo_entries_) return {};
  const std::size_t entries = policy.pseudo_capacity(with_room(length));
  const std::size_t all = plan_.lists() * entries;
  Backend& backend = work_.backend;
  pseudo_entries_ = 0;
  TERRACE_TRY(reserve_buffer(backend, pseudo_rows_, all * sizeof(std::byte*), Purpose::staging));
  TERRACE_TRY(reserve_buffer(backend, pseudo_bias_, all * sizeof(float), Purpose::staging));
  if (plan_.traits().estimates_rest) {
    TERRACE_TRY(reserve_buffer(backend, means_, all * plan_.shape().row_bytes(), Purpose::staging));
  }
  pseudo_entries_ = entries;
  return {};
}

Status Workspace::reserve_candidates(std::size_t length) {
  if (length <= candidates_) return {};
  const std::size_t room = with_room(length);
  const std::size_t floats = plan_.policy->select_scratch_floats(plan_.shape(), room);
  candidates_ = 0;
  TERRACE_TRY(
      reserve_buffer(work_.backend, select_scratch_, floats * sizeof(float), Purpose::staging));
  candidates_ = room;
  return {};
}

void Workspace::reset() noexcept {
  for (Buffer* const buffer :
       {&staging_, &rows_, &missed_, &logit_bias_, &select_scratch_, &attention_scratch_, &seen_,
        &seen_epoch_, &pseudo_rows_, &pseudo_bias_, &means_}) {
    buffer->reset();
  }
  candidates_ = entries_ = positions_ = pseudo_entries_ = 0;
}

Selection Workspace::selection(const Layer& layer) const noexcept {
  const SelectionBuffers lists = layer.token().selection.on_device();
  Selection selection{.capacity = progress_.list_rows(),
                      .ids = lists.ids,
                      .id_count = lists.counts,
                      .logit_bias = logit_bias_.as<float>()};
  if (plan_.traits().gives_pseudo_entries) {
    selection.pseudo = {.rows = pseudo_rows_.as<const std::byte*>(),
                        .bias = pseudo_bias_.as<float>(),
                        .count = lists.pseudo_counts,
                        .stride = pseudo_entries_};
  }
  return selection;
}

ResolveRows Workspace::resolve(const Layer& layer) const noexcept {
  const SelectionBuffers lists = layer.token().selection.on_device();
  std::byte* const own_staging = layer.cache->staging();
  return {.shape = plan_.shape(),
          .scope = plan_.traits().lists,
          .ids = lists.ids,
          .id_count = lists.counts,
          .id_stride = progress_.list_rows(),
          .resident = layer.rows.device_table(),
          .cached = layer.cache->rows(),
          .slots = layer.cache->slots(),
          .slot_counts = lists.slots,
          .staging = own_staging != nullptr ? own_staging : staging_.data(),
          .rows = rows_.as<std::byte*>(),
          .missed = missed_.as<MissedRow>(),
          .missed_count = lists.missed_count,
          .seen = seen_.as<std::uint32_t>(),
          .seen_epoch = seen_epoch_.as<std::uint32_t>(),
          .seen_stride = positions_};
}

FetchRows Workspace::fetch(const Layer& layer, const HostRows& rows) const noexcept {
  return {.shape = plan_.shape(),
          .missed = missed_.as<MissedRow>(),
          .missed_count = layer.token().selection.on_device().missed_count,
          .source = rows.table()};
}

PseudoEntries Workspace::pseudo(const Layer& layer) const noexcept {
  const RetrievalTraits& traits = plan_.traits();
  // Attention itself makes the pseudo-entries of rests.
  if (!layer.token().selected || !traits.gives_pseudo_entries || traits.estimates_rest) return {};
  return {.rows = pseudo_rows_.as<const std::byte*>(),
          .bias = pseudo_bias_.as<float>(),
          .count = layer.token().selection.on_device().pseudo_counts,
          .stride = pseudo_entries_};
}

}  // namespace terrace
