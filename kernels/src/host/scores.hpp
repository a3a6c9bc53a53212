// Logits of all candidates of one KV head: the part of a selection that depends on its index.
#pragma once

#include "terrace/core/ops.hpp"

namespace terrace::kernels::host {

/// Writes the logits that the centroids of one sub-space give to a query head: [centroids].
void write_pq_table(const PqSelect& op, std::size_t query_head, std::size_t subspace,
                    float* table) noexcept;

/// Writes logits [group, stride] of the candidates of KV head `head` from codes.
void write_pq_logits(const PqSelect& op, std::size_t head, float* logits,
                     std::size_t stride) noexcept;

/// Writes logits [group, stride] of the candidates of KV head `head` from keys.
void write_exact_logits(const ExactSelect& op, std::size_t head, float* logits,
                        std::size_t stride) noexcept;

/// Writes logits [group, stride] of the candidates of KV head `head` from channels of keys.
void write_channel_logits(const ChannelSelect& op, std::size_t head, float* logits,
                          std::size_t stride) noexcept;

/// Writes logits [group, stride] of the candidates of KV head `head` from groups and signs.
void write_sign_logits(const SignSelect& op, std::size_t head, float* logits,
                       std::size_t stride) noexcept;

/// Calls visit(chunk, offset, first, count) for each run of candidates in one chunk: candidates
/// [first, first + count) are tokens [offset, offset + count) of the chunk.
template <typename Visit>
void for_each_chunk(const IndexView& index, TokenRange candidates, Visit visit) {
  for (std::size_t p = candidates.begin; p < candidates.end;) {
    const std::size_t token = p - index.first_token;
    const std::size_t offset = token % index.chunk_tokens;
    const std::size_t in_chunk = index.chunk_tokens - offset;
    const std::size_t left = candidates.end - p;
    const std::size_t count = in_chunk < left ? in_chunk : left;
    visit(index.chunks[token / index.chunk_tokens], offset, p - candidates.begin, count);
    p += count;
  }
}

}  // namespace terrace::kernels::host
