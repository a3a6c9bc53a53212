# terrace_test(name PREFIX prefix SOURCES file... LIBRARIES target...)
#
# Makes the GoogleTest program `name`; its cases appear in ctest as <prefix>.<Suite>.<Case>.
include(GoogleTest)
function(terrace_test name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "PREFIX" "SOURCES;LIBRARIES")
  add_executable(${name} ${arg_SOURCES})
  target_link_libraries(${name} PRIVATE ${arg_LIBRARIES} GTest::gmock_main terrace_build_flags)
  target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR}/tests)
  gtest_discover_tests(${name}
    TEST_PREFIX ${arg_PREFIX}. DISCOVERY_MODE PRE_TEST NO_PRETTY_VALUES
    PROPERTIES LABELS ${arg_PREFIX})
endfunction()
