"""Checks `terrace bench nvme`: rows with and without fio, and that no file is left."""

import json
import os
import unittest

from program import InAFolder, terrace

# Stands in for fio: says what it was asked, and figures that can be known again.
FIO = """#!/bin/sh
if [ "$1" = --version ]; then echo fio-9.9; exit 0; fi
echo "$@" >> {log}
{failure}
cat <<END
{{"jobs": [{{"job_runtime": 400, "usr_cpu": 10.0, "sys_cpu": 30.0,
  "read": {{"bw_bytes": 1000000, "total_ios": 1600}},
  "write": {{"bw_bytes": 2000000, "total_ios": 1600}}}}]}}
END
"""


class Nvme(InAFolder):
    def setUp(self):
        super().setUp()
        self.disk = self.folder / "disk"
        self.disk.mkdir()

    def test_a_folder_that_tmpdir_names_and_that_is_not_there(self):
        gone = {"TMPDIR": str(self.folder / "gone")}
        process = terrace("bench", "nvme", "--quick", environment=gone)
        self.assertEqual((process.returncode, process.stdout), (2, ""))
        self.assertEqual(process.stderr, f"terrace: TMPDIR {self.folder}/gone: No such file or "
                         "directory; name a folder by --folder\n")
        process = terrace("doctor", "--format", "json", environment=gone)
        row = next(row for row in json.loads(process.stdout)["rows"]
                   if row["check"] == "direct_io")
        self.assertEqual(row["status"], "warn")
        self.assertIn(f"TMPDIR {self.folder}/gone: No such file", row["found"])
        self.assertIn("let TMPDIR name a folder", row["advice"])
        named = self.bench("--only", "nvme_read_sequential", environment=gone)
        self.assertGreater(len(named), 0)

    def bench(self, *arguments, path="/nowhere", environment=None):
        process = terrace("bench", "nvme", "--quick", "--format", "json", "--folder", self.disk,
                          *arguments, environment={**os.environ, **(environment or {}),
                                                  "PATH": str(path)})
        self.assertEqual(process.returncode, 0, process.stderr)
        self.assertEqual(list(self.disk.iterdir()), [])
        self.said = process.stderr
        document = json.loads(process.stdout)
        self.assertEqual(document["command"], "bench nvme")
        return {row["name"]: row for row in document["rows"]}

    def programs(self, failure=""):
        """Makes a folder with a program that is called fio."""
        folder = self.folder / "bin"
        folder.mkdir()
        program = folder / "fio"
        program.write_text(FIO.format(log=self.folder / "log", failure=failure))
        program.chmod(0o755)
        return f"{folder}:/usr/bin:/bin"

    def test_each_way_has_a_rate(self):
        rows = self.bench("--only", "4096_d")
        for kind in ("read", "write"):
            for order in ("sequential", "scattered"):
                for depth in (1, 32):
                    row = rows[f"nvme_{kind}_{order}_4096_d{depth}"]
                    self.assertGreater(row["value"], 0)
                    self.assertEqual((row["unit"], row["better"]), ("B/s", "higher"))
                    self.assertEqual(row["parameters"]["bytes"], 4096)
                    self.assertEqual(row["parameters"]["depth"], depth)
        row = rows["nvme_cpu_per_request_read_scattered_4096_d32"]
        self.assertEqual((row["unit"], row["better"]), ("s", "lower"))

    def test_without_fio_a_row_says_why_it_has_no_peer(self):
        row = self.bench("--only", "read_sequential_65536_d1")["nvme_read_sequential_65536_d1"]
        self.assertIsNone(row["peer"])
        self.assertTrue(row["parameters"]["no_peer"])
        self.assertIn(row["parameters"]["no_peer"], self.said)

    def test_fio_does_the_same(self):
        path = self.programs()
        rows = self.bench("--only", "write_scattered_65536_d32", path=path)
        row = rows["nvme_write_scattered_65536_d32"]
        if row["parameters"]["engine"] != "io_uring":
            self.skipTest("no io_uring here")
        self.assertEqual(row["peer"], {"name": "fio", "version": "9.9", "value": 2e6})
        cpu = rows["nvme_cpu_per_request_write_scattered_65536_d32"]
        self.assertAlmostEqual(cpu["peer"]["value"], 0.4 * 0.4 / 1600)
        asked = (self.folder / "log").read_text().splitlines()
        self.assertEqual(len(asked), 1)  # both rows are of one measurement
        for word in ("--rw=randwrite", "--bs=65536", "--iodepth=32", "--ioengine=io_uring",
                     f"--direct={int(row['parameters']['direct'])}"):
            self.assertIn(word, asked[0].split())

    def test_a_fio_that_fails_takes_no_figure_away(self):
        rows = self.bench("--only", "read_scattered_4096_d1", path=self.programs("exit 3"))
        row = rows["nvme_read_scattered_4096_d1"]
        self.assertGreater(row["value"], 0)
        self.assertIsNone(row["peer"])

    def test_the_store_is_beside_its_file(self):
        rows = self.bench("--only", "nvme_store")
        for verb in ("get", "put"):
            row = rows[f"nvme_store_{verb}_65536"]
            self.assertGreater(row["value"], 0)
            self.assertEqual(row["peer"]["name"], "the file alone")

    def test_a_container_is_opened(self):
        row = self.bench("--only", "open")["nvme_open_2000_pages"]
        self.assertGreater(row["value"], 0)
        self.assertEqual(row["parameters"]["pages"], 2000)

    def test_a_profile_gets_the_disks_figures_and_keeps_the_rest(self):
        profile = self.folder / "profile.yaml"
        profile.write_text("version: 1\nlink: {bandwidth: 2.5e+10, latency: 1e-05}\n")
        rows = self.bench("--write-profile", profile)
        self.assertIn("--quick", self.said)  # that its figures are no measurement
        explained = json.loads(terrace("config", "explain", "--profile", profile, "--format",
                                       "json").stdout)["profile"]
        self.assertEqual(explained["link"]["bandwidth"], 2.5e10)
        self.assertEqual(explained["nvme"], {
            "read": rows["nvme_store_get_65536"]["value"],
            "write": rows["nvme_store_put_65536"]["value"],
            "latency": 4096 / rows["nvme_read_scattered_4096_d1"]["value"]})
        text = terrace("config", "explain", "--profile", profile).stdout
        self.assertRegex(text, r"(?m)^nvme read at \d+\.\d\d GB/s, written at ")

    def test_a_profile_needs_the_rows_it_is_made_of(self):
        profile = self.folder / "profile.yaml"
        process = terrace("bench", "nvme", "--quick", "--folder", self.disk, "--only", "store_get",
                          "--write-profile", profile)
        self.assertEqual(process.returncode, 2)
        self.assertIn("nvme_store_put_65536", process.stderr)
        self.assertFalse(profile.exists())

    def test_a_folder_that_is_not_there(self):
        process = terrace("bench", "nvme", "--quick", "--folder", self.folder / "none")
        self.assertEqual(process.returncode, 2)
        self.assertIn("no such folder", process.stderr)
        self.assertEqual(process.stderr.count("\n"), 1)


if __name__ == "__main__":
    unittest.main()
