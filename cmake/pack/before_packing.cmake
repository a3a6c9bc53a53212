# Read by cpack before it makes packages of one kind, CPACK_GENERATOR.
if(NOT CPACK_TERRACE_KERNEL_LEVELS STREQUAL all OR NOT CPACK_TERRACE_SANITIZER STREQUAL none)
  message(FATAL_ERROR "This build has kernels for the instruction set of one machine: "
    "TERRACE_KERNEL_LEVELS is ${CPACK_TERRACE_KERNEL_LEVELS}, TERRACE_SANITIZER "
    "${CPACK_TERRACE_SANITIZER}. Build for all with `make`, then pack")
endif()

if(CPACK_GENERATOR STREQUAL TGZ)
  set(CPACK_PRE_BUILD_SCRIPTS ${CMAKE_CURRENT_LIST_DIR}/list_needed_packages.cmake)
endif()
