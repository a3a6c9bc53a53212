"""Checks `terrace bench pcie`: the host's link has figures, a device's have one or a reason."""

import json
import pathlib
import tempfile
import unittest

from program import terrace

DIRECTIONS = ("host_to_device", "device_to_host")


class Pcie(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def bench(self, *arguments):
        process = terrace("bench", "pcie", "--quick", "--format", "json", *arguments)
        self.assertEqual(process.returncode, 0, process.stderr)
        self.said = process.stderr
        document = json.loads(process.stdout)
        self.assertEqual(document["command"], "bench pcie")
        return {row["name"]: row for row in document["rows"]}

    def test_the_hosts_link_is_measured(self):
        rows = self.bench("--only", "host_")
        for direction in DIRECTIONS:
            for name in (f"host_copy_{direction}_1048576", f"kv_scatter_{direction}_host_256",
                         f"kv_scatter_{direction}_host_1048576"):
                self.assertGreater(rows[name]["value"], 0, rows[name])
                self.assertEqual(rows[name]["unit"], "B/s")
                self.assertEqual(rows[name]["parameters"]["link"], "memcpy")
            self.assertGreater(rows[f"kv_scatter_{direction}_host_256"]["ratio"], 0)

    def test_a_device_has_figures_or_a_reason(self):
        rows = self.bench("--only", "_ce")
        for direction in DIRECTIONS:
            row = rows[f"{direction}_memcpy_ce"]
            self.assertEqual(row["value"] is None, bool(row.get("reason")), row)
            if row["value"] is not None:
                self.assertGreater(rows[f"kv_scatter_{direction}_ce_4096"]["value"], 0)

    def test_ways_are_compared_like_with_like(self):
        rows = self.bench("--only", "device")
        for direction in DIRECTIONS:
            for by in ("ce", "sm"):
                self.assertIn(f"{direction}_bidirectional_memcpy_{by}", rows)
                for lie in ("scatter", "contiguous"):
                    self.assertIn(f"kv_{lie}_{direction}_{by}_4096", rows)
        self.assertNotIn("host_to_device_latency", rows)  # not what nvbandwidth calls so

    def test_quick_rows_say_what_was_moved(self):
        rows = self.bench("--only", "host_to_device")
        copies = {name: row["parameters"]["bytes"] for name, row in rows.items()
                  if name.startswith("host_copy_host_to_device")}
        self.assertEqual(max(copies.values()), 1 << 22)
        for name, moved in copies.items():
            self.assertEqual(name, f"host_copy_host_to_device_{moved}")
        parameters = rows["kv_scatter_host_to_device_host_4096"]["parameters"]
        self.assertEqual((parameters["row_bytes"], parameters["moved_bytes"]), (4096, 1 << 20))
        parameters = rows["kv_scatter_host_to_device_host_1048576"]["parameters"]
        self.assertEqual(parameters["moved_bytes"], 1 << 20)

    def test_an_imitated_link_takes_its_time(self):
        row = self.bench("--only", "host_copy_host_to_device_1048576", "--set",
                         "link.bandwidth=1GB/s")["host_copy_host_to_device_1048576"]
        self.assertEqual(row["parameters"]["link"], "imitated")
        self.assertLess(row["value"], 1.05e9)

    def test_a_profile_gets_its_link_and_keeps_the_rest(self):
        profile = self.folder / "profile.yaml"
        profile.write_text("version: 1\nhost: {memory_read: 2.5e+10}\n")
        report = self.folder / "report.html"
        self.bench("--write-profile", str(profile), "--report", str(report))
        self.assertIn("--quick", self.said)  # that its figures are no measurement
        text = profile.read_text()
        for word in ("memory_read", "bandwidth", "latency"):
            self.assertIn(word, text)
        page = report.read_text()
        self.assertIn("<svg", page)
        self.assertIn("kv_scatter_host_to_device_host_256", page)
        self.assertIn("small sizes, which say only that it works</p>", page)
        self.assertIn("bench pcie --quick", page)
        self.assertIn(">size of a row<", page)
        self.assertIn(">rate, ", page)
        self.assertLessEqual(page.count("not measured"), 3, "a line for each reason")
        self.assertEqual(sorted(path.name for path in self.folder.iterdir()),
                         ["profile.yaml", "report.html"])

    def test_a_profile_needs_the_rows_it_is_made_of(self):
        process = terrace("bench", "pcie", "--quick", "--only", "device_to_host", "--write-profile",
                          str(self.folder / "profile.yaml"))
        self.assertEqual(process.returncode, 2)
        self.assertIn("--only", process.stderr)

    def test_rows_that_are_not_there(self):
        process = terrace("bench", "pcie", "--only", "fly")
        self.assertEqual(process.returncode, 2)
        self.assertEqual(process.stderr.count("\n"), 1)


if __name__ == "__main__":
    unittest.main()
