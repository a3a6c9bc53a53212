// Products of matrices by cuBLAS, where the machine has it. The library is loaded at run time:
// neither the build nor the start of a program needs it.
//
// Tests    tests/cuda/engine_kernels_test.cpp
#pragma once

#include <memory>
#include <optional>

#include "cuda/model_kernels.hpp"

namespace terrace::engine::cuda {

/// The functions used of the library: its C interface, in which a handle is opaque and 0 means
/// success. Source: cublas_api.h, the same in versions 12 and 13.
struct CublasFunctions {
  int (*create)(void** handle);
  int (*destroy)(void* handle);
  int (*set_stream)(void* handle, void* stream);
  int (*set_workspace)(void* handle, void* workspace, std::size_t bytes);
  /// Multiplies matrices that are stored column by column.
  int (*sgemm)(void* handle, int transpose_a, int transpose_b, int m, int n, int k,
               const float* alpha, const float* a, int lda, const float* b, int ldb,
               const float* beta, float* c, int ldc);
};

/// Finds the library where the system looks for libraries. Returns nothing if the library or one of
/// these functions is missing. The library stays loaded.
[[nodiscard]] std::optional<CublasFunctions> load_cublas();

/// The library on one stream.
///
/// Threads  those of its queue: every call is in a task of Queue::launch()
class Cublas {
 public:
  /// Bytes of device memory that products are computed with, as the library's guide advises for the
  /// largest devices. If they are not given, the library takes memory itself in a later call.
  static constexpr std::size_t workspace_bytes = std::size_t{32} << 20;

  /// Errors   unsupported: the library refuses the device
  static Result<std::unique_ptr<Cublas>> create(const CublasFunctions& functions,
                                                std::byte* workspace, const Launch& launch);
  ~Cublas();
  Cublas(const Cublas&) = delete;
  Cublas& operator=(const Cublas&) = delete;

  /// As multiply of model_kernels.hpp, on the stream it was made with.
  [[nodiscard]] Status multiply(const MatrixProduct& product) const;

 private:
  explicit Cublas(const CublasFunctions& functions) : functions_(functions) {}

  CublasFunctions functions_;
  void* handle_ = nullptr;
};

}  // namespace terrace::engine::cuda
