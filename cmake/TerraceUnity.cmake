# TERRACE_UNITY: the sources of one folder of a target are compiled as one unit, up to 32 at a time;
# a folder of fewer than five joins the folder above it, but no folder joins one above src. A
# source's own code is a seventh of what the compiler reads; the rest are headers and templates,
# which a unit reads once. Therefore names in anonymous namespaces must differ within a unit.
#
# A source that Highway includes again for each instruction set is a unit of its own. So are those
# behind ALONE: programs bring another object in place of the library's.
option(TERRACE_UNITY "Compile the sources of a folder together" ON)

function(terrace_unity target)
  cmake_parse_arguments(PARSE_ARGV 1 unity "" "" "ALONE")
  if(NOT TERRACE_UNITY)
    return()
  endif()
  get_target_property(sources ${target} SOURCES)
  list(FILTER sources INCLUDE REGEX "\\.cpp$")
  if(unity_ALONE)
    list(REMOVE_ITEM sources ${unity_ALONE})
  endif()
  foreach(source IN LISTS sources)
    cmake_path(ABSOLUTE_PATH source OUTPUT_VARIABLE path)
    if(NOT EXISTS ${path})  # made by the build
      continue()
    endif()
    file(STRINGS ${path} per_level REGEX "^#include <hwy/foreach_target.h>" LIMIT_COUNT 1)
    if(NOT per_level)
      cmake_path(GET source PARENT_PATH folder)
      list(APPEND sources_of_${folder}/ ${source})
      list(APPEND folders ${folder}/)
    endif()
  endforeach()
  list(REMOVE_DUPLICATES folders)
  foreach(folder IN LISTS folders)
    list(LENGTH sources_of_${folder} count)
    set(unit ${folder})
    if(count LESS 5 AND NOT folder STREQUAL "src/")
      string(REGEX REPLACE "[^/]*/$" "" unit "${folder}")
    endif()
    foreach(source IN LISTS sources_of_${folder})
      math(EXPR number "0${in_${unit}} / 32")
      math(EXPR in_${unit} "0${in_${unit}} + 1")
      string(MAKE_C_IDENTIFIER "${target}_${unit}${number}" group)
      set_source_files_properties(${source} PROPERTIES UNITY_GROUP ${group})
    endforeach()
  endforeach()
  set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_MODE GROUP)
endfunction()
