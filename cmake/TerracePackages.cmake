# The libraries Terrace is built with. terraceConfig.cmake looks for the same ones: the macros here
# remember what they found.
macro(terrace_find_package name)
  find_package(${name} REQUIRED)
  set_property(GLOBAL APPEND PROPERTY TERRACE_DEPENDENCIES "find_dependency(${name})")
endmacro()

# For libraries that come with a pkg-config file only; the target is PkgConfig::<name>.
macro(terrace_find_module name module)
  pkg_check_modules(${name} REQUIRED IMPORTED_TARGET ${module})
  set_property(GLOBAL APPEND PROPERTY TERRACE_DEPENDENCIES
    "pkg_check_modules(${name} REQUIRED IMPORTED_TARGET ${module})")
endmacro()

terrace_find_package(Threads)
terrace_find_package(fmt)
terrace_find_package(tl-expected)
terrace_find_package(TBB)
terrace_find_package(hwy)
terrace_find_package(Boost)
terrace_find_package(nlohmann_json)
terrace_find_package(yaml-cpp)
terrace_find_package(PkgConfig)
terrace_find_module(hwloc hwloc)
terrace_find_module(liburing liburing)
terrace_find_module(xxhash libxxhash)
terrace_find_module(crypto libcrypto)
terrace_find_module(hiredis hiredis)

# Checksums are compiled into their callers, with the same sums: Debian's library, whose loops are
# not unrolled, reads bytes that are in no cache at half the speed, as those of a disk are. Asking
# for them 1 KiB ahead gains another tenth. Without optimization the library is the faster one.
set(optimized $<CONFIG:Release,RelWithDebInfo,MinSizeRel>)
target_compile_definitions(PkgConfig::xxhash INTERFACE
  $<${optimized}:XXH_INLINE_ALL> $<${optimized}:XXH_PREFETCH_DIST=1024>)

# Kernels are compiled once per instruction set; a CPU older than AVX2 gets the plain ones. Above
# AVX-512 there are levels of our own. Highway leaves its own such level out of dispatch, yet with
# -march=native takes it for the baseline on CPUs that have AVX-VNNI, and then compiles nothing.
target_compile_definitions(hwy::hwy INTERFACE
  "HWY_DISABLED_TARGETS=(HWY_SSSE3|HWY_SSE4|HWY_AVX3_DL)")

# Headers that only the policies' sources see: programs that link Terrace do not need them.
find_package(Eigen3 REQUIRED NO_MODULE)

# The reference decoder's alone, by a path and without a target: the installed engine names it.
find_package(OpenBLAS REQUIRED)
# Linked statically where there is such a library: main() of the program then has a say in how many
# threads the library starts. A shared one starts a thread for each CPU before anything else runs,
# which a container's limit may turn into the end of the program.
find_library(TERRACE_OPENBLAS NAMES libopenblas.a)
mark_as_advanced(TERRACE_OPENBLAS)
if(NOT TERRACE_OPENBLAS)
  message(WARNING "No libopenblas.a: the shared library starts a thread for each CPU")
  set(TERRACE_OPENBLAS ${OpenBLAS_LIBRARIES})
endif()
