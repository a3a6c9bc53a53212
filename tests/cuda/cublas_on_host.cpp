// cuBLAS of the stand-in, in place of the one that is loaded where there is one: products on the
// stream, column by column as the library has them.
#include "cuda/cublas.hpp"
#include "device_state.hpp"
#include "stream.hpp"

namespace {

constexpr int success = 0;
constexpr int not_initialized = 1;
constexpr int invalid_value = 7;

struct Handle {
  cudaStream_t stream = nullptr;
  void* workspace = nullptr;
};

/// A matrix stored column by column, or its transpose.
struct Operand {
  const float* data;
  std::size_t leading;
  bool transposed;

  [[nodiscard]] float at(std::size_t row, std::size_t column) const {
    return transposed ? data[row * leading + column] : data[column * leading + row];
  }
};

int create(void** handle) {
  *handle = new Handle;
  return success;
}

int destroy(void* handle) {
  delete static_cast<Handle*>(handle);
  return success;
}

int set_stream(void* handle, void* stream) {
  *static_cast<Handle*>(handle) = {static_cast<cudaStream_t>(stream), nullptr};
  return success;
}

int set_workspace(void* handle, void* workspace, std::size_t bytes) {
  if (workspace == nullptr || bytes == 0) return invalid_value;
  static_cast<Handle*>(handle)->workspace = workspace;
  return success;
}

int sgemm(void* handle, int transpose_a, int transpose_b, int m, int n, int k, const float* alpha,
          const float* a, int lda, const float* b, int ldb, const float* beta, float* c, int ldc) {
  const auto& [stream, workspace] = *static_cast<Handle*>(handle);
  if (stream == nullptr || workspace == nullptr) return not_initialized;
  if (lda < (transpose_a != 0 ? k : m) || ldb < (transpose_b != 0 ? n : k) || ldc < m) {
    return invalid_value;
  }
  const Operand left{a, static_cast<std::size_t>(lda), transpose_a != 0};
  const Operand right{b, static_cast<std::size_t>(ldb), transpose_b != 0};
  cuda_on_host::stream_of(stream).push([=, factor = *alpha, kept = *beta] {
    if (cuda_on_host::device_state().is_broken()) return;
    for (std::size_t column = 0; column < static_cast<std::size_t>(n); ++column) {
      for (std::size_t row = 0; row < static_cast<std::size_t>(m); ++row) {
        float sum = 0;
        for (std::size_t i = 0; i < static_cast<std::size_t>(k); ++i) {
          sum += left.at(row, i) * right.at(i, column);
        }
        float& target = c[column * static_cast<std::size_t>(ldc) + row];
        target = factor * sum + (kept == 0 ? 0.0F : kept * target);  // 0 does not read it
      }
    }
  });
  return success;
}

}  // namespace

std::optional<terrace::engine::cuda::CublasFunctions> terrace::engine::cuda::load_cublas() {
  return CublasFunctions{create, destroy, set_stream, set_workspace, sgemm};
}
