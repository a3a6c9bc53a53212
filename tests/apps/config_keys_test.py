"""Checks that every key of the config is read: a key that is never read has no effect."""

import json
import pathlib
import re
import tempfile
import unittest

from program import terrace

ROOT = pathlib.Path(__file__).parents[2]
LAYERS = ("offload", "policies", "node", "runtime", "tuning", "apps")
GETTER = re.compile(
    r"(?:\.(?:text|is|integer|integer_or_auto|integers_or_auto|number|size_bytes|bytes_per_second|"
    r"duration|budget)\(|meaning_of<\w+(?:::\w+)?>\(\s*config,)\s*\"([a-z_.]+)\"")
# A row of a table with keys that the code reads one after the other.
ROW = re.compile(r"\.key = \"([a-z_.]+)\"")


def read_in(text):
    """Returns the keys that a source asks a config for."""
    return set(GETTER.findall(text)) | set(ROW.findall(text))


class ConfigKeys(unittest.TestCase):
    def test_every_key_is_read(self):
        process = terrace("config", "explain", "--format", "json")
        self.assertEqual(process.returncode, 0, process.stderr)
        keys = {row["key"] for row in json.loads(process.stdout)["rows"]}
        read = set()
        for layer in LAYERS:
            for source in (ROOT / layer).rglob("*.cpp"):
                read |= read_in(source.read_text(encoding="utf-8"))
        self.assertEqual(keys - read, set(), "read by nobody")

    def test_a_password_is_shown_nowhere(self):
        url = "tier.remote.url=redis://me:open%20sesame@127.0.0.1:1"
        for words in (["config", "explain"], ["config", "explain", "--format", "json"],
                      ["doctor"], ["config", "validate"]):
            process = terrace(*words, "--set", url)
            self.assertNotIn("sesame", process.stdout + process.stderr, words)
        self.assertIn("redis://***@127.0.0.1:1", terrace("config", "explain", "--set", url).stdout)

    def test_a_check_opens_no_tier(self):
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder) / "rows"
            settings = ["tier.model=weights", f"tier.nvme.path={file}",
                        "tier.nvme.bytes=8000000GiB", "tier.remote.url=redis://127.0.0.1:1"]
            sets = [word for setting in settings for word in ("--set", setting)]
            size = ["size", "--shape", "llama-3.2-1b", "--context", "4096"]
            for words in (["config", "validate"], size):
                process = terrace(*words, *sets)
                self.assertEqual(process.returncode, 0, process.stderr)
                self.assertFalse(file.exists())
            for setting, said in (("tier.nvme.path=", "tier.nvme.path"),
                                  ("tier.remote.url=redis://", "tier.remote"),
                                  ("daemon.socket=/tmp/terraced.sock", "leave one of them out")):
                process = terrace("config", "validate", *sets, "--set", setting)
                self.assertEqual(process.returncode, 2, setting)
                self.assertIn(said, process.stderr)

    def test_a_flag_or_a_message_is_no_reading(self):
        self.assertEqual(read_in('KeyFlag{"--seed", "seed"}; fail("kv.dtype");'), set())
        self.assertEqual(read_in('config.is("placement", "offload")'), {"placement"})
        self.assertEqual(read_in('meaning_of<Placement>(config, "placement", {{'), {"placement"})


if __name__ == "__main__":
    unittest.main()
