# Uses an installed Terrace the two ways its users do, find_package and pkg-config, from C++ and C.
set(prefix ${SCRATCH}/prefix)

include(${CMAKE_CURRENT_LIST_DIR}/run.cmake)

function(expect_version program)
  run(${program})
  if(NOT said MATCHES "^terrace ${VERSION} ")
    message(FATAL_ERROR "${program} says '${said}', not version ${VERSION}")
  endif()
endfunction()

# Warnings that an embedder may take for errors.
set(strict "-Wall -Wextra -Werror")

file(REMOVE_RECURSE ${SCRATCH})
run(${CMAKE_COMMAND} --install ${BUILD} --prefix ${prefix})

run(${CMAKE_COMMAND} -S ${CONSUMER} -B ${SCRATCH}/build
  -D CMAKE_PREFIX_PATH=${prefix} -D CMAKE_CXX_COMPILER=${COMPILER} -D CMAKE_CXX_FLAGS=${strict})
run(${CMAKE_COMMAND} --build ${SCRATCH}/build)
expect_version(${SCRATCH}/build/consumer)

set(ENV{PKG_CONFIG_PATH} ${prefix}/${LIBRARY_FOLDER}/pkgconfig)
run(pkg-config --cflags --libs terrace)
separate_arguments(flags UNIX_COMMAND "${said}")
run(${COMPILER} ${CONSUMER}/main.cpp ${flags} -o ${SCRATCH}/pkg_config_consumer)
expect_version(${SCRATCH}/pkg_config_consumer)

# The shared library and its header need nothing else: neither C++ nor other packages.
set(in_c -D CMAKE_PREFIX_PATH=${prefix} -D CMAKE_C_COMPILER=${C_COMPILER}
  "-DCMAKE_C_FLAGS=${strict} -std=c99 -pedantic")
run(${CMAKE_COMMAND} -S ${CONSUMER_C} -B ${SCRATCH}/build_c ${in_c})
run(${CMAKE_COMMAND} --build ${SCRATCH}/build_c)
expect_version(${SCRATCH}/build_c/consumer_c)

run(pkg-config --cflags --libs terrace-c)
separate_arguments(flags UNIX_COMMAND "${said}")
run(${C_COMPILER} -std=c99 ${CONSUMER_C}/main.c ${flags}
  -Wl,-rpath,${prefix}/${LIBRARY_FOLDER} -o ${SCRATCH}/pkg_config_consumer_c)
expect_version(${SCRATCH}/pkg_config_consumer_c)

# The two libraries in one program: neither library sees the other's symbols.
file(WRITE ${SCRATCH}/both/CMakeLists.txt "cmake_minimum_required(VERSION 3.25)
project(both LANGUAGES CXX)
find_package(terrace REQUIRED COMPONENTS c)
find_package(terrace REQUIRED)
add_executable(both ${CONSUMER}/main.cpp)
target_link_libraries(both PRIVATE terrace::terrace terrace::c)
")
run(${CMAKE_COMMAND} -S ${SCRATCH}/both -B ${SCRATCH}/build_both
  -D CMAKE_PREFIX_PATH=${prefix} -D CMAKE_CXX_COMPILER=${COMPILER} -D CMAKE_CXX_FLAGS=${strict})
run(${CMAKE_COMMAND} --build ${SCRATCH}/build_both)
expect_version(${SCRATCH}/build_both/both)

# The examples are users too.
function(run_example name)
  run(${CMAKE_COMMAND} -S ${EXAMPLES}/${name} -B ${SCRATCH}/${name} ${ARGN}
    -D CMAKE_PREFIX_PATH=${prefix} -D CMAKE_CXX_COMPILER=${COMPILER} -D CMAKE_CXX_FLAGS=${strict})
  run(${CMAKE_COMMAND} --build ${SCRATCH}/${name})
  run(${SCRATCH}/${name}/${name})
  set(said "${said}" PARENT_SCOPE)
endfunction()

run_example(embed)
if(NOT said MATCHES "^one step over 1001 tokens attended to 512 of them")
  message(FATAL_ERROR "embed says '${said}'")
endif()

# Ten requests whole, two tokens of the one that fails, six of the one that goes away.
run_example(serving)
if(NOT said MATCHES "^request 3 is dropped: [^\n]*\n498 tokens decoded, [1-9]")
  message(FATAL_ERROR "serving says '${said}'")
endif()

run_example(embed_c ${in_c})
if(NOT said MATCHES "^77 tokens decoded, hit rate [01][.]")
  message(FATAL_ERROR "embed_c says '${said}'")
endif()
