"""Checks tools/gpu-check with programs that only pretend: what it says, and what it writes."""

import json
import os
import pathlib
import re
import shutil
import subprocess
import tempfile
import unittest

TOOLS = pathlib.Path(__file__).parents[2] / "tools"
RUN = "for i in 1 2 3 4 5 6 7 8 9; do echo '\"bits_per_token\": 1.5'; done"


class GpuCheck(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.bundle = pathlib.Path(folder.name)
        self.results = self.bundle / "results"
        for name in ("bin", "text"):
            (self.bundle / name).mkdir()
        shutil.copy(TOOLS / "gpu-check", self.bundle)
        (self.bundle / "origin").write_text("commit=abc\narchitecture=90\n")
        (self.bundle / "text" / "text.md").write_text("words")
        for name in ("contract", "kernels", "runtime", "engine"):
            self.program(f"cuda_{name}_test", "sleep 1")

    def program(self, name, script):
        path = self.bundle / "bin" / name
        path.write_text(f"#!/bin/bash\n{script}\n")
        path.chmod(0o755)

    def terrace(self, run):
        self.program("terrace", f'case "$1" in run) {run};; *) echo "{{}}";; esac')

    def check(self):
        return self.run_check(self.bundle / "gpu-check", self.results)

    @staticmethod
    def run_check(*command):
        return subprocess.run(
            command, cwd="/", text=True, capture_output=True,
            env=os.environ | {"GPU_CHECK_SOAK_SECONDS": "1"}, timeout=120, check=False)

    def summary(self):
        document = json.loads((self.results / "summary.json").read_text())
        self.assertEqual(document["commit"], "abc")
        self.assertIn("driver", document["device"])
        return {step["name"]: step["status"] for step in document["steps"]}

    def test_all_steps_are_taken(self):
        self.terrace(RUN)
        process = self.check()
        self.assertEqual(process.returncode, 0, process.stdout + process.stderr)
        steps = self.summary()
        self.assertEqual(set(steps), {"contract", "differential", "runtime", "engine",
                                      "same_as_host", "soak", "memcheck", "bench_pcie",
                                      "bench_kernels", "bench_run"})
        del steps["memcheck"]  # if the tool is there
        self.assertEqual(set(steps.values()), {"passed"})

    def test_a_failed_step_is_told_and_the_others_go_on(self):
        self.terrace(RUN.replace("1.5'", "'$RANDOM"))
        self.program("cuda_kernels_test", "exit 3")
        self.assertEqual(self.check().returncode, 1)
        steps = self.summary()
        self.assertEqual(steps["differential"], "failed")
        self.assertEqual(steps["same_as_host"], "failed")
        self.assertEqual(steps["bench_pcie"], "passed")

    def test_limits_add_up_to_less_than_ten_minutes(self):
        script = (TOOLS / "gpu-check").read_text()
        (soak,) = re.findall(r"GPU_CHECK_SOAK_SECONDS:-(\d+)", script)
        limits = re.findall(r"^ *step (\w+) (\d+|\$\(\(soak_seconds \+ \d+\)\)) ", script, re.M)
        self.assertEqual(len(limits), 10)
        seconds = [sum(map(int, re.findall(r"\d+", limit.replace("soak_seconds", soak))))
                   for _, limit in limits]
        seconds += map(int, re.findall(r"\btimeout (\d+) ", script))
        self.assertLess(sum(seconds), 600)

    def test_results_of_a_bundle_in_a_repository_go_there(self):
        self.terrace(RUN)
        for name, marks in (("elsewhere", ()), ("repository", ("CMakePresets.json", "bench"))):
            root = self.bundle / name
            bundle = root / "build" / "bundle"
            bundle.mkdir(parents=True)
            for part in ("bin", "text"):
                shutil.copytree(self.bundle / part, bundle / part)
            for part in ("gpu-check", "origin"):
                shutil.copy(self.bundle / part, bundle)
            if marks:
                (root / marks[0]).write_text("{}")
                (root / marks[1]).mkdir()
            self.assertEqual(self.run_check(bundle / "gpu-check").returncode, 0)
            where = root / "bench" / "results" if marks else bundle
            found = [path.parent for path in where.glob("*/summary.json")]
            self.assertEqual(len(found), 1, name)
            self.assertRegex(found[0].name, r"^[a-z0-9-]+-\d{8}T\d{6}Z$")

    def test_without_a_device_there_is_one_line(self):
        self.terrace("echo 'terrace: no driver' >&2; exit 1")
        process = self.check()
        self.assertEqual(process.returncode, 1)
        self.assertEqual(process.stderr, "gpu-check: no GPU to check: terrace: no driver\n")
        self.assertFalse(self.results.exists())

    def test_outside_a_bundle_there_is_one_line(self):
        process = subprocess.run([TOOLS / "gpu-check"], text=True, capture_output=True, check=False)
        self.assertEqual(process.returncode, 1)
        self.assertIn("gpu-bundle", process.stderr)


if __name__ == "__main__":
    unittest.main()
