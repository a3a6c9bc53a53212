#include "terrace/runtime/runtime.hpp"

#include "runtime_state.hpp"
#include "sequence/sequence_state.hpp"
#include "step/step_state.hpp"
#include "terrace/core/bytes.hpp"

namespace terrace {

Runtime::Runtime(std::unique_ptr<RuntimeState> state) : state_(std::move(state)) {}
Runtime::~Runtime() = default;

Result<std::unique_ptr<Runtime>> Runtime::open(RuntimeOptions options,
                                               std::unique_ptr<Backend> backend) {
  TERRACE_ASSIGN(auto state, RuntimeState::create(std::move(options), std::move(backend)));
  return std::unique_ptr<Runtime>(new Runtime(std::move(state)));
}

Result<std::unique_ptr<Sequence>> Runtime::open_sequence() {
  TERRACE_ASSIGN(auto state, SequenceState::create(*state_));
  return std::unique_ptr<Sequence>(new Sequence(std::move(state)));
}

Result<std::unique_ptr<Step>> Runtime::begin_step(std::span<const StepMember> members,
                                                  Queue& compute) {
  std::vector<Step::Part> parts;
  for (const StepMember& member : members) {
    SequenceState* const state = member.sequence->state_.get();
    if (&state->parts.context.runtime != state_.get()) {
      return fail(Errc::invalid_argument, "begin_step: sequence {} is of another runtime",
                  parts.size());
    }
    parts.push_back({state, member.tokens});
  }
  return std::unique_ptr<Step>(new Step(std::make_unique<Step::State>(*state_, parts, compute)));
}

Backend& Runtime::backend() noexcept { return *state_->backend; }
const RuntimeOptions& Runtime::options() const noexcept { return state_->options; }
const RetrievalTraits& Runtime::traits() const noexcept { return state_->policy->traits(); }

std::size_t Runtime::index_bytes(std::size_t tokens) const noexcept {
  const IndexLayout& layout = state_->index_layout;
  if (layout.empty()) return 0;
  const std::size_t layers = state_->shape().layers - state_->options.dense_layers;
  return layers *
         (layout.fixed_bytes + divide_up(tokens, layout.chunk_tokens) * layout.chunk_bytes);
}

std::size_t Runtime::block_pool_bytes() const { return state_->block_pool_bytes(); }

// Sequence: every call holds the state's mutex, so that spilling for another sequence, which only
// tries it, never sees a state half-way. Ends of steps take it themselves.
namespace {

std::unique_lock<std::mutex> guard(SequenceState& state) { return std::unique_lock(state.mutex); }

}  // namespace

Sequence::Sequence(std::unique_ptr<SequenceState> state) : state_(std::move(state)) {}
Sequence::~Sequence() = default;

Status Sequence::begin_prefill(std::size_t tokens) {
  const auto lock = guard(*state_);
  return state_->prompt.begin(tokens);
}

Status Sequence::begin_prompt(std::size_t tokens) {
  const auto lock = guard(*state_);
  return state_->begin_prompt(tokens);
}

bool Sequence::index_ready() const {
  const auto lock = guard(*state_);
  return state_->index_ready();
}

Status Sequence::await_indexes() {
  const auto lock = guard(*state_);
  return state_->await_indexes();
}

Result<Ticket> Sequence::append(LayerId layer, const PromptPiece& piece, Queue& compute) {
  const auto lock = guard(*state_);
  return state_->prompt.append(layer, piece, compute);
}

Status Sequence::finish(LayerId layer, Queue& compute) {
  const auto lock = guard(*state_);
  return state_->prompt.finish(layer, compute);
}

Status Sequence::end_prefill() {
  const auto lock = guard(*state_);
  return state_->prompt.end();
}

Status Sequence::begin_step() {
  const auto lock = guard(*state_);
  return state_->begin_step();
}

Status Sequence::attend(LayerId layer, const StepInput& input, float* output, Queue& compute) {
  const auto lock = guard(*state_);
  return state_->attend(layer, input, output, compute);
}

Result<KvView> Sequence::gather(LayerId layer, const StepInput& input, Queue& compute) {
  const auto lock = guard(*state_);
  return state_->gather(layer, input, compute);
}

Status Sequence::end_step() { return state_->end_step(); }
Status Sequence::abandon_step() { return state_->abandon_step(); }

Status Sequence::truncate(std::size_t length) {
  const auto lock = guard(*state_);
  return state_->truncate(length);
}

Status Sequence::pause() {
  const auto lock = guard(*state_);
  return state_->pause();
}

Status Sequence::resume() {
  const auto lock = guard(*state_);
  return state_->resume();
}

Result<std::unique_ptr<Sequence>> Sequence::fork() {
  auto lock = guard(*state_);
  TERRACE_ASSIGN(auto twin, state_->fork());
  lock.unlock();  // the twin may take device memory from this one
  std::unique_ptr<Sequence> sequence(new Sequence(std::move(twin)));
  const Status resumed = sequence->resume();
  if (resumed) return sequence;
  lock.lock();
  // It counts what was loaded for a twin that there will not be.
  state_->parts.context.counters.bytes.refill += sequence->counters().bytes.refill;
  return tl::unexpected(resumed.error());
}

Status Sequence::read_row(LayerId layer, HeadId head, std::size_t position,
                          std::span<std::byte> target) {
  const auto lock = guard(*state_);
  return state_->read_row(layer, head, position, target);
}

Status Sequence::drop_cached(double share, std::uint64_t seed) {
  const auto lock = guard(*state_);
  return state_->drop_cached(share, seed);
}

Result<ClusteringReport> Sequence::clustering() {
  const auto lock = guard(*state_);
  return state_->clustering();
}

SequencePhase Sequence::phase() const noexcept { return state_->parts.context.phase; }
std::size_t Sequence::length() const noexcept { return state_->parts.context.length; }
TokenRange Sequence::sinks() const noexcept { return state_->parts.context.sinks_at(length()); }
TokenRange Sequence::window() const noexcept {
  return {state_->parts.context.window_at(length()).begin, length()};
}
std::size_t Sequence::budget_tokens() const noexcept { return state_->parts.context.budget_tokens; }
std::size_t Sequence::selected_tokens() const noexcept {
  return state_->parts.context.split.selected;
}
std::size_t Sequence::query_window_tokens() const noexcept {
  return state_->parts.context.traits().query_window_tokens;
}
std::size_t Sequence::cache_capacity_tokens() const noexcept {
  return state_->parts.cache.capacity_tokens();
}
StepSelection Sequence::selection(LayerId layer) const noexcept { return state_->selection(layer); }
SequenceCounters Sequence::counters() const noexcept { return state_->parts.context.counters; }
void Sequence::reset_counters() noexcept { state_->reset_counters(); }

}  // namespace terrace
