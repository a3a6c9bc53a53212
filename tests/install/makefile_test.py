#!/usr/bin/env python3
"""Checks the commands that `make install` would give, without giving them."""

import shlex
import subprocess
import unittest


class Install(unittest.TestCase):
    def words(self, *arguments):
        """The words of the last line as a shell reads them."""
        said = subprocess.run(["make", "--dry-run", "--no-print-directory", "install", *arguments],
                              check=True, capture_output=True, text=True).stdout
        return shlex.split(said.splitlines()[-1])

    def test_a_prefix_may_have_blanks(self):
        for prefix in ("/usr/local", "/opt/my tools", "/opt/a  b;c&d"):
            self.assertEqual(self.words(f"PREFIX={prefix}"),
                             ["umask", "022;", "cmake", "--install", "build/release",
                              "--prefix", prefix])
        self.assertEqual(self.words()[-1], "/usr/local")


if __name__ == "__main__":
    unittest.main()
