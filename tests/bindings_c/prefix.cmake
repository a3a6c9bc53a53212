# Runs the example of prefixes on a file that is not there yet.
file(REMOVE ${FILE})
execute_process(COMMAND ${PROGRAM} ${FILE} OUTPUT_VARIABLE said RESULT_VARIABLE failed)
file(REMOVE ${FILE})
set(expected "0 of 300 tokens were found, the file has 256 of them now
256 of 300 tokens were found, the file has 256 of them now
")
if(failed OR NOT said STREQUAL expected)
  message(FATAL_ERROR "${PROGRAM} says '${said}' (${failed})")
endif()
