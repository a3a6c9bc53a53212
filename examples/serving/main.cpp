// An engine with continuous batching: sequences arrive, give their prompts piece by piece beside
// others that decode, all in one step, and leave. Its model is made up; its KV memory is Terrace's.
//
// A real engine computes queries, keys and values where this one calls Model, and uses outputs
// where this one counts tokens.
#include <algorithm>
#include <cstdio>
#include <deque>
#include <memory>
#include <string>
#include <terrace/terrace.hpp>
#include <vector>

using namespace terrace;

namespace {

constexpr KvShape shape{
    .layers = 2, .query_heads = 8, .kv_heads = 2, .head_dim = 64, .dtype = Dtype::f16};
constexpr std::size_t query_floats = shape.query_heads * shape.head_dim;
constexpr std::size_t piece_tokens = 256;  // of a prompt, that go into one step
constexpr std::size_t batch_max = 8;
constexpr std::size_t device_memory = std::size_t{24} << 20U;

/// The wish of a client.
struct Request {
  int number = 0;
  std::size_t prompt_tokens = 0;
  std::size_t output_tokens = 0;
};

/// Stands for projections and RoPE: numbers that depend on request, layer and position.
struct Model {
  static float number(std::size_t seed) {
    return static_cast<float>(seed * 2654435761U % 2000) / 1000 - 1;
  }

  static void query(const Request& request, std::size_t layer, std::size_t position, float* out) {
    const std::size_t seed = static_cast<std::size_t>(request.number) + 31 * layer + 7 * position;
    for (std::size_t i = 0; i < query_floats; ++i) out[i] = number(seed + i);
  }

  /// Rows [tokens, kv_heads, 2, head_dim]; Terrace takes any strides.
  static void rows(const Request& request, std::size_t layer, TokenRange tokens, std::byte* out) {
    const std::size_t elements = shape.kv_heads * 2 * shape.head_dim;
    for (std::size_t position = tokens.begin; position < tokens.end; ++position) {
      for (std::size_t i = 0; i < elements; ++i) {
        const std::size_t seed = static_cast<std::size_t>(request.number) + 131 * layer + i;
        store_f32(out, shape.dtype, (position - tokens.begin) * elements + i,
                  number(seed * (position + 1)));
      }
    }
  }

  static KvTensors tensors(const std::byte* rows) {
    return {.keys = rows,
            .values = rows + shape.row_bytes() / 2,
            .token_stride = shape.token_bytes(),
            .head_stride = shape.row_bytes()};
  }
};

/// A request that is being served. Its destruction frees its KV memory.
struct Running {
  Request request;
  std::unique_ptr<Sequence> sequence;
  std::size_t decoded = 0;
  [[nodiscard]] bool done() const { return decoded == request.output_tokens; }
  /// Tokens of the next step: a piece of the prompt, or the token that was decoded last.
  [[nodiscard]] std::size_t tokens() const {
    const std::size_t length = sequence->length();
    if (length >= request.prompt_tokens) return 1;
    return std::min(piece_tokens, request.prompt_tokens - length);
  }
};

class Engine {
 public:
  static Result<std::unique_ptr<Engine>> create() {
    TERRACE_ASSIGN(auto chosen,
                   offload::make_backend("host", {.host = {.device_memory_limit = device_memory}}));
    RuntimeOptions options;
    options.shape = shape;
    options.policy = "pqcache";
    options.budget = {.kind = TokenBudget::Kind::tokens, .value = 256};
    TERRACE_ASSIGN(auto runtime, Runtime::open(options, std::move(chosen.backend)));
    // All sequences work on one queue: that of the engine's own kernels.
    TERRACE_ASSIGN(auto compute, runtime->backend().make_queue({.name = "compute"}));
    return std::unique_ptr<Engine>(new Engine(std::move(runtime), std::move(compute)));
  }

  void submit(const Request& request) { waiting_.push_back(request); }
  [[nodiscard]] bool idle() const { return waiting_.empty() && running_.empty(); }
  [[nodiscard]] std::size_t tokens_decoded() const { return tokens_decoded_; }

  /// Admits the requests that fit, takes a step with all, and removes the finished ones.
  Status iterate() {
    while (!waiting_.empty() && running_.size() < batch_max && has_room_for(waiting_.front())) {
      const Request request = waiting_.front();
      waiting_.pop_front();
      if (const Status admitted = admit(request); !admitted) drop(request, admitted.error());
    }
    TERRACE_TRY(step());
    std::erase_if(running_, [](const Running& one) { return one.done(); });  // departures
    return {};
  }

  /// A client cancels its request: the memory of its sequence is given back at once, without
  /// waiting.
  void cancel(int number) {
    std::erase_if(running_, [=](const Running& one) { return one.request.number == number; });
  }

  /// For the demonstration: a sequence that cannot take part in the next step.
  Status break_one(int number) {
    for (Running& one : running_) {
      if (one.request.number == number) return one.sequence->pause();
    }
    return {};
  }

 private:
  Engine(std::unique_ptr<Runtime> runtime, std::unique_ptr<Queue> compute)
      : runtime_(std::move(runtime)), compute_(std::move(compute)) {}

  static void drop(const Request& request, const Error& error) {
    std::printf("request %d is dropped: %s\n", request.number,
                std::string(error.message()).c_str());
  }

  /// Returns the most memory that a request's sequence takes, in steps with at most one piece of
  /// its prompt.
  [[nodiscard]] MemoryNeed need_of(const Request& request) const {
    return runtime_
        ->memory_need({.tokens = request.prompt_tokens + request.output_tokens,
                       .step_tokens = piece_tokens,
                       .prompt_tokens = request.prompt_tokens,
                       .cache_sharers = batch_max})
        .value_or(MemoryNeed{.device_held = device_memory + 1});  // longer than any may be
  }

  /// Whether a request fits, so that running requests never lack memory because of a new one. A
  /// request that would be alone is admitted in any case, and gets an error if it is too large.
  [[nodiscard]] bool has_room_for(const Request& request) const {
    const MemoryNeed its = need_of(request);
    std::size_t own = its.device_own();
    std::size_t shared = its.device_shared;
    for (const Running& one : running_) {
      const MemoryNeed need = need_of(one.request);
      own += need.device_own();
      shared = std::max(shared, need.device_shared);
    }
    return running_.empty() || own + shared <= device_memory;
  }

  Status admit(const Request& request) {
    TERRACE_ASSIGN(auto sequence, runtime_->open_sequence());
    TERRACE_TRY(sequence->begin_prompt(request.prompt_tokens));
    running_.push_back({request, std::move(sequence)});
    return {};
  }

  /// Runs a step of the whole batch.
  Status step() {
    if (running_.empty()) return {};
    std::vector<StepMember> members;
    members.reserve(running_.size());
    for (const Running& one : running_) members.push_back({one.sequence.get(), one.tokens()});
    const std::size_t tokens = compute_inputs(members);
    TERRACE_ASSIGN(const auto step, runtime_->begin_step(members, *compute_));
    for (std::size_t layer = 0; layer < shape.layers; ++layer) {
      const std::size_t token = layer * tokens;
      TERRACE_TRY(step->attend(LayerId{static_cast<std::uint32_t>(layer)},
                               {.query = queries_.data() + token * query_floats,
                                .kv = Model::tensors(rows_.data() + token * shape.token_bytes()),
                                .output = outputs_.data() + token * query_floats}));
    }
    TERRACE_TRY(step->end());
    close_failed(*step);
    return {};
  }

  /// Closes failed sequences. The outputs of the others are not affected.
  void close_failed(const Step& step) {
    std::vector<Running> going_on;
    for (std::size_t i = 0; i < running_.size(); ++i) {
      if (step.status(i)) {
        // The last token of a prompt foretells the first one of the output.
        const bool in_prompt = running_[i].sequence->length() < running_[i].request.prompt_tokens;
        if (!in_prompt) {
          ++running_[i].decoded;
          ++tokens_decoded_;
        }
        going_on.push_back(std::move(running_[i]));
      } else {
        drop(running_[i].request, step.status(i).error());
      }
    }
    running_ = std::move(going_on);
  }

  /// Makes the tensors of a step: for each layer all tokens, sequence after sequence. Returns the
  /// number of tokens.
  std::size_t compute_inputs(const std::vector<StepMember>& members) {
    std::size_t tokens = 0;
    for (const StepMember& member : members) tokens += member.tokens;
    queries_.resize(shape.layers * tokens * query_floats);
    outputs_.resize(queries_.size());
    rows_.resize(shape.layers * tokens * shape.token_bytes());
    std::size_t at = 0;
    for (std::size_t layer = 0; layer < shape.layers; ++layer) {
      for (std::size_t i = 0; i < members.size(); ++i) {
        const std::size_t first = members[i].sequence->length();
        for (std::size_t position = first; position < first + members[i].tokens; ++position, ++at) {
          const Request& request = running_[i].request;
          Model::query(request, layer, position, queries_.data() + at * query_floats);
          Model::rows(request, layer, {position, position + 1},
                      rows_.data() + at * shape.token_bytes());
        }
      }
    }
    return tokens;
  }

  // Members go in reverse order: sequences before the queue and the tensors that they work with.
  std::vector<float> queries_;
  std::vector<float> outputs_;
  std::vector<std::byte> rows_;
  std::unique_ptr<Runtime> runtime_;
  std::unique_ptr<Queue> compute_;
  std::deque<Request> waiting_;
  std::vector<Running> running_;
  std::size_t tokens_decoded_ = 0;
};

Status serve(Engine& engine) {
  for (int i = 0; i < 12; ++i) {
    const auto size = static_cast<std::size_t>(i);
    engine.submit({.number = i, .prompt_tokens = 600 + 100 * size, .output_tokens = 20 + 5 * size});
  }
  for (int iteration = 0; !engine.idle(); ++iteration) {
    if (iteration == 5) TERRACE_TRY(engine.break_one(3));
    if (iteration == 10) engine.cancel(5);
    TERRACE_TRY(engine.iterate());
  }
  return {};
}

}  // namespace

int main() {
  auto engine = Engine::create();
  const auto begin = std::chrono::steady_clock::now();
  const Status served = engine ? serve(**engine) : tl::unexpected(engine.error());
  if (!served) {
    std::fprintf(stderr, "serving: %s\n", std::string(served.error().message()).c_str());
    return 1;
  }
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
  const std::size_t tokens = (*engine)->tokens_decoded();
  std::printf("%zu tokens decoded, %.0f a second\n", tokens,
              static_cast<double>(tokens) / seconds.count());
}
