# terrace_add_version(target) adds a source with the version and the commit to `target`.
#
# The same file is the script that each build runs (cmake -P) to ask git anew: a commit captured at
# configure time is wrong from the next commit on. The source changes only when the answer does.

if(NOT CMAKE_SCRIPT_MODE_FILE)
  function(terrace_add_version target)
    set(source ${CMAKE_CURRENT_BINARY_DIR}/version.cpp)
    add_custom_target(${target}_version
      COMMAND ${CMAKE_COMMAND}
        -D TERRACE_VERSION=${PROJECT_VERSION}
        -D "TERRACE_COMPILER=${CMAKE_CXX_COMPILER_ID} ${CMAKE_CXX_COMPILER_VERSION}"
        -D TERRACE_CUDA_CODE=${TERRACE_CUDA_CODE}
        -D REPOSITORY=${PROJECT_SOURCE_DIR}
        -D SOURCE=${source}
        -P ${PROJECT_SOURCE_DIR}/cmake/TerraceVersion.cmake
      BYPRODUCTS ${source}
      COMMENT "Asking git for the commit"
      VERBATIM)
    target_sources(${target} PRIVATE ${source})
    add_dependencies(${target} ${target}_version)
  endfunction()
  return()
endif()

function(ask_git output)
  execute_process(COMMAND git -C ${REPOSITORY} ${ARGN}
    OUTPUT_VARIABLE answer RESULT_VARIABLE failed OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
  if(failed)
    set(answer "")
  endif()
  set(${output} "${answer}" PARENT_SCOPE)
endfunction()

# A source tarball inside somebody else's repository must not report their commit.
ask_git(top rev-parse --show-toplevel)
ask_git(commit rev-parse --short=12 HEAD)
if(top STREQUAL REPOSITORY AND commit)
  ask_git(changes status --porcelain --untracked-files=no)
  if(changes)
    string(APPEND commit "-dirty")
  endif()
else()
  set(commit unknown)
endif()
set(TERRACE_COMMIT ${commit})
configure_file(${REPOSITORY}/cmake/version.cpp.in ${SOURCE} @ONLY)
