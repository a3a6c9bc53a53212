# Makes the Debian packages and the archive, and looks into them: each package has what its name
# says and is for all users, the program and the library of two packages run together, and the
# archive has all files.
include(${CMAKE_CURRENT_LIST_DIR}/run.cmake)

function(expect_file file)
  if(NOT EXISTS ${SCRATCH}/root/usr/${file})
    message(FATAL_ERROR "no package has /usr/${file}")
  endif()
endfunction()

# As `make deb` does.
function(pack)
  run(sh -c "umask 022 && exec \"$@\"" pack ${CPACK} ${ARGN} --config ${BUILD}/CPackConfig.cmake
    -B ${SCRATCH}/packages)
endfunction()

file(REMOVE_RECURSE ${SCRATCH})
pack()
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

foreach(file bin/terrace bin/terraced lib/systemd/system/terraced.service
    share/man/man1/terrace-bench-kernels.1 share/man/man8/terraced.8
    share/bash-completion/completions/terrace share/zsh/site-functions/_terrace
    share/terrace/models/tiny/config.json lib/libterrace.so.${ABI_VERSION}
    lib/libterrace.so lib/libterrace_runtime.a include/terrace.h
    include/terrace/runtime/runtime.hpp lib/pkgconfig/terrace-c.pc
    lib/cmake/terrace/terraceConfig.cmake)
  expect_file(${file})
endforeach()
# All users can read all of it, for any umask of the user who cloned and built.
run(find ${SCRATCH}/root/usr -type f -not -perm -644 -or -type d -not -perm -755)
if(NOT "${said}" STREQUAL "")
  message(FATAL_ERROR "not for all users:\n${said}")
endif()
run(${SCRATCH}/root/usr/bin/terrace --version)
run(${C_COMPILER} ${CONSUMER_C}/main.c -I${SCRATCH}/root/usr/include -L${SCRATCH}/root/usr/lib
  -Wl,-rpath,${SCRATCH}/root/usr/lib -lterrace -o ${SCRATCH}/consumer_c)
run(${SCRATCH}/consumer_c)

# The archive has the same files, and may be unpacked in any folder. Its list of packages names the
# dependencies of the Debian packages.
set(archive "${SCRATCH}/a folder")
pack(-G TGZ)
file(GLOB package ${SCRATCH}/packages/terrace-${VERSION}-linux-*.tar.gz)
file(ARCHIVE_EXTRACT INPUT ${package} DESTINATION ${archive})
file(GLOB archive "${archive}/terrace-${VERSION}-linux-*")
file(STRINGS "${archive}/share/terrace/packages.txt" needed)
file(REMOVE "${archive}/share/terrace/packages.txt")
file(GLOB_RECURSE installed RELATIVE ${SCRATCH}/root/usr ${SCRATCH}/root/usr/*)
file(GLOB_RECURSE archived RELATIVE "${archive}" "${archive}/*")
if(NOT "${archived}" STREQUAL "${installed}")
  message(FATAL_ERROR "files of the archive: ${archived}\nof the packages: ${installed}")
endif()
set(depends "${depends_terrace}, ${depends_libterrace${ABI_VERSION}}")
string(REGEX REPLACE " \\([^)]*\\)|\n" "" depends "${depends}")
string(REPLACE ", " ";" depends "${depends}")
list(REMOVE_DUPLICATES depends)
list(SORT depends)
if(NOT "${needed}" STREQUAL "${depends}")
  message(FATAL_ERROR "packages.txt has ${needed}, the packages depend on ${depends}")
endif()
run("${archive}/bin/terrace" run --policy full --context 64 --decode 2)
if(NOT said MATCHES "model +[^\n]*/a folder/terrace-")
  message(FATAL_ERROR "not the archive's own model: '${said}'")
endif()

# Kernels for one machine alone are not packed.
execute_process(COMMAND ${CPACK} --config ${BUILD}/CPackConfig.cmake -B ${SCRATCH}/refused
  -D CPACK_TERRACE_KERNEL_LEVELS=native RESULT_VARIABLE failed OUTPUT_QUIET ERROR_VARIABLE said)
if(NOT failed OR NOT said MATCHES "TERRACE_KERNEL_LEVELS is native")
  message(FATAL_ERROR "a build for one machine is packed: '${said}'")
endif()
