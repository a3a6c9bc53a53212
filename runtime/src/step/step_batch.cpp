#include "step_batch.hpp"

#include <algorithm>
#include <mutex>

namespace terrace {

template <typename Call>
void StepBatch::for_each_member(Call call) {
  for (std::size_t i = 0; i < members_.size(); ++i) {
    Member& member = members_[i];
    if (!member.status) continue;
    member.status = member.participant->named(call(*member.participant, i));
  }
}

Status StepBatch::begin(Participant& participant, std::size_t tokens) {
  TERRACE_TRY(participant.named(participant.begin(tokens, memory_, company_)));
  members_.push_back({&participant});
  return {};
}

Status StepBatch::sharing(Status done) {
  if (!done) failure_ = done;
  return done;
}

Status StepBatch::check(LayerId layer, std::span<const StepInput> inputs, Queue& compute) const {
  TERRACE_TRY(failure_);
  for (std::size_t i = 0; i < members_.size(); ++i) {
    if (!members_[i].status) continue;
    const Participant& one = *members_[i].participant;
    TERRACE_TRY(one.named(one.check_turn(layer, inputs[i], compute)));
  }
  return {};
}

Status StepBatch::open(LayerId layer, std::span<const StepInput> inputs, Queue& compute) {
  for_each_member(
      [&](Participant& one, std::size_t i) { return one.open_layer(layer, inputs[i], compute); });
  TERRACE_ASSIGN(stored_, store(compute));
  selected_ = stored_;
  for_each_member([&](Participant& one, std::size_t) { return one.note_stored(stored_, compute); });
  return {};
}

Status StepBatch::prepare(LayerId layer, std::span<const StepInput> inputs, Queue& compute) {
  TERRACE_TRY(check(layer, inputs, compute));
  return sharing(enqueue_without_attention(layer, inputs, compute));
}

void StepBatch::leave_attention_to_engine() {
  for_each_member([](Participant& one, std::size_t) -> Status {
    TERRACE_TRY(one.check_rows_are_here());
    one.leave_attention_to_engine();
    return {};
  });
}

Status StepBatch::leave_attention_out() {
  for (const Member& member : members_) {
    const Participant& one = *member.participant;
    if (member.status) TERRACE_TRY(one.named(one.check_append()));
  }
  for_each_member([](Participant& one, std::size_t) {
    one.leave_attention_to_engine();
    return Status{};
  });
  return {};
}

Status StepBatch::enqueue_without_attention(LayerId layer, std::span<const StepInput> inputs,
                                            Queue& compute) {
  TERRACE_TRY(open(layer, inputs, compute));
  TERRACE_TRY(select(0, compute));
  TERRACE_TRY(close_layer());
  let_tensors_go(compute);
  return {};
}

Result<Ticket> StepBatch::store(Queue& compute) {
  stores_.clear();
  for_each_member([&](Participant& one, std::size_t) {
    one.list_stores(stores_);
    return Status{};
  });
  if (stores_.empty()) return compute.record();
  return runtime_.backend->ops().store_rows(compute, Phase::update, stores_);
}

Status StepBatch::select(std::size_t number, Queue& compute) {
  list_selecting(number, compute);
  if (selecting_.empty()) return {};
  const Ops& ops = runtime_.backend->ops();
  TERRACE_ASSIGN(Ticket selected, runtime_.plan.policy->select(selects_, compute, ops));
  if (any_selecting(&Participant::streams_index)) {
    TERRACE_ASSIGN(selected, compute.record());
  }
  for (const Member* const one : selecting_) one->participant->note_selected(selected);
  TERRACE_ASSIGN(selected_, ops.resolve_rows(compute, Phase::fetch, resolves_));
  // Ids leave while rows are fetched: the copy is not to wait for these.
  if (any_selecting(&Participant::sends_after_selection)) {
    TERRACE_ASSIGN(selected_, compute.record());
  }
  TERRACE_TRY(bring_selected(compute));
  TERRACE_TRY(fetch(selecting_, compute));
  return fetch_one_by_one(compute);
}

Status StepBatch::fetch(std::span<Member* const> members, Queue& compute) {
  fetches_.clear();
  for (const Member* const one : members) {
    if (one->status && !one->participant->lacks_rows()) {
      fetches_.push_back(one->participant->fetch());
    }
  }
  if (fetches_.empty()) return {};
  TERRACE_ASSIGN(const Ticket fetched,
                 runtime_.backend->ops().fetch_rows(compute, Phase::fetch, fetches_));
  for (const Member* const one : members) {
    if (!one->participant->lacks_rows()) one->participant->note_fetched(fetched);
  }
  return {};
}

Status StepBatch::bring_selected(Queue& compute) {
  awaiting_.clear();
  if (!any_selecting(&Participant::may_select_away)) return {};
  // Rows of a member that lacks none might leave for another one's: they are kept, too.
  awaiting_ = selecting_;
  selections_.clear();
  for (const Member* const one : awaiting_) {
    selections_.push_back(one->participant->selection_to_host());
  }
  TERRACE_ASSIGN(const Ticket copied, compute.copy(Phase::offload, selections_));
  for (Member* const one : awaiting_) {
    one->status = one->participant->named(one->participant->read_selection(copied));
  }
  // Members that find no room together are served one by one.
  static_cast<void>(bring(awaiting_));
  return {};
}

Status StepBatch::bring(std::span<Member* const> members) {
  arrivals_.clear();
  for (Member* const one : members) {
    if (one->status) one->participant->list_arrivals(arrivals_);
  }
  const TimePoint begin = runtime_.backend->clock().now();
  const SequenceMemory& memory = members.front()->participant->memory();
  const Status brought =
      memory.make_room([&] { return LayerRows::bring(arrivals_); }, HostRoom::pages);
  memory.host.note_read(LayerRows::count_read(arrivals_) * runtime_.plan.block_bytes(), begin,
                        runtime_.backend->clock().now());
  for (Member* const one : members) {
    if (!one->status) continue;
    one->status = one->participant->named(one->participant->note_arrivals(arrivals_, begin));
  }
  return brought;
}

Status StepBatch::fetch_one_by_one(Queue& compute) {
  for (Member* const one : awaiting_) {
    const Participant& participant = *one->participant;
    if (!one->status || !participant.lacks_rows()) continue;
    const Status brought = bring({&one, 1});
    if (one->status && participant.lacks_rows()) one->status = participant.named(brought);
    TERRACE_TRY(fetch({&one, 1}, compute));
  }
  return {};
}

void StepBatch::list_selecting(std::size_t number, Queue& compute) {
  selecting_.clear();
  selects_.clear();
  resolves_.clear();
  for_each_member([&](Participant& one, std::size_t i) -> Status {
    if (number >= one.single_tokens()) return {};
    TERRACE_TRY(one.open_token(number));
    if (!one.selects()) return {};
    TERRACE_ASSIGN(const SelectRequest request, one.select(compute));
    selecting_.push_back(&members_[i]);
    selects_.push_back(request);
    resolves_.push_back(one.resolve());
    return {};
  });
}

bool StepBatch::any_selecting(bool (Participant::*is_so)() const) const {
  return std::ranges::any_of(selecting_,
                             [&](const Member* one) { return (one->participant->*is_so)(); });
}

std::size_t StepBatch::most_single_tokens() const noexcept {
  std::size_t most = 0;
  for (const Member& member : members_) {
    if (member.status) most = std::max(most, member.participant->single_tokens());
  }
  return most;
}

Status StepBatch::close_layer() {
  leaving_.clear();
  for_each_member([&](Participant& one, std::size_t) {
    one.close_layer(leaving_);
    return Status{};
  });
  if (leaving_.empty()) return {};
  TERRACE_ASSIGN(const std::shared_ptr<Queue> offload, memory_.offload());
  TERRACE_TRY(offload->wait_for(selected_));
  for_each_member([&](Participant& one, std::size_t) { return one.order_copies(*offload); });
  TERRACE_ASSIGN(const Ticket copied, offload->copy(Phase::offload, leaving_));
  for_each_member([&](Participant& one, std::size_t) {
    one.note_leaving(copied);
    return Status{};
  });
  return {};
}

Status StepBatch::attend(LayerId layer, std::span<const StepInput> inputs,
                         std::span<const StepOutput> outputs, Queue& compute) {
  TERRACE_TRY(check(layer, inputs, compute));
  return sharing(enqueue(layer, inputs, outputs, compute));
}

Status StepBatch::enqueue(LayerId layer, std::span<const StepInput> inputs,
                          std::span<const StepOutput> outputs, Queue& compute) {
  TERRACE_TRY(open(layer, inputs, compute));
  const std::size_t rounds = std::max<std::size_t>(1, most_single_tokens());
  for (std::size_t number = 0; number < rounds; ++number) {
    TERRACE_TRY(select(number, compute));
    // Selections leave while attention runs.
    if (number + 1 == rounds) TERRACE_TRY(close_layer());
    TERRACE_TRY(attend_selected(number, outputs, compute));
  }
  TERRACE_TRY(attend_exactly(outputs, compute));
  let_tensors_go(compute);
  return {};
}

void StepBatch::let_tensors_go(Queue& compute) {
  for_each_member([&](Participant& one, std::size_t) { return one.let_tensors_go(compute); });
}

Status StepBatch::attend_selected(std::size_t number, std::span<const StepOutput> outputs,
                                  Queue& compute) {
  attentions_.clear();
  const auto for_each_token = [&](auto call) {
    for_each_member([&](Participant& one, std::size_t i) {
      return number < one.single_tokens() ? call(one, i) : Status{};
    });
  };
  for_each_token([&](Participant& one, std::size_t i) -> Status {
    TERRACE_ASSIGN(const DecodeAttention attention, one.attention(outputs[i], compute));
    attentions_.push_back(attention);
    return {};
  });
  TERRACE_ASSIGN(Ticket attended,
                 runtime_.backend->ops().decode_attention(compute, Phase::attend, attentions_));
  const bool is_waited_for = std::ranges::any_of(members_, [](const Member& member) {
    return member.status && member.participant->refills_after_attention();
  });
  if (is_waited_for) {
    TERRACE_ASSIGN(attended, compute.record());
  }
  for_each_token([&](Participant& one, std::size_t) {
    one.note_attended(attended);
    return one.send_weights(attended);
  });
  return {};
}

Status StepBatch::attend_exactly(std::span<const StepOutput> outputs, Queue& compute) {
  for_each_member([&](Participant& one, std::size_t i) -> Status {
    if (!one.attends_exactly()) return {};
    TERRACE_ASSIGN(const Ticket attended, one.attend_exactly(tiles_, outputs[i], stored_, compute));
    one.note_attended(attended);
    return {};
  });
  return {};
}

void StepBatch::note_converted(Ticket converted) {
  for_each_member([&](Participant& one, std::size_t) {
    one.note_attended(converted);
    return Status{};
  });
}

void StepBatch::end(std::span<const std::size_t> accepted) {
  // All caches are looked after while the compute of all goes on.
  for_each_member([](Participant& one, std::size_t) { return one.keep_up(); });
  // Upkeep goes first: its copies run while samples are computed.
  for_each_member([](Participant& one, std::size_t) { return one.count_mass(); });
  // A queue that stands still holds all of them up, but not one after the other.
  const Deadline all(runtime_.plan.options.deadline);
  for_each_member([&](Participant& one, std::size_t i) -> Status {
    const std::lock_guard lock(one.mutex());
    const Status concluded = one.conclude(accepted[i], all.left());
    // Also where it has failed: a sequence that it has paused is other sequences' to take from.
    one.rows().leave();
    runtime_.add_counters(one.work());
    return concluded;
  });
  for (Member& member : members_) {
    if (!member.status) abandon(member, all.left());
  }
  end_step();
  runtime_.publish_counters();
}

void StepBatch::give_up() {
  const Deadline all(runtime_.plan.options.deadline);
  for (Member& member : members_) abandon(member, all.left());
  end_step();
  runtime_.publish_counters();
}

void StepBatch::abandon(Member& member, Duration patience) {
  const std::lock_guard lock(member.participant->mutex());
  const Status abandoned = member.participant->named(member.participant->abandon(patience));
  member.participant->rows().leave();
  runtime_.add_counters(member.participant->work());
  if (abandoned) return;
  member.status = abandoned;
  memory_.leave_to(member.participant->abandoned_memory());
}

void StepBatch::end_step() noexcept {
  memory_.give_back();
  tiles_.end_step();
  failure_ = {};
}

}  // namespace terrace
