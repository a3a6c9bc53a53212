# Proves that a header of OTHER cannot be included with LAYER's include folders, and for no other
# reason than those: the same file compiles without the line, and with OTHER's folders.

# compile(output include_folders text): sets `output` to the compiler's errors, empty if there are
# no errors.
function(compile output include_folders text)
  file(WRITE ${SOURCE} "${text}")
  list(TRANSFORM include_folders PREPEND -I)
  execute_process(COMMAND ${COMPILER} -std=c++20 -fsyntax-only ${include_folders} ${SOURCE}
    RESULT_VARIABLE failed ERROR_VARIABLE complaint)
  if(NOT failed)
    set(complaint "")
  endif()
  set(${output} "${complaint}" PARENT_SCOPE)
endfunction()

file(GLOB_RECURSE headers RELATIVE ${OTHER_ROOT} ${OTHER_ROOT}/*.hpp)
list(GET headers 0 header)
set(allowed "#include \"terrace/core/tier.hpp\"\n")
set(forbidden "${allowed}#include \"${header}\"\n")

compile(complaint "${LAYER_INCLUDES}" "${allowed}")
if(complaint)
  message(FATAL_ERROR "The control does not compile:\n${complaint}")
endif()
compile(complaint "${OTHER_INCLUDES}" "${forbidden}")
if(complaint)
  message(FATAL_ERROR "${header} does not compile with its own layer's folders:\n${complaint}")
endif()
compile(complaint "${LAYER_INCLUDES}" "${forbidden}")
if(NOT complaint)
  message(FATAL_ERROR "${header} can be included, but the folders' order forbids it")
endif()
if(NOT complaint MATCHES "${header}: No such file|'${header}' file not found")
  message(FATAL_ERROR "${header} is refused for another reason:\n${complaint}")
endif()
