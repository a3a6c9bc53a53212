// How fast the host kernels are, on one thread but where a name says otherwise: rows of
// `terrace bench kernels`.
#pragma once

#include <vector>

#include "harness/question.hpp"

namespace terrace::bench {

std::vector<Question> memory_questions();
std::vector<Question> kmeans_questions();
std::vector<Question> coding_questions();
std::vector<Question> pq_questions();
std::vector<Question> refine_questions();
std::vector<Question> rest_questions();
std::vector<Question> channel_questions();
std::vector<Question> sign_questions();
std::vector<Question> cluster_questions();
std::vector<Question> attention_questions();
std::vector<Question> attention_weights_questions();
std::vector<Question> tile_attention_questions();
std::vector<Question> tile_weights_questions();

/// All of them.
std::vector<Question> kernel_questions();

}  // namespace terrace::bench
