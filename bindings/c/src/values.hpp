// Conversions of plain numbers of the C interface to their types.
#pragma once

#include <cstdint>
#include <string_view>

#include "terrace.h"
#include "terrace/core/dtype.hpp"
#include "terrace/core/result.hpp"

namespace terrace::bindings {

static_assert(static_cast<int>(Dtype::f32) == TERRACE_DTYPE_F32);
static_assert(static_cast<int>(Dtype::f16) == TERRACE_DTYPE_F16);
static_assert(static_cast<int>(Dtype::bf16) == TERRACE_DTYPE_BF16);

/// Errors: invalid_argument: no terrace_dtype.
[[nodiscard]] inline Result<Dtype> dtype_of(std::int32_t value, std::string_view name) {
  if (value >= TERRACE_DTYPE_F32 && value <= TERRACE_DTYPE_BF16) return static_cast<Dtype>(value);
  return fail(Errc::invalid_argument, "{} is {}; use a terrace_dtype", name, value);
}

/// Room for later fields says nothing yet. Errors: invalid_argument: it does.
[[nodiscard]] inline Status check_reserved(std::int32_t value, std::string_view name) {
  if (value == 0) return {};
  return fail(Errc::invalid_argument, "{}.reserved is {}; leave it 0", name, value);
}

}  // namespace terrace::bindings
