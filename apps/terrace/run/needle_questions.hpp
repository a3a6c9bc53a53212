// Asking for planted facts: after the text, or each at the end of a prompt of its own.
#pragma once

#include "run/session.hpp"

namespace terrace::apps {

/// Asks for all of the job's needles, the true answers fed, and scores the digits.
///
/// AskedAt::after   one after the other, at the end of the session's sequence. The policy has
///                  chosen without knowing the questions
/// AskedAt::prompt  each at the end of a prompt, directly after the context, in a sequence of its
///                  own; the session's sequence is closed. The policy sees the question before it
///                  chooses. The common part of the prompts is computed once if device memory holds
///                  two sequences, otherwise for each question
///
/// Errors: those of the runtime and of decoding.
Result<std::vector<NeedleScore>> ask_needles(const RunJob& job, Session& session,
                                             Progress& progress);

}  // namespace terrace::apps
