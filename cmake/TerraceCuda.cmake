# TERRACE_CUDA: whether device code is compiled. AUTO takes the toolkit that is found and the
# configure summary says which; ON insists on one; OFF does not look.
#
# Sets TERRACE_CUDA_FOUND, and TERRACE_CUDA_CODE: the toolkit that device code is compiled with.
set(TERRACE_CUDA AUTO CACHE STRING "AUTO, ON or OFF")
set_property(CACHE TERRACE_CUDA PROPERTY STRINGS AUTO ON OFF)

set(TERRACE_CUDA_FOUND OFF)
set(TERRACE_CUDA_CODE none)  # there are no CUDA sources yet
if(TERRACE_CUDA STREQUAL OFF)
  message(STATUS "CUDA: off (TERRACE_CUDA=OFF)")
  return()
elseif(TERRACE_CUDA STREQUAL ON)
  find_package(CUDAToolkit REQUIRED)
elseif(TERRACE_CUDA STREQUAL AUTO)
  find_package(CUDAToolkit QUIET)
else()
  message(FATAL_ERROR "TERRACE_CUDA is '${TERRACE_CUDA}'; use AUTO, ON or OFF")
endif()

if(CUDAToolkit_FOUND)
  set(TERRACE_CUDA_FOUND ON)
  message(STATUS "CUDA: found ${CUDAToolkit_VERSION}, no device code yet")
else()
  message(STATUS "CUDA: no toolkit found")
endif()
