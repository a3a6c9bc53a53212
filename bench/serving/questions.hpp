// The costs of serving: rows of `terrace bench serving`.
//
// A step of a batch is compared with a step of one sequence alone, a prompt in pieces with one in
// one piece, a step with a piece in it with the two apart, each in one run. Rows that one run
// answers share it.
#pragma once

#include <string>
#include <vector>

#include "harness/question.hpp"
#include "serving/runs.hpp"

namespace terrace::bench {

struct ServingPolicy {
  std::string name;
  ServingOptions options;
  bool builds_index = true;
};

struct ServingSettings {
  std::vector<ServingPolicy> policies;
  std::vector<std::size_t> sequences{1, 64};  ///< not empty
  ServingSizes sizes;                         ///< but for the sequences
  std::size_t threads = 2;                    ///< of device and host, as configured
  Json parameters = Json::object();           ///< of all rows
  bool prefix = false;                        ///< also a question behind a prompt that is kept
  bool quick = false;  ///< smaller sizes than asked for: names have those that are measured
};

std::vector<Question> serving_questions(const ServingSettings& settings);

}  // namespace terrace::bench
