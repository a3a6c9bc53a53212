# Compares the symbols that the library gives away with the committed list.
execute_process(COMMAND ${NM} -D --defined-only ${LIBRARY}
  OUTPUT_VARIABLE table RESULT_VARIABLE failed)
if(failed)
  message(FATAL_ERROR "${NM} cannot read ${LIBRARY}")
endif()
string(REGEX MATCHALL "[^ \n]+@@[^ \n]+" exported "${table}")
# Some linkers give a version's own name a version.
list(FILTER exported EXCLUDE REGEX "^(TERRACE_[0-9]+)@@TERRACE_[0-9]+$")
list(SORT exported)
file(STRINGS ${LIST} listed REGEX "^[^#]")
list(SORT listed)
set(gone ${listed})
list(REMOVE_ITEM gone ${exported})
set(new ${exported})
list(REMOVE_ITEM new ${listed})
string(REGEX MATCHALL "[^ \n]+ [A-Z] [^@\n]+\n" unversioned "${table}")
list(FILTER unversioned EXCLUDE REGEX " A TERRACE_[0-9]+\n$")
if(gone OR new OR unversioned)
  message(FATAL_ERROR "libterrace.so no longer gives away: ${gone}\n  gives away besides: ${new} "
    "${unversioned}\nA function that is gone, or takes something else, breaks programs: raise "
    "TERRACE_ABI_VERSION in terrace.h. A new one belongs into ${LIST}")
endif()
