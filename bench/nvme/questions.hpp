// How fast a disk moves pages: rows of `terrace bench nvme`.
#pragma once

#include <string>
#include <vector>

#include "harness/question.hpp"

namespace terrace::bench {

struct NvmeOptions {
  std::string folder;  ///< on the disk that is measured
  bool quick = false;  ///< small files and short times
};

/// Returns the rows of reading, those of writing, and those of the store. The files are made when
/// the first question is asked, and kept by the questions: one for Terrace, which fio reads, too,
/// and one that fio writes. fio has a turn after each of Terrace's.
[[nodiscard]] std::vector<Question> nvme_questions(const NvmeOptions& options);

}  // namespace terrace::bench
