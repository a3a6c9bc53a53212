# Comments of a header, in the form that Doxygen reads. The head of a file is shown as it stands; a
# labelled line ("Threads  any", "Errors   io_error") is an item; comments of C are documentation.
NR == 1 && /^\/[\/*]/ {
  head = 1
  print "/** @file"
  print "@verbatim"
  if ($0 == "/*") next
}
head && /^( \*\/|[^\/ ]|$)/ {
  head = 0
  print "@endverbatim */"
  if ($0 == " */") next
}
head {
  sub(/^(\/\/| \*) ?/, "")
  print
  next
}
/^ *(\/\/\/| \*|\/\*) [A-Z][a-z]+  +[^ ]/ {
  match($0, /[A-Z]/)
  label = substr($0, RSTART)
  sub(/  +/, "** ", label)
  $0 = substr($0, 1, RSTART - 1) "- **" label
}
/^ *\/\* [^-]/ { sub(/\/\*/, "/**") }
/[^ ] +\/\* .*/ { sub(/\/\* /, "/**< ") }
{ print }
