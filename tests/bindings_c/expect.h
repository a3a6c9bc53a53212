/* Ends a program of the tests where something is not as it has to be, and says where. */
#ifndef TERRACE_TESTS_EXPECT_H
#define TERRACE_TESTS_EXPECT_H

#include <stdio.h>
#include <stdlib.h>

#define EXPECT(condition)                                                         \
  do {                                                                            \
    if (!(condition)) {                                                           \
      fprintf(stderr, "%s:%d: %s; message: %s\n", __FILE__, __LINE__, #condition, \
              terrace_message());                                                 \
      exit(1);                                                                    \
    }                                                                             \
  } while (0)

#endif
