// The JSON document of `terrace run`.
#pragma once

#include <optional>
#include <span>

#include "document.hpp"
#include "run/figures.hpp"

namespace terrace::apps {

Json run_document(const RunJob& job, const Machine& machine,
                  std::span<const PolicyFigures> figures);

/// Returns one element of "runs".
Json run_object(const PolicyFigures& figures);

/// Returns the object "cache", null without one.
Json cache_object(const std::optional<CacheFigures>& cache);

/// Returns the object "bytes".
Json bytes_object(const LinkBytes& bytes);

/// Returns what a run generated, without the token that ended it.
std::string spell_generated(const GeneratedTokens& generated, bool bytes);

/// Returns the list "turns".
Json turns_list(std::span<const TurnFigures> turns, bool bytes);

/// Returns generated tokens as text where they are bytes, else as ids.
std::string spell(std::span<const TokenId> tokens, bool bytes);

}  // namespace terrace::apps
