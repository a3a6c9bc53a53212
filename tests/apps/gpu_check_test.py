"""Checks tools/gpu-check with programs that only pretend: what it says, and what it writes."""

import fnmatch
import json
import os
import pathlib
import re
import shutil
import subprocess
import tempfile
import unittest

ROOT = pathlib.Path(__file__).parents[2]
TOOLS = ROOT / "tools"
SANITIZED = {"memcheck", "racecheck", "synccheck"}
ESSENTIAL = {"headline", "kernels", "contract", "differential", "runtime", "engine", "same_as_host",
             "soak", "bench_pcie", "bench_run_offload", "bench_run_resident_first"}
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
            self.program(f"cuda_{name}_test", "sleep 0.1")
        self.tool("python3", "exit 1")

    def program(self, name, script, folder="bin"):
        path = self.bundle / folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"#!/bin/bash\n{script}\n")
        path.chmod(0o755)

    def tool(self, name, script):
        """A program of the machine's own."""
        self.program(name, script, "tools")

    def terrace(self, run):
        self.program("terrace", f'case "$1" in run) {run};; *) echo "{{}}";; esac')

    def check(self, **environment):
        return self.run_check(self.bundle / "gpu-check", self.results, **environment)

    def run_check(self, *command, **environment):
        environment = {"GPU_CHECK_SOAK_SECONDS": "1",
                       "PATH": f"{self.bundle / 'tools'}:/usr/bin:/bin"} | environment
        return subprocess.run(command, cwd="/", text=True, capture_output=True,
                              env=os.environ | environment, timeout=120, check=False)

    def summary(self):
        document = json.loads((self.results / "summary.json").read_text())
        self.assertEqual(document["commit"], "abc")
        self.assertIn("driver", document["device"])
        self.steps = {step["name"]: step for step in document["steps"]}
        return {name: step["status"] for name, step in self.steps.items()}

    def test_all_steps_are_taken(self):
        self.terrace(RUN)
        for tool in ("compute-sanitizer", "nvbandwidth", "python3", "c++"):
            self.tool(tool, "exit 0")
        for name in ("lib/libfmt.so", "sdpa.py", "python/libterrace.so", "python/src/step.cpp",
                     "python/terrace/__init__.py", "python/tests/test_cuda.py"):
            self.program(name, "", "")
        process = self.check()
        self.assertEqual(process.returncode, 0, process.stdout + process.stderr)
        steps = self.summary()
        self.assertEqual(set(steps), ESSENTIAL | SANITIZED | {"python", "nvbandwidth",
                                                          "headline_sdpa", "bench_run_profile"})
        self.assertEqual(set(steps.values()), {"passed"})
        document = json.loads((self.results / "summary.json").read_text())
        self.assertGreater(document["unpacked_bytes"], 0)

    def test_what_is_not_installed_is_not_available(self):
        self.terrace(RUN)
        self.assertEqual(self.check().returncode, 0)
        steps = self.summary()
        for name in SANITIZED | {"nvbandwidth", "python", "headline_sdpa"}:
            self.assertEqual(steps[name], "not available")
            self.assertTrue(self.steps[name]["reason"])

    def test_a_sanitizer_that_refuses_the_device_is_not_available(self):
        self.terrace(RUN)
        for refusal in ("echo '========= Error: Device not supported'; exit 0",
                        "echo '========= Error: no debugger for this device'; exit 1",
                        "echo '========= Error: The Sanitizer will be disabled'; exit 9"):
            with self.subTest(refusal):
                # This stand-in accepts runs that touch no device.
                self.tool("compute-sanitizer",
                          f'case "$*" in *cuda_kernels_test*) {refusal};; esac')
                self.assertEqual(self.check().returncode, 0)
                self.assertEqual({self.summary()[name] for name in SANITIZED}, {"not available"})
                self.assertIn("Error", self.steps["memcheck"]["reason"])

    def test_what_a_sanitizer_finds_is_a_failure(self):
        self.terrace(RUN)
        self.tool("compute-sanitizer", "exit 9")
        self.assertEqual(self.check().returncode, 1)
        self.assertEqual({self.summary()[name] for name in SANITIZED}, {"failed"})

    def test_sanitizers_run_tests_that_are_there(self):
        self.terrace(RUN)
        self.tool("compute-sanitizer", f'echo "$*" >> {self.bundle}/asked')
        self.assertEqual(self.check().returncode, 0)
        patterns = set(re.findall(r"[\w*]+\.[\w*]+|\*\w+",
                                  " ".join(re.findall(r"--gtest_filter=(\S+)",
                                                      (self.bundle / "asked").read_text()))))
        listed = (ROOT / "tests" / "kernels" / "CMakeLists.txt").read_text()
        (sources,) = re.findall(r"set\(ops_tests([^)]+)\)", listed)
        tests = [".".join(test) for source in sources.split() for test in re.findall(
            r"^TEST\((\w+), (\w+)\)", (ROOT / "tests" / "kernels" / source).read_text(),
            re.M)]
        self.assertGreaterEqual(len(patterns), 8)
        for pattern in patterns:
            self.assertTrue(fnmatch.filter(tests, pattern), pattern)

    def test_goals_are_measured_at_their_sizes(self):
        self.terrace(f'echo "$*" >> {self.bundle}/asked; {RUN}')
        self.assertEqual(self.check().returncode, 0)
        asked = (self.bundle / "asked").read_text()
        for placement in ("offload", "resident_first"):
            self.assertRegex(asked, f"--placement {placement} --context 32768 --budget 1024 "
                                    "--decode 64 --policy full,pqcache")
        texts = [ROOT / "README.md", ROOT / "HACKING.md",
                 *(ROOT / "docs" / "decisions").glob("0*.md")]
        self.assertGreater(sum(text.stat().st_size for text in texts), 32768 + 64)

    def test_the_headline_comes_first_and_can_come_alone(self):
        self.program("terrace", f'echo "$*" >> {self.bundle}/asked; echo "{{}}"')
        self.program("sdpa.py", "", "")
        self.tool("python3", f'echo "$*" >> {self.bundle}/python; exit 0')
        process = self.check(GPU_CHECK_ONLY="headline")
        self.assertEqual(process.returncode, 0, process.stdout + process.stderr)
        self.assertEqual(self.summary(), {"headline": "passed", "headline_sdpa": "passed"})
        asked = (self.bundle / "asked").read_text()
        for context in (131072, 32768):
            self.assertRegex(asked, "bench serving --headline --backend cuda "
                                    f"--context {context} --budget 2048 .*threads.host=[1-9]")
            self.assertTrue((self.results / f"headline-{context}.json").exists())
        self.assertRegex((self.bundle / "python").read_text(),
                         r"sdpa\.py \S*headline-131072\.json \S*headline-32768\.json")

    def test_a_step_that_there_is_not_has_one_line(self):
        self.terrace(RUN)
        process = self.check(GPU_CHECK_ONLY="headlines")
        self.assertEqual((process.returncode, process.stdout), (1, ""))
        self.assertEqual(process.stderr.count("\n"), 1)
        self.assertIn("GPU_CHECK_ONLY=headlines", process.stderr)

    def test_clocks_are_read_while_a_step_runs(self):
        self.terrace(RUN)
        self.program("cuda_runtime_test", "sleep 1")
        self.tool("nvidia-smi", """
case "$*" in
  *--loop*) for clock in 300 1980 1900; do echo "$clock, 2619, 310.5, 45, 5, 16"; done
    exec sleep 60;;
  *) echo "Model X, 580.1, 0000:01:00.0, 345, 2619, 1980, 2619, 700, 1, 16";;
esac""")
        self.assertEqual(self.check().returncode, 0)
        self.summary()
        self.assertEqual(self.steps["runtime"]["clocks"],
                         {"sm_mhz": 1900, "memory_mhz": 2619, "power_watts": 310.5,
                          "temperature": 45, "pcie_generation": 5, "pcie_width": 16})

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
        (every,) = re.findall(r"GPU_CHECK_SECONDS:-(\d+)", script)
        (kill,) = re.findall(r"--kill-after=(\d+)", script)
        self.assertLess(int(every) + int(kill), 600)
        always, _ = script.split("# Where the time allows.")
        limits = re.findall(r'^ *step "?([\w$]+)"? (\d+|\$\(\(soak_seconds \+ \d+\)\)) ', always,
                            re.M)
        self.assertEqual(len(limits), 9)  # one of them for both placements
        self.assertLess(sum(int(seconds) for name, seconds in limits if "headline" in name), 300)
        seconds = [sum(map(int, re.findall(r"\d+", limit.replace("soak_seconds", soak)))) *
                   (2 if "placement" in name else 1) for name, limit in limits]
        seconds += map(int, re.findall(r"\btimeout (\d+) ", always.split("refuses_sanitizer")[0]))
        self.assertLessEqual(sum(seconds), int(every))

    def test_a_step_that_no_longer_fits_is_left_out(self):
        self.terrace(RUN)
        self.assertEqual(self.check(GPU_CHECK_SECONDS="39").returncode, 0)
        steps = self.summary()
        self.assertEqual(steps["contract"], "passed")
        self.assertEqual(steps["bench_run_offload"], "not available")
        self.assertIn("left", self.steps["bench_run_offload"]["reason"])

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
