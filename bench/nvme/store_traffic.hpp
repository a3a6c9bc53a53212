// How fast the store moves pages, beside the file alone.
#pragma once

#include <string>
#include <vector>

#include "harness/question.hpp"

namespace terrace::bench {

/// Asks for the rates of puts and gets of pages of 64 KiB, and of gets of as large parts of pages
/// of 1 MiB, in random order, eight batches of eight; the disk has 32 of these at a time. The peer
/// is the same traffic over a file without a directory, checksums or journal, in turns.
[[nodiscard]] std::vector<Question> store_questions(const std::string& folder, bool quick);

}  // namespace terrace::bench
