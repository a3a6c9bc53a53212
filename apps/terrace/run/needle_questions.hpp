// Asking for planted facts: behind the text, or each at the end of a prompt of its own.
#pragma once

#include "run/session.hpp"

namespace terrace::apps {

/// Asks for all of the job's needles, the true answers fed, and scores the digits.
///
/// AskedAt::after   one after the other, behind what the session's sequence has. Its policy has
///                  chosen without knowing the questions
/// AskedAt::prompt  each at the end of a prompt, behind the context alone, in sequences of its own:
///                  the session's is closed. The policy sees the question before it chooses. What
///                  the prompts have in common is computed once where device memory holds two
///                  sequences, else for each question
///
/// Errors: those of the runtime and of decoding.
Result<std::vector<NeedleScore>> ask_needles(const RunJob& job, Session& session,
                                             Progress& progress);

}  // namespace terrace::apps
