// An index that codes each key by product quantisation, as a second stage has to know it.
#pragma once

#include "terrace/core/retrieval.hpp"

namespace terrace::policies {

/// Codebooks lie at the front of the index's fixed part, codes at the front of each chunk.
class CodedKeys {
 public:
  CodedKeys() = default;
  CodedKeys(const CodedKeys&) = delete;
  CodedKeys& operator=(const CodedKeys&) = delete;

  [[nodiscard]] virtual PqShape pq() const noexcept = 0;
  /// Writes keys of a KV head in the space of the index: [tokens, head_dim]. The head's parts of a
  /// build are done. Errors: those of reading rows.
  [[nodiscard]] virtual Status read_keys(const BuildRequest& request, std::size_t head,
                                         TokenRange tokens, float* keys) const = 0;
  /// Returns the queries in that space, after select() has run: [query_heads, head_dim].
  [[nodiscard]] virtual const float* queries(const SelectRequest& request) const noexcept = 0;

 protected:
  ~CodedKeys() = default;
};

/// A policy whose index has coded keys.
class CodingPolicy : public RetrievalPolicy, public CodedKeys {};

}  // namespace terrace::policies
