# Writes HEADER with the commit that SOURCE is at; leaves the file alone when nothing changed.
execute_process(
  COMMAND git --no-optional-locks -C ${SOURCE} describe --always --dirty --abbrev=12 --exclude=*
  OUTPUT_VARIABLE commit OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
if(NOT commit)
  set(commit unknown)
endif()
file(CONFIGURE OUTPUT ${HEADER} CONTENT
"#pragma once\n#define TERRACE_BUILD_COMMIT \"@commit@\"\n" @ONLY)
