# Uses an installed Terrace the two ways its users do: find_package and pkg-config.
set(prefix ${SCRATCH}/prefix)

function(run)
  execute_process(COMMAND ${ARGN} RESULT_VARIABLE failed OUTPUT_VARIABLE said ERROR_VARIABLE said)
  if(failed)
    list(JOIN ARGN " " command)
    message(FATAL_ERROR "${command}\n${said}")
  endif()
  set(said "${said}" PARENT_SCOPE)
endfunction()

function(expect_version program)
  run(${program})
  if(NOT said MATCHES "^terrace ${VERSION} ")
    message(FATAL_ERROR "${program} says '${said}', not version ${VERSION}")
  endif()
endfunction()

file(REMOVE_RECURSE ${SCRATCH})
run(${CMAKE_COMMAND} --install ${BUILD} --prefix ${prefix})

run(${CMAKE_COMMAND} -S ${CONSUMER} -B ${SCRATCH}/build
  -D CMAKE_PREFIX_PATH=${prefix} -D CMAKE_CXX_COMPILER=${COMPILER})
run(${CMAKE_COMMAND} --build ${SCRATCH}/build)
expect_version(${SCRATCH}/build/consumer)

set(ENV{PKG_CONFIG_PATH} ${prefix}/${LIBRARY_FOLDER}/pkgconfig)
run(pkg-config --cflags --libs terrace)
separate_arguments(flags UNIX_COMMAND "${said}")
run(${COMPILER} ${CONSUMER}/main.cpp ${flags} -o ${SCRATCH}/pkg_config_consumer)
expect_version(${SCRATCH}/pkg_config_consumer)

# The example of the README is a user too.
run(${CMAKE_COMMAND} -S ${EXAMPLE} -B ${SCRATCH}/example
  -D CMAKE_PREFIX_PATH=${prefix} -D CMAKE_CXX_COMPILER=${COMPILER})
run(${CMAKE_COMMAND} --build ${SCRATCH}/example)
run(${SCRATCH}/example/embed)
if(NOT said MATCHES "^one step over 1001 tokens attended to 100 of them")
  message(FATAL_ERROR "embed says '${said}'")
endif()
