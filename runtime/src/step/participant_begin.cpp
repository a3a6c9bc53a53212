// The begin of a sequence's part in a step: what it attends to, and room for it.
#include <algorithm>
#include <ranges>
#include <string>
#include <utility>

#include "participant.hpp"
#include "terrace/core/bytes.hpp"

namespace terrace {

bool Participant::brings_prompt() const noexcept {
  const bool unannounced = tokens_ > 1 && !progress_.has_decoded() && !progress_.prompt_given();
  return progress_.in_prompt() || unannounced;
}

Status Participant::begin(std::size_t tokens, LentStepMemory& memory,
                          SequenceRows::Company& company) {
  TERRACE_TRY(progress_.require(SequencePhase::idle));
  if (tokens == 0) return fail(Errc::invalid_argument, "a step of no token");
  TERRACE_TRY(progress_.check_length(tokens));
  if (progress_.in_prompt() && progress_.length() + tokens > progress_.prompt().end) {
    return fail(Errc::invalid_argument, "{} tokens; the prompt that was announced lacks {}", tokens,
                progress_.prompt().end - progress_.length());
  }
  const SequenceBudget before = progress_.budget();
  parts_.rows.join(company);
  const Status begun = begin_tokens(tokens, memory);
  if (begun) return begun;
  parts_.rows.leave();
  // Tokens that do not come decide on nothing.
  progress_.restore_budget(before);
  if (begun.error().code != Errc::out_of_memory || tokens == 1) return begun;
  const std::string need = fmt::format("no room for {} tokens in one step, fewer may fit", tokens);
  return tl::unexpected(begun.error().while_doing(need));
}

Status Participant::begin_tokens(std::size_t tokens, LentStepMemory& memory) {
  tokens_ = tokens;
  token_ = 0;
  parts_.indexes.prompt.forget();
  prompt_ = brings_prompt();
  // A budget that is a share follows a prompt that was not announced.
  if (prompt_ && !progress_.prompt_comes()) progress_.forget_budget();
  progress_.resolve_budget(std::max(progress_.length() + tokens, progress_.prompt().end));
  TERRACE_TRY(make_room_in_lists());
  // Tokens of a prompt that selects leave the window once the prompt is indexed.
  if (!prompt_ && !progress_.prompt_waits()) {
    TERRACE_TRY(parts_.recovering(parts_.retention.start_if_due()));
  }
  TERRACE_ASSIGN(bool indexed, has_indexes());
  Result<bool> prepared = prepare(indexed);
  TERRACE_TRY(parts_.recovering(prepared.map([](bool) {})));
  choose_attention(*prepared);
  if (may_index_prompt(*prepared)) {
    TERRACE_TRY(parts_.recovering(parts_.indexes.prompt.begin(progress_.prompt().end)));
  }
  parts_.rows.relieve_host();
  if (const Status reserved = reserve(memory); !reserved) {
    const bool lacks_memory = reserved.error().code == Errc::out_of_memory;
    if (!parts_.indexes.prompt.is_under_way() || !lacks_memory) return reserved;
    // The prompt is indexed after the step, when the step's own memory is free again.
    TERRACE_TRY(give_up_indexing(work_.deadline));
    TERRACE_TRY(reserve(memory));
  }
  if (!plan_.keeps_everything()) {
    TERRACE_ASSIGN(std::shared_ptr<Queue> leaving, memory.offload());
    work_.lanes.lend_step_queue(std::move(leaving));
  }
  if (is_draft()) parts_.indexes.upkeep.begin_draft();
  parts_.mass.begin_step(!prompt_);
  next_layer_ = 0;
  work_.compute = nullptr;
  gathers_ = false;
  progress_.begin_step();
  parts_.memory.note_use();
  return {};
}

Status Participant::make_room_in_lists() {
  const std::size_t rows = progress_.split_at(progress_.length() + tokens_ - 1).selected;
  if (rows <= progress_.list_rows()) return {};
  // Work of earlier steps reads the lists that are about to be replaced.
  for (const auto& layer : parts_.layers) TERRACE_TRY(layer->cache->await_changes());
  if (!parts_.come_to_rest()) {
    return fail(Errc::not_ready, "copies are still under way; try again");
  }
  for (const auto& layer : parts_.layers) layer->forget_tokens();
  progress_.grow_lists(rows);
  return {};
}

bool Participant::may_use_indexes() const noexcept {
  return plan_.options.until_ready == UntilReady::wait ||
         (parts_.indexes.builder.ready() && parts_.retention.ready());
}

Result<bool> Participant::has_indexes() {
  if (!may_use_indexes()) {
    TERRACE_TRY(parts_.recovering(parts_.retention.take_over()));
    return false;
  }
  TERRACE_TRY(parts_.recovering(parts_.await_indexes()));
  return true;
}

Result<bool> Participant::prepare(bool indexed) {
  if (indexed && progress_.prompt_waits()) {
    TERRACE_TRY(index_prompt());
    if (!prompt_) TERRACE_TRY(parts_.retention.start_if_due());
    TERRACE_ASSIGN(indexed, has_indexes());
  }
  // In the middle of a draft, no memory can be taken from other sequences.
  if (indexed && tokens_ > 1 && !prompt_) {
    TERRACE_TRY(parts_.memory.make_room(
        [&] { return parts_.indexes.room.reserve(progress_.length() + tokens_); }));
  }
  if (indexed && !parts_.indexes.room.ready) {
    TERRACE_TRY(parts_.indexes.prepare());
    TERRACE_ASSIGN(indexed, has_indexes());
  }
  const bool caches = parts_.cache.joined();
  const TimePoint begin = work_.clock().now();
  if (caches) TERRACE_TRY(parts_.cache.fit());
  parts_.rows.hand_over_passed();
  if (caches) work_.count_upkeep(begin);
  return indexed;
}

bool Participant::may_index_prompt(bool indexed) const noexcept {
  const bool is_last =
      prompt_ && progress_.in_prompt() && progress_.length() + tokens_ == progress_.prompt().end;
  return is_last && indexed && exact_ && !plan_.keeps_everything();
}

void Participant::choose_attention(bool indexed) noexcept {
  if (prompt_ && progress_.length() == progress_.prompt().begin) {
    const auto has_index = [&](const auto& layer) {
      return plan_.is_dense(layer->number) || !layer->index.image.coverage.tokens().empty();
    };
    progress_.note_prompt_selects(indexed && plan_.selects() && progress_.list_rows() > 0 &&
                                  plan_.options.prompts == PromptAttention::retrieved &&
                                  std::ranges::all_of(parts_.layers, has_index));
  }
  exact_ = !indexed || (prompt_ && !progress_.prompt_selects());
  if (plan_.drops()) exact_ = must_attend_exactly();
}

bool Participant::must_attend_exactly() const noexcept {
  // Tokens that were dropped cannot be attended to any more.
  if (progress_.retained_end() > 0) return false;
  const std::size_t last = progress_.length() + tokens_ - 1;
  return prompt_ || progress_.undecided_from(last) > progress_.sinks_at(last).end;
}

bool Participant::may_store_on_host() const noexcept {
  return prompt_ && exact_ && !plan_.keeps_everything();
}

bool Participant::may_stream(const Layer& layer) const {
  const std::size_t length = progress_.length() + tokens_;
  // A budget that is dealt anew may need blocks that are not there.
  if (!layer.rows.all_on_device(progress_.length() / plan_.block_tokens())) return true;
  const auto blocks = std::views::iota(std::size_t{0}, divide_up(length, plan_.block_tokens()));
  return !std::ranges::all_of(blocks,
                              [&](std::size_t block) { return layer.needs_block(block, length); });
}

Status Participant::reserve_tiles(LentStepMemory& memory) {
  const std::size_t blocks = divide_up(progress_.length() + tokens_, plan_.block_tokens());
  const auto streamed =
      std::ranges::count_if(parts_.layers, [&](const auto& layer) { return may_stream(*layer); });
  TERRACE_TRY(memory.reserve_room(tokens_, streamed == 0 ? 0 : blocks * plan_.block_tokens()));
  return memory.reserve_tables(static_cast<std::size_t>(streamed), blocks);
}

void Participant::give_back(const Status& refused, std::size_t blocks, LentStepMemory& memory) {
  memory.begin_member_in_least_room();
  parts_.rows.trim(blocks);
  static_cast<void>(parts_.recovering(refused));
  work_.journal.note_loss();
  // Buffers sized for so many tokens are too large for smaller steps and other sequences.
  if (refused.error().code != Errc::out_of_memory || tokens_ == 1) return;
  if (!parts_.come_to_rest()) return;
  for (const auto& layer : parts_.layers) {
    layer->cache->drop_unsettled();
    layer->forget_tokens();
  }
  parts_.workspace.reset();
}

Status Participant::try_reserve(LentStepMemory& memory) {
  const std::size_t length = progress_.length() + tokens_;
  const std::size_t block = progress_.length() / plan_.block_tokens();
  const std::size_t end = divide_up(length, plan_.block_tokens());
  if (!plan_.keeps_everything()) {
    TERRACE_TRY(memory.offload().map([](const std::shared_ptr<Queue>&) {}));
  }
  TERRACE_TRY(memory.reserve_queries(tokens_));
  TERRACE_TRY(parts_.rows.reserve_positions(length));
  TERRACE_TRY(parts_.rows.own_blocks(block, end));
  // Rows come last: they make room for each other, and for nothing else, block by block.
  if (exact_) TERRACE_TRY(reserve_tiles(memory));
  TERRACE_TRY(may_store_on_host() ? parts_.rows.place_needed(block, length)
                                  : parts_.rows.place_blocks(block, end));
  TERRACE_TRY(parts_.workspace.reserve(length, parts_.layers));
  TERRACE_TRY(parts_.retention.reserve());
  if (parts_.retention.inputs.wants_weights()) {
    TERRACE_TRY(parts_.retention.weights.begin_step(
        {.count = tokens_,
         .columns = exact_ ? length : parts_.workspace.retained_entries(length),
         .together = exact_,
         .of_prompt = prompt_}));
  }
  // The cache comes last and takes the remaining memory: blocks that it took earlier would be
  // spilled for the other parts, and taken again.
  return parts_.cache.reserve(length);
}

Status Participant::reserve(LentStepMemory& memory) {
  const std::size_t blocks = parts_.rows.blocks();
  const std::size_t length = progress_.length() + tokens_;
  for (const auto& layer : parts_.layers) {
    layer->reserve_tokens(std::max<std::size_t>(1, single_tokens()));
  }
  const auto reserve_all = [&]() -> Status {
    memory.begin_member();
    const Status reserved = try_reserve(memory);
    if (reserved || reserved.error().code != Errc::out_of_memory) return reserved;
    memory.begin_member_in_least_room();
    return try_reserve(memory);
  };
  if (const Status reserved = parts_.rows.reclaiming_for(length, reserve_all); !reserved) {
    give_back(reserved, blocks, memory);
    return reserved;
  }
  memory.promise();
  if (may_store_on_host()) parts_.place_prompt(length);
  // Mapping memory takes longer than a step.
  if (prompt_ && length >= progress_.prompt().end) parts_.cache.reserve_blocks(length);
  parts_.indexes.room.ready = false;
  // Tokens after the first one may have something to select where the first one has nothing.
  if (single_tokens() < 2) return {};
  return parts_.indexes.room.device().prefetch(*parts_.layers.front(), length - 1);
}

}  // namespace terrace
