// How fast the ops of a backend are: rows of `terrace bench kernels --backend cuda`.
#pragma once

#include <vector>

#include "device_ops/measured_op.hpp"
#include "harness/question.hpp"

namespace terrace::bench {

std::vector<Question> attention_op_questions(const DeviceSettings& settings);
std::vector<Question> selection_op_questions(const DeviceSettings& settings);
std::vector<Question> row_op_questions(const DeviceSettings& settings);

/// All of them.
std::vector<Question> device_op_questions(const DeviceSettings& settings);

}  // namespace terrace::bench
