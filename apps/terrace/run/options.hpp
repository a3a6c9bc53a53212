// The options of `terrace run`, as typed.
#pragma once

#include <cstddef>
#include <string>

#include "command.hpp"

namespace terrace::apps {

struct RunOptions {
  SharedOptions shared;
  std::string model;      ///< folder; empty = the bundled model
  std::string text_file;  ///< empty = the default text, unless tokens_file is given
  std::string tokens_file;
  std::size_t context = 4096;
  std::size_t decode = 128;
  std::size_t prefill_chunk = 0;  ///< tokens of a prompt at a time; 0 = whole
  std::string turns_file;         ///< empty = the context is the only prompt
  bool generate = false;
  /// Compared if the user names no policy.
  std::string default_policies = "full,streaming,oracle,pqcache,signs";
  std::size_t needles = 0;
  std::string needles_file;
  std::string needles_asked = "after";   ///< or "prompt"
  std::string needles_form = "trained";  ///< see parse_needle_form()
  std::string timeline_file;             ///< empty = no timeline is written
  std::string report_file;               ///< empty = no page is written
  std::string trace_file;                ///< empty = no trace is written
  std::string save;     ///< name that the context is kept under; empty = it is not kept
  std::string restore;  ///< name that the context is looked for under; empty = it is not
};

}  // namespace terrace::apps
