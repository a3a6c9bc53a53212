// The functions that each policy's file gives to the table.
#pragma once

#include <memory>

#include "terrace/core/result.hpp"
#include "terrace/policies/retrieval.hpp"

namespace terrace::policies {

using MadeRetrievalPolicy = Result<std::unique_ptr<RetrievalPolicy>>;

MadeRetrievalPolicy make_full(const RetrievalOptions& options);
MadeRetrievalPolicy make_streaming(const RetrievalOptions& options);
MadeRetrievalPolicy make_oracle(const RetrievalOptions& options);
MadeRetrievalPolicy make_pqcache(const RetrievalOptions& options);
MadeRetrievalPolicy make_qpq(const RetrievalOptions& options);
MadeRetrievalPolicy make_clusterkv(const RetrievalOptions& options);
MadeRetrievalPolicy make_wave(const RetrievalOptions& options);
MadeRetrievalPolicy make_signs(const RetrievalOptions& options);
MadeRetrievalPolicy make_quest(const RetrievalOptions& options);
MadeRetrievalPolicy make_infllm(const RetrievalOptions& options);
MadeRetrievalPolicy make_sparq(const RetrievalOptions& options);
MadeRetrievalPolicy make_infinigen(const RetrievalOptions& options);

}  // namespace terrace::policies
