// The instructions of x86 CPUs by their own names, for kernels that Highway has no words for.
// HWY_PUSH_ATTRIBUTES and HWY_POP_ATTRIBUTES enclose the functions that may use them: g++ and clang
// say that in different ways. To be included where __x86_64__ is defined.
#pragma once

#include <hwy/base.h>

// Some functions of g++'s header start from a variable that they leave uninitialized on purpose.
#if HWY_COMPILER_GCC_ACTUAL
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif
#include <immintrin.h>
#if HWY_COMPILER_GCC_ACTUAL
#pragma GCC diagnostic pop
#endif
