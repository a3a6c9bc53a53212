# The files that `make install` installs beside the program: the package `terrace` for find_package
# and for pkg-config, with one target per layer and terrace::terrace for all that an embedder needs.
#
# The reference decoder is a component of its own, terrace::engine, because it brings a BLAS along.
# The shared library of the C interface is another component, terrace::c or pkg-config's terrace-c:
# programs that use it need neither C++ nor the libraries that Terrace is built with.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

set(package_folder ${CMAKE_INSTALL_LIBDIR}/cmake/terrace)
get_property(layers GLOBAL PROPERTY TERRACE_LAYERS)
set(embedded_layers ${layers})
list(REMOVE_ITEM embedded_layers terrace_engine)

add_library(terrace_all INTERFACE)
add_library(terrace::terrace ALIAS terrace_all)
set_target_properties(terrace_all PROPERTIES EXPORT_NAME terrace)
list(TRANSFORM embedded_layers REPLACE "^terrace_" "terrace::" OUTPUT_VARIABLE embedded_targets)
target_link_libraries(terrace_all INTERFACE ${embedded_targets})

install(TARGETS ${embedded_layers} terrace_all EXPORT terrace
  ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR}
  FILE_SET HEADERS DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(EXPORT terrace NAMESPACE terrace:: FILE terraceTargets.cmake DESTINATION ${package_folder})
if(TARGET terrace_engine)
  install(TARGETS terrace_engine EXPORT terrace_engine
    ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR}
    FILE_SET HEADERS DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
  install(EXPORT terrace_engine
    NAMESPACE terrace:: FILE terraceEngineTargets.cmake DESTINATION ${package_folder})
endif()

install(TARGETS terrace_c EXPORT terrace_c
  LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}
    COMPONENT library NAMELINK_COMPONENT development
  FILE_SET HEADERS DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(EXPORT terrace_c
  NAMESPACE terrace:: FILE terraceCTargets.cmake DESTINATION ${package_folder})

get_property(TERRACE_DEPENDENCIES GLOBAL PROPERTY TERRACE_DEPENDENCIES)
list(JOIN TERRACE_DEPENDENCIES "\n  " TERRACE_DEPENDENCIES)
configure_package_config_file(cmake/terraceConfig.cmake.in terraceConfig.cmake
  INSTALL_DESTINATION ${package_folder} NO_SET_AND_CHECK_MACRO)
# Before 1.0 each minor version may break its users.
write_basic_package_version_file(terraceConfigVersion.cmake COMPATIBILITY SameMinorVersion)

# A static library stands before those it uses: the last layer first.
list(REVERSE embedded_layers)
list(TRANSFORM embedded_layers PREPEND "-l" OUTPUT_VARIABLE TERRACE_LIBRARY_FLAGS)
list(JOIN TERRACE_LIBRARY_FLAGS " " TERRACE_LIBRARY_FLAGS)
if(TERRACE_CUDA_FOUND)
  string(APPEND TERRACE_LIBRARY_FLAGS " -L${CUDAToolkit_LIBRARY_DIR} -lcudart_static -ldl -lrt")
endif()
file(RELATIVE_PATH TERRACE_PKGCONFIG_TO_PREFIX /${CMAKE_INSTALL_LIBDIR}/pkgconfig /)
configure_file(cmake/terrace.pc.in terrace.pc @ONLY)
configure_file(cmake/terrace-c.pc.in terrace-c.pc @ONLY)

install(FILES
  ${CMAKE_CURRENT_BINARY_DIR}/terraceConfig.cmake
  ${CMAKE_CURRENT_BINARY_DIR}/terraceConfigVersion.cmake
  DESTINATION ${package_folder})
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/terrace.pc ${CMAKE_CURRENT_BINARY_DIR}/terrace-c.pc
  DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
install(FILES LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR})
