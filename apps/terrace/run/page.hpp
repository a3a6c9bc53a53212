// The page of `terrace run`, for people.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "machine.hpp"
#include "run/figures.hpp"
#include "terrace/tuning/page.hpp"

namespace terrace::apps {

/// Returns a page with what each policy costs and keeps, drawn and in figures, and the config of
/// the one that errs least.
std::string run_page(const RunJob& job, const Machine& machine,
                     std::span<const PolicyFigures> figures, const tuning::PageOrigin& origin);

/// Whether a policy may be recommended: full attention and the oracle read every key.
bool is_choice(std::string_view policy);

/// Returns the config keys that name a policy, of retrieval or of retention, and its budget.
std::string policy_config(std::string_view policy, std::string_view budget);

}  // namespace terrace::apps
