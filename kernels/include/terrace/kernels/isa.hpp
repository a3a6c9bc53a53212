// Which instruction set the host kernels use. Chosen from the CPU at the first call of a kernel,
// for the whole process; another one can be forced, to compare and to find faults. Whether products
// of bf16 are faster than those of f32 the CPU does not say: that is measured, once.
//
//   TERRACE_TRY(use_isa("avx2"));     // before the first kernel runs
//   log(isa_in_use());                // "avx2"
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "terrace/core/result.hpp"

namespace terrace::kernels::host {

/// The instructions that a level has beside those of Highway's targets: tables of 64 bytes in a
/// register (AVX-512 VBMI), sums of bf16 products, those sums in tiles (AMX). Each extra has those
/// before it, too.
enum class IsaExtras : std::uint8_t { none, vbmi, bf16, amx };

struct IsaLevel {
  std::string_view name;
  std::int64_t target = 0;  ///< Highway's bits; one of them suffices
  IsaExtras extras = IsaExtras::none;
};

/// Every level that kernels are compiled for on some machine, the plainest first.
[[nodiscard]] std::span<const IsaLevel> isa_levels() noexcept;

/// Makes kernels use `name` and nothing above it; "auto" is the best that the CPU has.
///
/// Threads  before kernels run, or while no kernel runs
/// Errors   invalid_argument: no such level; unsupported: this CPU or build lacks it, naming the
///          levels that are available
[[nodiscard]] Status use_isa(std::string_view name);

/// Returns the level that kernels use.
[[nodiscard]] std::string_view isa_in_use() noexcept;

}  // namespace terrace::kernels::host
