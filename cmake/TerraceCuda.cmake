# TERRACE_CUDA: whether device code is compiled. AUTO takes the toolkit that is found and the
# configure summary says which; ON insists on one; OFF does not look for one. ON_HOST needs no
# toolkit and tests device code on the CPU (docs/decisions/0016), as ON and AUTO do where tests are
# built.
#
# Sets TERRACE_CUDA_FOUND and TERRACE_CUDA_CODE, the toolkit that device code is compiled with, and
# TERRACE_CUDA_ON_HOST; makes terrace_cuda, the target that code for CUDA is compiled and linked
# with.
set(TERRACE_CUDA AUTO CACHE STRING "AUTO, ON, OFF or ON_HOST")
set_property(CACHE TERRACE_CUDA PROPERTY STRINGS AUTO ON OFF ON_HOST)

set(TERRACE_CUDA_FOUND OFF)
set(TERRACE_CUDA_ON_HOST OFF)
set(TERRACE_CUDA_CODE none)
set(cuda_version_min 12.8)
if(TERRACE_CUDA STREQUAL OFF)
  message(STATUS "CUDA: off (TERRACE_CUDA=OFF)")
  return()
elseif(TERRACE_CUDA STREQUAL ON_HOST)
  set(TERRACE_CUDA_ON_HOST ON)
  message(STATUS "CUDA: device code is tested on the CPU, and in no library")
  return()
elseif(TERRACE_CUDA STREQUAL ON)
  find_package(CUDAToolkit ${cuda_version_min} REQUIRED)
elseif(TERRACE_CUDA STREQUAL AUTO)
  find_package(CUDAToolkit ${cuda_version_min} QUIET)
else()
  message(FATAL_ERROR "TERRACE_CUDA is '${TERRACE_CUDA}'; use AUTO, ON, OFF or ON_HOST")
endif()

if(NOT CUDAToolkit_FOUND)
  message(STATUS "CUDA: no toolkit of ${cuda_version_min} or newer found")
  return()
endif()
if(NOT CUDAToolkit_NVCC_EXECUTABLE)
  if(TERRACE_CUDA STREQUAL ON)
    message(FATAL_ERROR "CUDA: the toolkit in ${CUDAToolkit_BIN_DIR} has no nvcc")
  endif()
  message(STATUS "CUDA: found ${CUDAToolkit_VERSION} without nvcc, so none is used")
  return()
endif()

# Code for these devices, and PTX of the last for those to come.
set(CMAKE_CUDA_ARCHITECTURES 80-real 90 CACHE STRING "Devices that code is compiled for")
if(NOT DEFINED CMAKE_CUDA_COMPILER)
  set(CMAKE_CUDA_COMPILER ${CUDAToolkit_NVCC_EXECUTABLE})
endif()
if(NOT DEFINED CMAKE_CUDA_HOST_COMPILER)
  set(CMAKE_CUDA_HOST_COMPILER ${CMAKE_CXX_COMPILER})
endif()
if(TERRACE_CCACHE AND PROJECT_IS_TOP_LEVEL AND NOT DEFINED CMAKE_CUDA_COMPILER_LAUNCHER)
  set(CMAKE_CUDA_COMPILER_LAUNCHER ${TERRACE_CCACHE})
endif()
enable_language(CUDA)

set(TERRACE_CUDA_FOUND ON)
set(TERRACE_CUDA_ON_HOST ON)
set_property(GLOBAL APPEND PROPERTY TERRACE_DEPENDENCIES "find_dependency(CUDAToolkit)")
list(JOIN CMAKE_CUDA_ARCHITECTURES " " devices)
set(TERRACE_CUDA_CODE "${CUDAToolkit_VERSION} for ${devices}")
message(STATUS "CUDA: ${TERRACE_CUDA_CODE}")

# The runtime is linked statically and loads the driver by itself: programs start on machines
# without a driver.
add_library(terrace_cuda INTERFACE)
target_link_libraries(terrace_cuda INTERFACE CUDA::cudart_static)
target_compile_definitions(terrace_cuda INTERFACE TERRACE_HAS_CUDA=1)
target_compile_options(terrace_cuda INTERFACE
  # CMake 3.25 knows no C++20 of this nvcc. Functions that are constexpr run on the device, too.
  $<$<COMPILE_LANGUAGE:CUDA>:-std=c++20 --expt-relaxed-constexpr>
  # fmt does without constexpr under nvcc, but not without consteval.
  $<$<COMPILE_LANGUAGE:CUDA>:-DFMT_USE_CONSTEXPR=1>)

# Compiles all that is CUDA in the layers, and nothing else.
add_custom_target(terrace_cuda_code)
