# Writes into an archive, before it is packed, which Debian packages its programs and its library
# need: those that the Debian packages depend on.
set(root ${CPACK_TEMPORARY_DIRECTORY})
set(scratch ${CPACK_TOPLEVEL_DIRECTORY}/needed_packages)
file(WRITE ${scratch}/debian/control "Source: terrace\n\nPackage: terrace\nArchitecture: any\n")
file(GLOB library ${root}/lib*/libterrace.so.*.*)
execute_process(COMMAND dpkg-shlibdeps -O ${root}/bin/terrace ${root}/bin/terraced ${library}
  WORKING_DIRECTORY ${scratch} RESULT_VARIABLE failed OUTPUT_VARIABLE said ERROR_VARIABLE warned)
if(failed)
  message(FATAL_ERROR "dpkg-shlibdeps (package dpkg-dev) says: ${failed}\n${warned}")
endif()
string(REGEX REPLACE "^shlibs:Depends=|\\([^)]*\\)|[ \n]" "" packages "${said}")
string(REPLACE "," "\n" packages "${packages}")
file(WRITE ${root}/share/terrace/packages.txt "${packages}\n")
