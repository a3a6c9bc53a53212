# terrace_test(name PREFIX prefix SOURCES file... LIBRARIES target...)
#
# Makes the GoogleTest program `name`; its cases appear in ctest as <prefix>.<Suite>.<Case>, with
# the prefix as label. The label of programs named in TERRACE_CONCURRENT_TESTS ends in -concurrent.
#
# Test programs are built not by `all`, but by terrace_tests, or in part: by terrace_memory_tests,
# all but those named in TERRACE_TESTS_WITHOUT_ASAN, by terrace_concurrent_tests, and by
# terrace_on_host_tests, those of device code on the stand-in.
include(GoogleTest)

add_custom_target(terrace_tests)
add_custom_target(terrace_memory_tests)
add_custom_target(terrace_concurrent_tests)
add_custom_target(terrace_on_host_tests)

# Headers that all test programs include are compiled once.
file(WRITE ${CMAKE_CURRENT_BINARY_DIR}/test_headers.cpp "// Headers alone.\n")
add_library(terrace_test_headers OBJECT ${CMAKE_CURRENT_BINARY_DIR}/test_headers.cpp)
target_link_libraries(terrace_test_headers
  PRIVATE GTest::gmock terrace::core terrace_build_flags terrace_light_flags)
target_precompile_headers(terrace_test_headers PRIVATE
  <gmock/gmock.h> <gtest/gtest.h> <fmt/core.h> <tl/expected.hpp>
  <algorithm> <chrono> <functional> <memory> <optional> <string> <vector>)

function(terrace_test name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "PREFIX" "SOURCES;LIBRARIES")
  add_executable(${name} ${arg_SOURCES})
  target_link_libraries(${name}
    PRIVATE ${arg_LIBRARIES} GTest::gmock_main terrace_build_flags terrace_light_flags)
  target_precompile_headers(${name} REUSE_FROM terrace_test_headers)
  target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR}/tests)
  add_dependencies(terrace_tests ${name})
  if(NOT name IN_LIST TERRACE_TESTS_WITHOUT_ASAN)
    add_dependencies(terrace_memory_tests ${name})
  endif()
  if(arg_PREFIX STREQUAL cuda_on_host)
    add_dependencies(terrace_on_host_tests ${name})
  endif()
  set(label ${arg_PREFIX})
  if(name IN_LIST TERRACE_CONCURRENT_TESTS)
    add_dependencies(terrace_concurrent_tests ${name})
    set(label ${arg_PREFIX}-concurrent)  # one word: a list of labels does not survive discovery
  endif()
  gtest_discover_tests(${name}
    TEST_PREFIX ${arg_PREFIX}. DISCOVERY_MODE PRE_TEST NO_PRETTY_VALUES
    PROPERTIES LABELS ${label})
endfunction()

# Adds one test of those of a program that fit a filter, in another environment.
function(terrace_policy_run prefix name program filter environment)
  add_test(NAME ${prefix}.${name} COMMAND ${program} --gtest_brief=1 --gtest_filter=${filter})
  # Minutes each: the first to start, so that no core waits for the last of them.
  set_tests_properties(${prefix}.${name} PROPERTIES
    ENVIRONMENT "${environment}" LABELS ${prefix} COST 1000)
endfunction()
