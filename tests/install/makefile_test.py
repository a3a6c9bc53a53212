#!/usr/bin/env python3
"""Checks the commands that `make install`, `make deb` and `make tarball` would give, without giving
them. CMake gives folders modes by the umask of the user who installs or packs."""

import shlex
import subprocess
import unittest


class Install(unittest.TestCase):
    def words(self, target, *arguments):
        """The words of the last line as a shell reads them."""
        said = subprocess.run(["make", "--dry-run", "--no-print-directory", target, *arguments],
                              check=True, capture_output=True, text=True).stdout
        return shlex.split(said.splitlines()[-1])

    def test_a_prefix_may_have_blanks(self):
        for prefix in ("/usr/local", "/opt/my tools", "/opt/a  b;c&d"):
            self.assertEqual(self.words("install", f"PREFIX={prefix}"),
                             ["umask", "022;", "cmake", "--install", "build/release",
                              "--prefix", prefix])
        self.assertEqual(self.words("install")[-1], "/usr/local")

    def test_packages_have_folders_for_all_users(self):
        packing = ["umask", "022;", "cpack", "--config", "build/release/CPackConfig.cmake"]
        self.assertEqual(self.words("deb"), packing)
        self.assertEqual(self.words("tarball"), [*packing, "-G", "TGZ"])


if __name__ == "__main__":
    unittest.main()
