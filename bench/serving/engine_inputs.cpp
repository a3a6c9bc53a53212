// The tensors that the made-up model gives a step.
#include <algorithm>
#include <thread>

#include "serving/engine.hpp"

namespace terrace::bench {
namespace {

/// A thread is worth its start for so many tokens of a layer.
constexpr std::size_t tokens_per_thread = 1024;

}  // namespace

Status ServingEngine::lay_out(std::span<const ServedMember> batch) {
  TERRACE_TRY(lay_out_rows(batch));
  return lay_out_queries();
}

Status ServingEngine::lay_out_rows(std::span<const ServedMember> batch) {
  batch_.clear();
  batch_tokens_ = 0;
  for (const auto& [served, tokens] : batch) {
    const std::size_t begin = served->sequence->length();
    batch_.push_back({served, {begin, begin + tokens}, batch_tokens_});
    batch_tokens_ += tokens;
  }
  const std::size_t bytes = shape().layers * batch_tokens_ * shape().token_bytes();
  TERRACE_TRY(rows_.reserve(runtime_->backend(), bytes));
  fill_rows();
  const CopyExtent upload[] = {rows_.to_device(bytes)};
  return copy_now(upload);
}

/// Each thread makes up an equal part of every member's tokens.
void ServingEngine::fill_rows() {
  const std::size_t wanted = shape().layers * batch_tokens_ / tokens_per_thread;
  const std::size_t parts =
      std::clamp<std::size_t>(wanted, 1, std::max(std::thread::hardware_concurrency(), 1U));
  const auto fill_part = [&](std::size_t part) {
    for (std::size_t layer = 0; layer < shape().layers; ++layer) {
      for (const PlacedMember& member : batch_) {
        const std::size_t begin = member.tokens.size() * part / parts;
        const std::size_t end = member.tokens.size() * (part + 1) / parts;
        const std::size_t at = place_in_tensors(layer, member) + begin;
        member.served->traffic.fill_rows(layer,
                                         {member.tokens.begin + begin, member.tokens.begin + end},
                                         rows_.host.data() + at * shape().token_bytes());
      }
    }
  };
  std::vector<std::thread> threads;
  for (std::size_t part = 1; part < parts; ++part) threads.emplace_back(fill_part, part);
  fill_part(0);
  for (std::thread& thread : threads) thread.join();
}

Status ServingEngine::lay_out_queries() {
  const std::size_t bytes = shape().layers * batch_tokens_ * floats_per_token() * sizeof(float);
  TERRACE_TRY(queries_.reserve(runtime_->backend(), bytes));
  TERRACE_TRY(outputs_.reserve(runtime_->backend(), bytes));
  for (std::size_t layer = 0; layer < shape().layers; ++layer) {
    for (const PlacedMember& member : batch_) {
      float* const target =
          queries_.host.as<float>() + place_in_tensors(layer, member) * floats_per_token();
      member.served->traffic.fill_queries(layer, member.tokens,
                                          {target, member.tokens.size() * floats_per_token()});
    }
  }
  const CopyExtent upload[] = {queries_.to_device(bytes)};
  return copy_now(upload);
}

PromptHints ServingEngine::hints(std::size_t layer, const PlacedMember& member) const {
  const ServedSequence& served = *member.served;
  if (member.tokens.begin >= served.prompt.tokens) return {};
  const std::size_t tokens = member.tokens.size();
  const std::size_t count = std::min(served.sequence->query_window_tokens(), tokens);
  const std::size_t at = place_in_tensors(layer, member) + tokens - count;
  return {.query_window = {queries_.host.as<float>() + at * floats_per_token(),
                           count * floats_per_token()}};
}

}  // namespace terrace::bench
