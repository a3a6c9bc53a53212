# Flags of this build alone: warnings and sanitizers. Never exported to programs that link Terrace.
add_library(terrace_build_flags INTERFACE)
set(warnings
  -Wall -Wextra -Wpedantic -Wconversion -Wsign-conversion -Wnon-virtual-dtor
  # A designated initializer leaves fields out on purpose: they keep their defaults.
  -Wno-missing-field-initializers)
# A local name may be that of another file's constant in the same unit.
if(NOT TERRACE_UNITY)
  list(APPEND warnings -Wshadow)
endif()
target_compile_options(terrace_build_flags INTERFACE
  $<$<COMPILE_LANGUAGE:CXX>:${warnings}>
  # g++ 12's library calls a deprecated function of its own to sort, and clang warns of that at each
  # call of std::stable_sort. Calls of ours are told by g++.
  $<$<COMPILE_LANG_AND_ID:CXX,Clang>:-Wno-deprecated-declarations>)

set(TERRACE_SANITIZER none CACHE STRING "none, address (with undefined) or thread")
set_property(CACHE TERRACE_SANITIZER PROPERTY STRINGS none address thread)
if(TERRACE_SANITIZER STREQUAL address)
  # To look at an object's type, the sanitizer opens a pipe, which a program that may open few files
  # cannot.
  add_compile_options(-fsanitize=address,undefined -fno-sanitize=vptr -fno-sanitize-recover=all
    -fno-omit-frame-pointer)
  add_link_options(-fsanitize=address,undefined)
elseif(TERRACE_SANITIZER STREQUAL thread)
  add_compile_options(-fsanitize=thread -fno-omit-frame-pointer)
  add_link_options(-fsanitize=thread)
elseif(NOT TERRACE_SANITIZER STREQUAL none)
  message(FATAL_ERROR "TERRACE_SANITIZER is '${TERRACE_SANITIZER}'; use none, address or thread")
endif()

# The presets compile the same sources several times; a compiler cache pays for itself at once.
find_program(TERRACE_CCACHE ccache)
mark_as_advanced(TERRACE_CCACHE)
if(TERRACE_CCACHE AND PROJECT_IS_TOP_LEVEL AND NOT DEFINED CMAKE_CXX_COMPILER_LAUNCHER)
  # ccache must be allowed to ignore details of precompiled headers, or it caches no file that has
  # one. Paths relative to the checkout let one checkout use what another one compiled.
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CMAKE_COMMAND} -E env
    CCACHE_SLOPPINESS=pch_defines,time_macros CCACHE_BASEDIR=${PROJECT_SOURCE_DIR}
    CCACHE_NOHASHDIR=1 ${TERRACE_CCACHE})
endif()

# For code whose own speed does not matter, and whose libraries' headers take longer to compile than
# it does: tests, and the program around the library, which have precompiled headers. Code that
# sanitizers add makes optimizing take twice as long.
add_library(terrace_light_flags INTERFACE)
if(TERRACE_SANITIZER STREQUAL none)
  set(light $<$<CONFIG:Release>:-O1>)
else()
  set(light -O0)
endif()
target_compile_options(terrace_light_flags INTERFACE
  $<$<COMPILE_LANGUAGE:CXX>:${light}>
  $<$<COMPILE_LANG_AND_ID:CXX,GNU>:-fpch-preprocess>)
