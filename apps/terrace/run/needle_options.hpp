// The options of commands that plant facts and ask for them.
#pragma once

#include <CLI/App.hpp>
#include <string_view>

#include "run/options.hpp"

namespace terrace::apps {

/// Adds --needles, which help describes by `meaning`, --needles-file, --needles-asked and
/// --needles-form.
void add_needle_options(CLI::App& command, const char* meaning, RunOptions& options);

/// Returns the text of --help about them, below the list of options.
std::string_view needle_help() noexcept;

}  // namespace terrace::apps
