#include "kernels/questions.hpp"

namespace terrace::bench {

std::vector<Question> kernel_questions() {
  std::vector<Question> all;
  for (auto* const part :
       {memory_questions, kmeans_questions, coding_questions, pq_questions, refine_questions,
        channel_questions, sign_questions, rest_questions, cluster_questions, attention_questions,
        attention_weights_questions, tile_attention_questions, tile_weights_questions}) {
    for (Question& question : part()) all.push_back(std::move(question));
  }
  return all;
}

}  // namespace terrace::bench
