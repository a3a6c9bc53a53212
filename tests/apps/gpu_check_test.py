"""Checks tools/gpu-check with programs that only pretend: what it says, and what it writes."""

import json
import os
import pathlib
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
        for name in ("contract", "kernels", "runtime"):
            self.program(f"cuda_{name}_test", "sleep 1")

    def program(self, name, script):
        path = self.bundle / "bin" / name
        path.write_text(f"#!/bin/bash\n{script}\n")
        path.chmod(0o755)

    def terrace(self, run):
        self.program("terrace", f'case "$1" in run) {run};; *) echo "{{}}";; esac')

    def check(self):
        return subprocess.run(
            [self.bundle / "gpu-check", self.results], cwd="/", text=True, capture_output=True,
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
        self.assertEqual(set(steps), {"contract", "differential", "runtime", "same_as_host", "soak",
                                      "memcheck", "bench_pcie", "bench_run"})
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
