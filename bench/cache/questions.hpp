// How fast cache policies are and what they hit: rows of `terrace bench cache`.
#pragma once

#include <string>
#include <vector>

#include "harness/question.hpp"
#include "terrace/core/result.hpp"

namespace terrace::bench {

/// Touches per second of every policy on dense keys, and the bytes of its state.
std::vector<Question> touch_questions();

/// Units per second of every policy on a trace, with what it hits; `trace`: a file, or empty for
/// selections that are made up and drift. Errors: those of the trace.
Result<std::vector<Question>> replay_questions(const std::string& trace, bool quick);

}  // namespace terrace::bench
