"""bench/peers/disk.py with made-up stores, and with those of this machine where they are: nothing
is installed. Each class is one test."""

import contextlib
import io
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest
from unittest import mock

from program import InAFolder, assert_refuses

PEERS = pathlib.Path(__file__).parents[2] / "bench" / "peers"
sys.path.insert(0, str(PEERS))
import disk  # noqa: E402
import disk_figures  # noqa: E402
import disk_turns  # noqa: E402

PROGRAM = pathlib.Path(os.environ.get("TERRACE_PROGRAM", "")).with_name("disk_terrace")
LOAD = disk_turns.Load(page_bytes=65536, pages=24, batch_pages=5, batches=3, reads=2)
# A store with a file a page. Its first argument says how it behaves: `checksum` has it look at the
# bytes that it reads, `lose` has it take a page for another one, `absent` has it end.
STORE = """
import json, os, pathlib, sys, time, zlib
kind, folder = sys.argv[1], pathlib.Path(sys.argv[2])
size, count = int(sys.argv[3]), int(sys.argv[4])
if kind == "absent":
    sys.exit("no such library")
pages = [os.urandom(size) for _ in range(count)]
read = list(pages)

def get(page):
    content = (folder / str(page)).read_bytes()
    if kind == "checksum" and zlib.crc32(content) != zlib.crc32(pages[page]):
        return "damaged"
    read[page] = content

def answer(what, page):
    if what == "write":
        for number, content in enumerate(pages):
            (folder / str(number)).write_bytes(content)
        return {"seconds": 0.5, "cpu_seconds": 0.25}
    if what == "read":
        for number in range(count):
            get(number)
        if kind == "lose":
            read[3] = pages[4]
        return {"seconds": 0.25, "cpu_seconds": 0.125}
    if what == "check":
        return {"same": read == pages}
    if what == "bytes":
        return {"hex": pages[page][size // 2:size // 2 + 64].hex()}
    return {"error": get(page), "same": read[page] == pages[page]}

print(json.dumps("1.0 (made up)"), flush=True)
for line in sys.stdin:
    what, number = (*line.split(), "0")[:2]
    print(json.dumps(answer(what, int(number))), flush=True)
"""


def sample(rate, cpu):
    return {"version": "1", "read": rate, "written": [1.0], "read_cpu": cpu, "read_kernel": [0.0]}


class WithAStore(InAFolder):
    def setUp(self):
        super().setUp()
        self.script = self.folder / "store"
        self.script.write_text(f"#!{sys.executable}\n{STORE}")
        self.script.chmod(0o755)
        self.pages = self.folder / "pages"
        self.pages.mkdir()


class DiskTurns(WithAStore):
    """One turn of a store, and its figures."""

    def turn(self, kind):
        return disk_turns.store_turn([self.script, kind], LOAD, self.pages)

    def test_rates_are_of_all_bytes(self):
        turn = self.turn("checksum")
        gigabytes = 65536 * 24 * 1e-9
        self.assertEqual(turn["version"], "1.0 (made up)")
        self.assertEqual([len(turn[key]) for key in ("written", "read", "read_cpu", "read_kernel")],
                         [1, 2, 2, 2])
        self.assertAlmostEqual(turn["written"][0], gigabytes / 0.5)
        self.assertAlmostEqual(turn["read"][1], gigabytes / 0.25)
        self.assertAlmostEqual(turn["read_cpu"][0], 0.125 / gigabytes)
        self.assertGreaterEqual(min(turn["read_kernel"]), 0)

    def test_a_flipped_bit_is_noticed_or_not(self):
        self.assertEqual(self.turn("checksum")["flipped"], "noticed: damaged")
        self.assertEqual(self.turn("plain")["flipped"], "not noticed: wrong bytes, success")
        (self.pages / "9").write_bytes(b"short")
        with self.assertRaisesRegex(disk_turns.Failed, "^the page is in none of its files$"):
            disk_turns.flip_bit(self.pages, b"not there" * 8)

    def test_wrong_bytes_are_no_figure(self):
        with self.assertRaisesRegex(disk_turns.Failed, "^read other bytes than were written$"):
            self.turn("lose")

    def test_a_store_that_ends_says_why(self):
        with self.assertRaisesRegex(disk_turns.Failed, "^no such library$"):
            self.turn("absent")

    def test_a_store_that_does_not_answer_is_given_up(self):
        with (mock.patch.object(disk_turns, "PATIENCE_SECONDS", 0),
              self.assertRaisesRegex(disk_turns.Failed, "^no answer in 0 s$")):
            disk_turns.StoreProcess([sys.executable, "-c", "input()"], self.pages)

    def test_fio_that_is_not_there_is_named(self):
        with (mock.patch.dict(os.environ, {"PATH": str(self.folder)}),
              self.assertRaisesRegex(disk_turns.Failed, "^fio is not installed; ")):
            disk_turns.fio_turn(LOAD, self.pages)


class DiskFigures(unittest.TestCase):
    """Medians, ratios and goals."""

    def rows(self):
        turns = {"Terrace": [sample([3.0, 1.0, 2.0], [0.2, 0.1, 0.1])],
                 "fio": [sample([2.5], [0.1])],
                 "NIXL POSIX": [sample([1.0], [0.4])],
                 "NIXL POSIX, sleeping": [sample([1.6], [0.2])]}
        rows = [disk_figures.row_of(name, "1", 1 << 20, its) for name, its in turns.items()]
        disk_figures.add_ratios(rows)
        return rows

    def test_ratios_above_one_are_terraces_gain(self):
        ours, fio, nixl, _ = self.rows()
        self.assertEqual(ours["read"], {"median": 2.0, "least": 1.0, "most": 3.0, "samples": 3})
        self.assertNotIn("ratio", ours["read"])
        self.assertAlmostEqual(fio["read"]["ratio"], 0.8)
        self.assertAlmostEqual(nixl["read"]["ratio"], 2.0)
        self.assertAlmostEqual(nixl["read_cpu"]["ratio"], 4.0)

    def test_goals_are_held_against_the_best_of_a_peers_rows(self):
        nixl, lmcache, _, fio, cpu = disk_figures.goals_of(self.rows())
        self.assertAlmostEqual(nixl["seen"], 1.25)
        self.assertTrue(nixl["met"])
        self.assertEqual((lmcache["seen"], lmcache["met"]), (None, None))
        self.assertAlmostEqual(fio["seen"], 0.8)
        self.assertFalse(fio["met"])
        self.assertEqual((cpu["seen"], cpu["met"]), (0.1, True))

    def test_a_table_has_each_row_and_goal(self):
        rows = self.rows() + [{"name": "vLLM fs", "version": "", "page_bytes": 1 << 20,
                               "reason": "no vllm"}]
        text = disk_figures.table([rows])
        self.assertIn("pages of 1024 KiB", text)
        self.assertRegex(text, r"Terrace +2\.00 \(1\.00-3\.00\) ")
        self.assertRegex(text, r"fio +2\.50 \(2\.50-2\.50\) 0\.80x ")
        self.assertRegex(text, r"vLLM fs +not measured: no vllm")
        self.assertRegex(text, r"raw_block's +not measured \(goal 1\.5\)")
        self.assertRegex(text, r"fio's +0\.800 \(goal 0\.95\) MISSED")


class DiskComparison(WithAStore):
    """The whole of disk.py, with a made-up store as Terrace's program."""

    def main(self, *arguments):
        contenders = [disk.Contender("Terrace", ("checksum",)), disk.Contender("other", ("plain",)),
                      disk.Contender("missing", ("Class",), disk.DISK_PEERS)]
        lacking = {disk.DISK_PEERS: disk.environments.Environment(self.script, "no network")}
        file = self.folder / "rows.json"
        words = ["disk", "--program", str(self.script), "--folder", str(self.pages), "--mib", "2",
                 "--page-kib", "64,32", "--rounds", "2", "--json", str(file), *arguments]
        with (mock.patch.object(disk, "CONTENDERS", contenders),
              mock.patch.object(disk, "make_environments", lambda options: lacking),
              mock.patch.object(sys, "argv", words),
              contextlib.redirect_stdout(io.StringIO()) as printed,
              contextlib.redirect_stderr(io.StringIO()) as errors):
            disk.main()
        return printed.getvalue(), errors.getvalue(), json.loads(file.read_text())

    def test_all_take_turns_and_leave_nothing(self):
        text, errors, document = self.main("--reads", "1")
        turns = [line.split(", ")[-1] for line in errors.splitlines()]
        self.assertEqual(turns, ["Terrace", "other", "missing", "Terrace", "other"] * 2)
        self.assertEqual([(row["name"], row["page_bytes"]) for row in document["rows"]],
                         [(name, size) for size in (65536, 32768)
                          for name in ("Terrace", "other", "missing")])
        self.assertEqual(document["rows"][0]["read"]["samples"], 2)
        self.assertEqual(document["rows"][2]["reason"], "no network")
        self.assertEqual(len(document["goals"]), 2 * len(disk_figures.GOALS))
        self.assertIn("missing                     not measured: no network", text)
        self.assertEqual(list(self.pages.iterdir()), [])

    def test_rows_can_be_chosen(self):
        _, _, document = self.main("--only", "miss", "--page-kib", "64")
        self.assertEqual([row["name"] for row in document["rows"]], ["Terrace", "missing"])

    def test_what_is_wrong_ends_in_one_line(self):
        for word, *arguments in (("fly", "--only", "fly"), ("at least 1", "--rounds", "0"),
                                 ("/nowhere", "--program", "/nowhere")):
            assert_refuses(self, PEERS / "disk.py", word, "--program", self.script, *arguments)


class RealStores(WithAStore):
    """Turns of the stores of this machine, on few pages."""

    def check(self, one, found):
        options = mock.Mock(program=PROGRAM)
        with tempfile.TemporaryDirectory(dir=self.pages) as folder:
            turn = disk.turn_of(one, options, found)(LOAD, pathlib.Path(folder))
        self.assertEqual([len(turn["written"]), len(turn["read"])], [1, LOAD.reads])
        self.assertGreater(min(turn["read"] + turn["written"]), 0)
        return turn


class DiskStores(RealStores):
    """Terrace's program."""

    def test_terrace_notices_a_flipped_bit(self):
        for one in disk.CONTENDERS[:2]:
            with self.subTest(one.name):
                self.assertRegex(self.check(one, {})["flipped"],
                                 "^noticed: store nvme: page .* is not what was written$")

    def test_the_program_says_what_is_wrong(self):
        for status, word, *arguments in ((2, "disk_terrace plain", self.folder),
                                         (1, "/nowhere", "plain", "/nowhere", 4096, 2, 1, 1)):
            answer = subprocess.run([PROGRAM, *map(str, arguments)], check=False,
                                    capture_output=True, text=True)
            self.assertEqual((answer.returncode, answer.stdout), (status, ""))
            self.assertIn(word, answer.stderr)


class DiskPeers(RealStores):
    """The peers, where they are installed."""

    def test_peers(self):
        found = {disk.DISK_PEERS: disk.environments.DISK_PEERS.find(),
                 disk.ENGINES: disk.environments.ENGINES.find()}
        there = [one for one in disk.CONTENDERS
                 if one.environment and not found[one.environment].lacks]
        if not there:
            self.skipTest("no peer is installed")
        for one in there:
            with self.subTest(one.name):
                self.check(one, found)


if __name__ == "__main__":
    unittest.main()
