"""Checks that the program bears what surrounds it: streams that cannot be written, containers that
make it the first process, foreign variables, masks of files, small limits, links that stand
still."""

import json
import os
import pathlib
import resource
import signal
import subprocess
import tempfile
import time
import unittest

from program import PROGRAM, clean_environment, ended_by, terrace

GOOD = ("run", "--context", "200", "--decode", "1", "--policy", "streaming")
ENDLESS = ("run", "--context", "4000", "--decode", "3000", "--policy", "wave")


def start(*arguments, closed=None, environment=None, **options):
    """Starts the program; `closed` is the number of a stream that it does not get."""
    def close():
        os.close(closed)

    return subprocess.Popen([PROGRAM, *map(str, arguments)], cwd="/",
                            env=clean_environment() | (environment or {}),
                            preexec_fn=close if closed is not None else None, **options)


def status(*arguments, **options):
    with start(*arguments, **options) as process:
        return process.wait(timeout=1800)


class FolderTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)


class Streams(FolderTest):
    def test_results_that_are_lost_are_a_failure(self):
        explain = ["config", "explain"]
        for arguments in (["--version"], ["--help"], ["run", "--help"], explain, GOOD):
            with open("/dev/full", "w") as full:
                process = terrace(*arguments, stdout=full)
            self.assertEqual(process.returncode, 1, arguments)
            self.assertIn("cannot write the results: No space left on device", process.stderr)
        closed = start(*GOOD, closed=1, stderr=subprocess.PIPE, text=True)
        told = closed.communicate(timeout=1800)[1]
        self.assertEqual(closed.returncode, 1)
        self.assertIn("cannot write the results: Bad file descriptor", told)

    def test_messages_that_are_lost_change_nothing(self):
        null = subprocess.DEVNULL
        warns = {"TERRACE_SLIP": "1"}
        with open("/dev/full", "w") as full:
            self.assertEqual(status("run", "--model", "none", stderr=full), 1)
            self.assertEqual(status("fly", stderr=full), 2)
            self.assertEqual(status(*GOOD, environment=warns, stdout=null, stderr=full), 0)
        self.assertEqual(status("run", "--model", "none", closed=2), 1)
        self.assertEqual(status(*GOOD, environment=warns, closed=2, stdout=null), 0)

    def test_no_file_takes_the_place_of_a_closed_stream(self):
        requests = self.folder / "requests.jsonl"
        requests.write_text('{"input_length": 512, "hash_ids": [1]}\n')
        trace = self.folder / "t"
        convert = ("trace", "convert", requests, trace, "--from", "mooncake")  # it warns
        for stream in (0, 1, 2):
            self.assertEqual(status(*convert, closed=stream, stderr=subprocess.DEVNULL), 0)
            whole = trace.read_bytes()
            self.assertTrue(whole.startswith(b"TRRCTRC"), stream)
            self.assertNotIn(b"warning", whole)

    def test_a_broken_pipe_ends_the_program_or_fails_it(self):
        for ignored in (False, True):
            reading, writing = os.pipe()
            os.close(reading)
            set_action = signal.SIG_IGN if ignored else signal.SIG_DFL
            process = subprocess.Popen(
                [PROGRAM, "config", "explain"], stdout=writing, stderr=writing,
                env=clean_environment(), restore_signals=False,
                preexec_fn=lambda action=set_action: signal.signal(signal.SIGPIPE, action))
            os.close(writing)
            status = process.wait(timeout=1800)
            if ignored:
                self.assertEqual(status, 1)
            else:
                self.assertEqual(ended_by(status), signal.SIGPIPE)


def children_of(process):
    path = pathlib.Path(f"/proc/{process.pid}/task/{process.pid}/children")
    return [int(word) for word in path.read_text().split()] if path.exists() else []


def may_unshare():
    return subprocess.run(["unshare", "-p", "-f", "--mount-proc", "true"], check=False,
                          stderr=subprocess.DEVNULL).returncode == 0


def first_process(*arguments, **options):
    """Starts the program as the first process of a container."""
    return subprocess.Popen(["unshare", "-p", "-f", "--mount-proc", PROGRAM, *map(str, arguments)],
                            cwd="/", env=clean_environment(), **options)


class Containers(FolderTest):
    def test_a_signal_ends_the_first_process_at_once(self):
        if not may_unshare():
            self.skipTest("may make no namespace of processes")
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            trace = self.folder / "t"
            process = first_process(*ENDLESS, "--trace", trace, stdout=subprocess.DEVNULL,
                                    stderr=subprocess.DEVNULL)
            while not list(self.folder.iterdir()):  # until it writes
                self.assertIsNone(process.poll())
                time.sleep(0.01)
            os.kill(children_of(process)[0], number)
            self.assertEqual(process.wait(timeout=1800), 128 + number)
            self.assertEqual(list(self.folder.iterdir()), [])

    def test_writers_of_one_file_never_mix(self):
        if not may_unshare():
            self.skipTest("may make no namespace of processes")
        traces = []
        for name, factor in (("a", 7), ("b", 1000003)):
            ids = ([(i * factor + j) % 9973 for j in range(20)] for i in range(3000))
            lines = (f'{{"input_length": 10240, "hash_ids": {each}}}\n' for each in ids)
            requests = self.folder / f"{name}.jsonl"
            requests.write_text("".join(lines))
            trace = self.folder / name
            self.assertEqual(terrace("trace", "convert", "-q", requests, trace, "--from",
                                     "mooncake").returncode, 0)
            self.assertEqual(terrace("trace", "convert", trace, f"{trace}.csv", "--to",
                                     "csv").returncode, 0)
            traces.append(trace)
        wanted = [pathlib.Path(f"{trace}.csv").read_bytes() for trace in traces]
        for _ in range(5):
            both = [first_process("trace", "convert", trace, self.folder / "x.csv", "--to", "csv")
                    for trace in traces]
            self.assertEqual([process.wait(timeout=1800) for process in both], [0, 0])
            self.assertIn((self.folder / "x.csv").read_bytes(), wanted)

    def test_variables_of_a_service_are_not_the_users(self):
        service = {"TERRACE_SERVICE_HOST": "10.0.0.1", "TERRACE_SERVICE_PORT": "80",
                   "TERRACE_PORT": "tcp://10.0.0.1:80", "TERRACE_PORT_80_TCP_ADDR": "10.0.0.1"}
        for arguments in (("config", "validate", "--strict"), ("config", "explain"), ("doctor",)):
            process = terrace(*arguments, environment=service)
            self.assertEqual((process.returncode, process.stderr), (0, ""), arguments)

    def test_a_variable_that_sets_nothing_is_a_warning(self):
        slip = {"TERRACE_CACHE_POLCY": "lru"}
        warned = terrace("config", "validate", environment=slip)
        self.assertEqual(warned.returncode, 0)
        self.assertEqual(warned.stderr, "terrace: warning: TERRACE_CACHE_POLCY: no key has this "
                         "variable; did you mean TERRACE_CACHE_POLICY?\n")
        self.assertEqual(terrace("config", "validate", "-q", environment=slip).stderr, "")
        row = json.loads(terrace("doctor", "--format", "json", environment=slip).stdout)["rows"][-1]
        self.assertEqual((row["check"], row["status"]), ("variables", "warn"))
        self.assertIn("did you mean TERRACE_CACHE_POLICY?", row["found"])
        refused = terrace("config", "validate", "--strict", environment=slip)
        self.assertEqual(refused.returncode, 2)
        self.assertIn("TERRACE_CACHE_POLCY", refused.stderr)


class Masks(FolderTest):
    def write_all(self, umask):
        """Has the program write a file of each sort, with files masked; returns their modes."""
        run = (*GOOD[:-1], "pqcache", "--trace", self.folder / "trace", "--timeline",
               self.folder / "timeline")
        tune = ("tune", "--trace", self.folder / "trace", "--device-memory", "4MiB", "--policies",
                "lru", "--write-config", self.folder / "config", "--report", self.folder / "page")
        convert = ("trace", "convert", self.folder / "trace", self.folder / "csv", "--to", "csv")
        profile = ("bench", "pcie", "--quick", "--write-profile", self.folder / "profile")
        for command in (run, tune, convert, profile):
            self.assertEqual(status(*command, umask=umask, stdout=subprocess.DEVNULL,
                                    stderr=subprocess.DEVNULL), 0)
        return {file.name: file.stat().st_mode & 0o777 for file in self.folder.iterdir()}

    def test_new_files_follow_the_mask_and_old_ones_keep_their_mode(self):
        names = ("trace", "timeline", "config", "page", "csv", "profile")
        self.assertEqual(self.write_all(0o077), dict.fromkeys(names, 0o600))
        modes = dict(zip(names, (0o640, 0o600, 0o644, 0o664, 0o660, 0o604), strict=True))
        for name, mode in modes.items():
            (self.folder / name).chmod(mode)
        self.assertEqual(self.write_all(0o027), modes)


class SmallLimits(unittest.TestCase):
    def limited(self, *arguments, **limits):
        def apply():
            for name, value in limits.items():
                resource.setrlimit(getattr(resource, name), (value, value))

        return subprocess.run([PROGRAM, *arguments], cwd="/", env=clean_environment(), text=True,
                              capture_output=True, timeout=1800, check=False, preexec_fn=apply)

    def test_a_small_stack_is_no_limit(self):
        for threads in ("device=1,host=1", "device=2,host=2"):
            process = self.limited("run", "--context", "600", "--decode", "2", "--policy", "wave",
                                   "--threads", threads, "-q", RLIMIT_STACK=64 << 10)
            self.assertEqual((process.returncode, process.stderr), (0, ""), threads)

    def test_little_address_space_ends_in_one_line(self):
        sizes = [size << 20 for size in (20, 50, 80, 100, 130, 200, 400, 800, 1600, 3200)]
        for size in sizes:
            if self.limited("--version", RLIMIT_AS=size).returncode != 0:
                continue  # the system cannot even load the program
            process = self.limited("run", "--context", "2000", "--decode", "2", "--policy", "wave",
                                   "--threads", "device=2,host=2", RLIMIT_AS=size)
            if process.returncode == 0:
                break
            self.assertEqual(process.returncode, 1, (size, process.stderr))
            self.assertEqual(process.stderr.count("\n"), 1, (size, process.stderr))
            self.assertTrue(process.stderr.startswith("terrace: "), (size, process.stderr))

    def test_few_open_files_end_in_one_line(self):
        for count in range(4, 12):
            process = self.limited("run", "--context", "100", "--decode", "1", "--policy", "wave",
                                   RLIMIT_NOFILE=count)
            if process.returncode not in (0, 127):
                self.assertEqual(process.returncode, 1, (count, process.stderr))
                self.assertEqual(process.stderr.count("\n"), 1, (count, process.stderr))

    def test_counts_the_cores_that_it_may_use(self):
        one = {min(os.sched_getaffinity(0))}
        process = subprocess.run(
            [PROGRAM, "doctor"], text=True, capture_output=True, check=False,
            env=clean_environment(), preexec_fn=lambda: os.sched_setaffinity(0, one))
        self.assertRegex(process.stdout, r"numa +1 cores?, ")


class StandingStill(unittest.TestCase):
    def test_a_run_ends_by_its_deadline(self):
        for policy in ("streaming", "wave", "pqcache"):
            for link in ("link.latency=1000s", "link.bandwidth=1B/s"):
                process = terrace("run", "--context", "600", "--decode", "3", "--policy", policy,
                                  "--set", link, "--set", "deadline=500ms", "-q")
                self.assertEqual(process.returncode, 1, (policy, link))
                self.assertIn("is not done in time", process.stderr)
                self.assertEqual(process.stderr.count("\n"), 1)
