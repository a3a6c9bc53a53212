#include "step_batch.hpp"

#include <mutex>

namespace terrace {

StepBatch::StepBatch(RuntimeState& runtime, std::span<Participant* const> participants)
    : runtime_(runtime), tiles_(runtime) {
  for (Participant* const participant : participants) members_.push_back({participant});
}

template <typename Call>
void StepBatch::for_each_member(Call call) {
  for (std::size_t i = 0; i < members_.size(); ++i) {
    Member& member = members_[i];
    if (member.status) member.status = call(*member.participant, i);
  }
}

Status StepBatch::check_turns(std::string_view call, LayerId layer,
                              std::span<const StepInput> inputs, const Queue& compute) {
  for (std::size_t i = 0; i < members_.size(); ++i) {
    if (!members_[i].status) continue;
    TERRACE_TRY(members_[i].participant->check_turn(call, layer, inputs[i], compute));
  }
  return {};
}

Status StepBatch::prepare(std::string_view call, LayerId layer, std::span<const StepInput> inputs,
                          Queue& compute) {
  TERRACE_TRY(check_turns(call, layer, inputs, compute));
  for_each_member(
      [&](Participant& one, std::size_t i) { return one.open_layer(layer, inputs[i], compute); });
  TERRACE_ASSIGN(stored_, store(compute));
  TERRACE_ASSIGN(const Ticket ready, select(compute, stored_));
  for_each_member([&](Participant& one, std::size_t) { return one.close_layer(ready); });
  return {};
}

Result<Ticket> StepBatch::store(Queue& compute) {
  stores_.clear();
  for_each_member([&](Participant& one, std::size_t) {
    stores_.push_back(one.store());
    return Status{};
  });
  return runtime_.backend->ops().store_rows(compute, Phase::update, stores_);
}

Result<Ticket> StepBatch::select(Queue& compute, Ticket stored) {
  list_selecting(compute);
  if (selecting_.empty()) return stored;
  const Ops& ops = runtime_.backend->ops();
  TERRACE_ASSIGN(const Ticket selected, runtime_.policy->select(selects_, compute, ops));
  for (Participant* const one : selecting_) one->note_selected(selected);
  TERRACE_ASSIGN(const Ticket resolved, ops.resolve_rows(compute, Phase::fetch, resolves_));
  TERRACE_TRY(ops.fetch_rows(compute, Phase::fetch, fetches_));
  return resolved;
}

void StepBatch::list_selecting(Queue& compute) {
  selecting_.clear();
  selects_.clear();
  resolves_.clear();
  fetches_.clear();
  for_each_member([&](Participant& one, std::size_t) -> Status {
    if (!one.selects()) return {};
    TERRACE_ASSIGN(const SelectRequest request, one.select(compute));
    selecting_.push_back(&one);
    selects_.push_back(request);
    resolves_.push_back(one.resolve());
    fetches_.push_back(one.fetch());
    return {};
  });
}

Status StepBatch::attend(LayerId layer, std::span<const StepInput> inputs,
                         std::span<const StepOutput> outputs, Queue& compute) {
  TERRACE_TRY(prepare("attend", layer, inputs, compute));
  attentions_.clear();
  for_each_member([&](Participant& one, std::size_t i) {
    if (!one.attends_exactly()) attentions_.push_back(one.attention(outputs[i]));
    return Status{};
  });
  TERRACE_ASSIGN(const Ticket attended,
                 runtime_.backend->ops().decode_attention(compute, Phase::attend, attentions_));
  for_each_member([&](Participant& one, std::size_t) {
    if (!one.attends_exactly()) one.note_attended(attended);
    return Status{};
  });
  return attend_exactly(outputs, compute);
}

Status StepBatch::attend_exactly(std::span<const StepOutput> outputs, Queue& compute) {
  for_each_member([&](Participant& one, std::size_t i) -> Status {
    if (!one.attends_exactly()) return {};
    TERRACE_TRY(tiles_.reserve());
    TERRACE_ASSIGN(const Ticket attended, one.attend_exactly(tiles_, outputs[i], stored_, compute));
    one.note_attended(attended);
    return {};
  });
  return {};
}

void StepBatch::end(std::span<const std::size_t> accepted) {
  // All caches are looked after while the compute of all goes on.
  for_each_member([](Participant& one, std::size_t) { return one.keep_up(); });
  for_each_member([&](Participant& one, std::size_t i) {
    const std::lock_guard lock(one.mutex());
    return one.conclude(accepted.empty() ? one.tokens() : accepted[i]);
  });
  for (Member& member : members_) {
    if (!member.status) abandon(member);
  }
  tiles_.end_step();
}

void StepBatch::give_up() {
  for (Member& member : members_) abandon(member);
  tiles_.end_step();
}

void StepBatch::abandon(Member& member) {
  const std::lock_guard lock(member.participant->mutex());
  const Status abandoned = member.participant->abandon();
  if (!abandoned) member.status = abandoned;
}

}  // namespace terrace
