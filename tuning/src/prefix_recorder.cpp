#include "terrace/tuning/prefix_recorder.hpp"

#include <utility>

#include "imported_requests.hpp"
#include "terrace/tiers/chunk_chain.hpp"

namespace terrace::tuning {

class PrefixRecorder::State {
 public:
  State(TraceHead head, TraceWriter writer) : head_(std::move(head)), writer_(std::move(writer)) {}

  Status add(std::span<const TokenId> prompt, std::optional<std::uint64_t> arrival_ms) {
    if (prompt.empty()) return fail(Errc::invalid_argument, "a prompt without tokens");
    TERRACE_ASSIGN(tiers::ChunkChain chain,
                   tiers::ChunkChain::create({.chunk_tokens = head_.block_tokens}));
    TERRACE_ASSIGN(const auto keys, chain.append(prompt));
    if (numbers_.size() + keys.size() >= trace_units_max) {
      return fail(Errc::unsupported,
                  "the prompts have more than {} different chunks, and a trace has no room for "
                  "more: finish it, and record another",
                  trace_units_max);
    }
    record_.units.clear();
    for (const tiers::ChunkKey& key : keys) {
      note(numbers_.of(tiers::to_string(key)), head_.block_tokens);
    }
    // The rest, which fills no chunk, is shared with no other prompt.
    const std::size_t rest = prompt.size() - keys.size() * head_.block_tokens;
    if (rest > 0) note(numbers_.next(), rest);
    record_.position = numbers_.size() * head_.block_tokens;
    record_.arrival_ms = arrival_ms;
    append_request(writer_, record_);
    return {};
  }

  Result<PendingFile> close() { return writer_.close(std::nullopt); }

 private:
  void note(UnitKey unit, std::size_t tokens) {
    const auto rows = static_cast<std::uint32_t>(tokens * head_.shape.kv_heads);
    record_.units.push_back({.unit = unit, .rows = rows, .size_rows = rows});
  }

  TraceHead head_;
  TraceWriter writer_;
  UnitNumbers<std::string> numbers_;
  TraceRecord record_;
};

PrefixRecorder::PrefixRecorder(std::unique_ptr<State> state) noexcept : state_(std::move(state)) {}
PrefixRecorder::PrefixRecorder(PrefixRecorder&&) noexcept = default;
PrefixRecorder& PrefixRecorder::operator=(PrefixRecorder&&) noexcept = default;
PrefixRecorder::~PrefixRecorder() = default;

Result<PrefixRecorder> PrefixRecorder::open(const std::filesystem::path& path,
                                            const PrefixRecorderOptions& options) {
  TERRACE_TRY(tiers::ChunkChain::create({.chunk_tokens = options.chunk_tokens}));
  TraceHead head = prefixes_head(options.source, options.chunk_tokens, options.model);
  TERRACE_ASSIGN(TraceWriter writer, TraceWriter::create(path, head));
  return PrefixRecorder(std::make_unique<State>(std::move(head), std::move(writer)));
}

Status PrefixRecorder::add(std::span<const TokenId> prompt,
                           std::optional<std::uint64_t> arrival_ms) {
  return state_->add(prompt, arrival_ms);
}

Result<PendingFile> PrefixRecorder::close() { return state_->close(); }

Status PrefixRecorder::finish() {
  TERRACE_ASSIGN(PendingFile whole, close());
  return whole.publish();
}

}  // namespace terrace::tuning
