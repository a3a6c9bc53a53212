# terrace_layer(name
#   DEPENDS layer... LIBRARIES target... PRIVATE_LIBRARIES target... SOURCES file...
#   CUDA_SOURCES file... ALONE file...)
#
# Makes the static library target terrace_<name>, alias terrace::<name>, from a folder of that name:
# its include root is <name>/include and nothing else, so that including a layer that is not
# among DEPENDS does not compile. Headers form a file set: they are installed and checked alone.
# CUDA_SOURCES are left out where there is no toolkit; target terrace_cuda_code compiles those of
# all layers and nothing else. ALONE: of SOURCES, as in terrace_unity().
function(terrace_layer name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" ""
    "DEPENDS;LIBRARIES;PRIVATE_LIBRARIES;SOURCES;CUDA_SOURCES;ALONE")
  set(target terrace_${name})
  file(GLOB_RECURSE headers CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/include/*.hpp)
  add_library(${target} STATIC)
  add_library(terrace::${name} ALIAS ${target})
  target_sources(${target}
    PRIVATE ${arg_SOURCES}
    PUBLIC FILE_SET HEADERS BASE_DIRS include FILES ${headers})
  list(TRANSFORM arg_DEPENDS PREPEND terrace::)
  target_link_libraries(${target}
    PUBLIC ${arg_DEPENDS} ${arg_LIBRARIES}
    PRIVATE ${arg_PRIVATE_LIBRARIES} $<BUILD_INTERFACE:terrace_build_flags>)
  if(TERRACE_CUDA_FOUND AND arg_CUDA_SOURCES)
    add_library(${target}_cuda OBJECT ${arg_CUDA_SOURCES})
    # All CUDA code checks the runtime's answers by one header, support/check.hpp of kernels.
    target_include_directories(${target}_cuda PRIVATE
      include src ${PROJECT_SOURCE_DIR}/kernels/src/cuda)
    target_link_libraries(${target}_cuda PRIVATE
      ${arg_DEPENDS} ${arg_LIBRARIES} ${arg_PRIVATE_LIBRARIES} terrace_build_flags terrace_cuda)
    set_target_properties(${target}_cuda PROPERTIES POSITION_INDEPENDENT_CODE ON)
    target_sources(${target} PRIVATE $<TARGET_OBJECTS:${target}_cuda>)
    target_link_libraries(${target} PRIVATE $<BUILD_INTERFACE:terrace_cuda> CUDA::cudart_static)
    add_dependencies(terrace_cuda_code ${target}_cuda)
  endif()
  target_compile_features(${target} PUBLIC cxx_std_20)
  set_target_properties(${target} PROPERTIES
    EXPORT_NAME ${name} POSITION_INDEPENDENT_CODE ON VERIFY_INTERFACE_HEADER_SETS ON)
  set_property(GLOBAL APPEND PROPERTY TERRACE_LAYERS ${target})
  terrace_unity(${target} ALONE ${arg_ALONE})
  # The stand-in for CUDA's runtime compiles them too, as plain C++.
  list(TRANSFORM arg_CUDA_SOURCES PREPEND ${CMAKE_CURRENT_SOURCE_DIR}/)
  set_property(GLOBAL PROPERTY TERRACE_CUDA_SOURCES_${name} ${arg_CUDA_SOURCES})
endfunction()
