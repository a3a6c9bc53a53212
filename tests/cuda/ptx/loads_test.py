#!/usr/bin/env python3
"""Loads of attention that are to be under way together have no branch between them.

loads_test.py PTX: reads what nvcc makes of kernels/src/cuda/attention.cu. A branch or a label
between two loads means that the second one waits for what comes before it; so it was while each
load tested by itself whether its address was aligned.
"""

import re
import sys
import unittest

AT_ONCE = 8  # rows of a lane: rows_at_once in device/dot_rows.cuh


def runs_of_loads(kernel):
    """Returns how many 16-byte loads of global memory follow each other without a branch."""
    runs = [0]
    for line in kernel.splitlines():
        if re.match(r"\s*(\$L\w+:|(@!?%\w+\s+)?bra\b)", line):
            runs.append(0)
        elif re.search(r"\bld\.global[.\w]*\.v4\.", line):
            runs[-1] += 1
    return [run for run in runs if run > 0]


def kernels(ptx, name):
    """Returns the text of each kernel whose mangled name has `name` in it."""
    found = re.findall(r"\.entry (\w+)\((.*?)\n\}\n", ptx, re.DOTALL)
    return {mangled: text for mangled, text in found if name in mangled}


class Loads(unittest.TestCase):
    def test_keys_and_values_of_eight_rows_are_loaded_together(self):
        with open(PTX, encoding="ascii") as file:
            found = kernels(file.read(), "attend_piece")
        self.assertGreaterEqual(len(found), 9, "three dtypes, 1 to 4 heads")
        for name, text in found.items():
            together = [run for run in runs_of_loads(text) if run >= AT_ONCE]
            self.assertEqual(together, [AT_ONCE, AT_ONCE], name)

    def test_a_branch_and_a_label_end_a_run(self):
        load = "\tld.global.nc.v4.u32 \t{%r1, %r2, %r3, %r4}, [%rd1];\n"
        self.assertEqual(runs_of_loads(load * 3), [3])
        self.assertEqual(runs_of_loads(load + "\t@%p1 bra \t$L__BB0_2;\n" + load), [1, 1])
        self.assertEqual(runs_of_loads(load + "$L__BB0_2:\n" + load), [1, 1])


if __name__ == "__main__":
    PTX = sys.argv.pop(1)
    unittest.main()
