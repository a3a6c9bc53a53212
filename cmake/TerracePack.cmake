# Packages: `make deb` and `make tarball`, or cpack in a build tree. Debian packages are three, as
# Debian has them: the program, the library of the C interface, and what programs are built with.
# The archive (cpack -G TGZ) has all of it. The Python package is a wheel's.
set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME terrace)
set(CPACK_PACKAGE_CONTACT "The Terrace authors <terrace@localhost>")
set(CPACK_PACKAGE_VENDOR "The Terrace authors")
set(CPACK_PACKAGE_DIRECTORY ${PROJECT_BINARY_DIR}/packages)
# Read when packing begins, for each kind of package.
set(CPACK_PROJECT_CONFIG_FILE ${CMAKE_CURRENT_LIST_DIR}/pack/before_packing.cmake)
set(CPACK_TERRACE_KERNEL_LEVELS ${TERRACE_KERNEL_LEVELS})
set(CPACK_TERRACE_SANITIZER ${TERRACE_SANITIZER})
string(TOLOWER "terrace-${PROJECT_VERSION}-${CMAKE_SYSTEM_NAME}-${CMAKE_SYSTEM_PROCESSOR}"
  CPACK_PACKAGE_FILE_NAME)

set(CPACK_COMPONENTS_ALL program library development)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION science)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)

set(CPACK_COMPONENT_PROGRAM_DESCRIPTION "${PROJECT_DESCRIPTION}: the command line")
set(CPACK_DEBIAN_PROGRAM_PACKAGE_NAME terrace)

set(CPACK_COMPONENT_LIBRARY_DESCRIPTION "${PROJECT_DESCRIPTION}: the library of the C interface")
set(CPACK_DEBIAN_LIBRARY_PACKAGE_NAME libterrace${TERRACE_ABI_VERSION})
set(CPACK_DEBIAN_LIBRARY_PACKAGE_SECTION libs)

set(CPACK_COMPONENT_DEVELOPMENT_DESCRIPTION
  "${PROJECT_DESCRIPTION}: headers, static libraries, packages for CMake and pkg-config")
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_NAME libterrace-dev)
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_SECTION libdevel)
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_DEPENDS
  "libterrace${TERRACE_ABI_VERSION} (= ${PROJECT_VERSION})")
# For programs in C++ alone, which the static libraries are for.
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_SUGGESTS "libboost-dev, libeigen3-dev, libexpected-dev, \
libfmt-dev, libhiredis-dev, libhwloc-dev, libhwy-dev, libopenblas-dev, libssl-dev, libtbb-dev, \
liburing-dev, libxxhash-dev, libyaml-cpp-dev, nlohmann-json3-dev")
include(CPack)
