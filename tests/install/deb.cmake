# Builds the Debian packages and looks into them: each has what its name says, and the program and
# the library of two packages run together.
include(${CMAKE_CURRENT_LIST_DIR}/run.cmake)

function(expect_file file)
  if(NOT EXISTS ${SCRATCH}/root/usr/${file})
    message(FATAL_ERROR "no package has /usr/${file}")
  endif()
endfunction()

file(REMOVE_RECURSE ${SCRATCH})
run(${CPACK} --config ${BUILD}/CPackConfig.cmake -B ${SCRATCH}/packages)
foreach(name terrace libterrace${ABI_VERSION} libterrace-dev)
  file(GLOB package ${SCRATCH}/packages/${name}_${VERSION}_*.deb)
  list(LENGTH package count)
  if(NOT count EQUAL 1)
    message(FATAL_ERROR "${count} packages are named ${name}_${VERSION}_*.deb")
  endif()
  run(dpkg-deb --extract ${package} ${SCRATCH}/root)
  run(dpkg-deb --field ${package} Depends)
  set(depends_${name} "${said}")
endforeach()
if(NOT "${depends_libterrace${ABI_VERSION}}" MATCHES "libtbb12" OR
    NOT "${depends_libterrace-dev}" MATCHES "libterrace${ABI_VERSION} \\(= ${VERSION}\\)")
  message(FATAL_ERROR "wrong dependencies: ${depends_libterrace${ABI_VERSION}}, "
    "${depends_libterrace-dev}")
endif()

foreach(file bin/terrace share/terrace/models/tiny/config.json lib/libterrace.so.${ABI_VERSION}
    lib/libterrace.so lib/libterrace_runtime.a include/terrace.h
    include/terrace/runtime/runtime.hpp lib/pkgconfig/terrace-c.pc
    lib/cmake/terrace/terraceConfig.cmake)
  expect_file(${file})
endforeach()
run(${SCRATCH}/root/usr/bin/terrace --version)
run(${C_COMPILER} ${CONSUMER_C}/main.c -I${SCRATCH}/root/usr/include -L${SCRATCH}/root/usr/lib
  -Wl,-rpath,${SCRATCH}/root/usr/lib -lterrace -o ${SCRATCH}/consumer_c)
run(${SCRATCH}/consumer_c)
