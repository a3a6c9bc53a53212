#include "terrace/tuning/recorder.hpp"

#include <utility>

namespace terrace::tuning {

TraceRecord* TraceRecorder::begin(TraceRecord::Kind kind, SequenceId sequence) {
  if (!recording_.load(std::memory_order_relaxed)) return nullptr;
  record_.kind = kind;
  record_.sequence = index(sequence);
  return &record_;
}

void TraceRecorder::on_share(SequenceId sequence, std::size_t sharers) {
  const std::lock_guard lock(mutex_);
  TraceRecord* const record = begin(TraceRecord::Kind::share, sequence);
  if (record == nullptr) return;
  record->sharers = sharers;
  writer_.append(*record);
}

void TraceRecorder::on_prompt(const LayerPrompt& prompt) {
  const std::lock_guard lock(mutex_);
  TraceRecord* const record = begin(TraceRecord::Kind::prompt, prompt.sequence);
  if (record == nullptr) return;
  record->layer = index(prompt.layer);
  record->prompt = prompt.tokens;
  record->window_begin = prompt.window_begin;
  record->placed_begin = prompt.placed_begin;
  writer_.append(*record);
}

void TraceRecorder::on_selection(const LayerSelection& selection) {
  const std::lock_guard lock(mutex_);
  TraceRecord* const record = begin(TraceRecord::Kind::selection, selection.sequence);
  if (record == nullptr) return;
  record->layer = index(selection.layer);
  record->position = selection.position;
  record->sinks_end = selection.sinks.end;
  record->window_begin = selection.window.begin;
  record->resident_head = selection.resident_head;
  record->resident_tail = selection.resident_tail;
  record->positions.assign(selection.positions.begin(), selection.positions.end());
  record->head_counts.assign(selection.head_counts.begin(), selection.head_counts.end());
  record->units.clear();
  for (const WantedCluster& each : selection.clusters) {
    record->units.push_back(
        {.unit = each.unit, .rows = each.rows_wanted, .size_rows = each.size_rows});
  }
  record->renamed = selection.clusters_renamed;
  writer_.append(*record);
}

void TraceRecorder::on_loss(SequenceId /*sequence*/) {
  const std::lock_guard lock(mutex_);
  if (recording_.load(std::memory_order_relaxed)) writer_.add_losses(1);
}

void TraceRecorder::on_step_end(const StepTraffic& traffic) {
  const std::lock_guard lock(mutex_);
  TraceRecord* const record = begin(TraceRecord::Kind::step_end, traffic.sequence);
  if (record == nullptr) return;
  record->offload_bytes = traffic.offload_bytes;
  record->index_bytes = traffic.index_bytes;
  record->ids_bytes = traffic.ids_bytes;
  writer_.append(*record);
}

void TraceRecorder::on_pause(SequenceId sequence) {
  const std::lock_guard lock(mutex_);
  const TraceRecord* const record = begin(TraceRecord::Kind::pause, sequence);
  if (record != nullptr) writer_.append(*record);
}

void TraceRecorder::on_load(const LayerLoad& load) {
  const std::lock_guard lock(mutex_);
  TraceRecord* const record = begin(TraceRecord::Kind::load, load.sequence);
  if (record == nullptr) return;
  record->layer = index(load.layer);
  record->position = load.position;
  record->window_begin = load.window_begin;
  record->loaded_bytes = load.loaded_bytes;
  writer_.append(*record);
}

void TraceRecorder::on_close(SequenceId sequence) {
  const std::lock_guard lock(mutex_);
  const TraceRecord* const record = begin(TraceRecord::Kind::close, sequence);
  if (record != nullptr) writer_.append(*record);
}

Result<PendingFile> TraceRecorder::close(const std::optional<RecordedRun>& run) {
  stop();
  const std::lock_guard lock(mutex_);
  if (std::exchange(closed_, true)) {
    return fail(Errc::invalid_argument, "the recording of this trace has ended before");
  }
  return writer_.close(run);
}

Status TraceRecorder::finish(const std::optional<RecordedRun>& run) {
  TERRACE_ASSIGN(PendingFile whole, close(run));
  return whole.publish();
}

}  // namespace terrace::tuning
