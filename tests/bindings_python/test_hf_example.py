"""examples/hf_generate.py, as people start it."""

import pathlib
import re
import subprocess
import sys

from hf_models import FOLDER

ROOT = pathlib.Path(__file__).parents[2]


def test_the_example_continues_a_text():
    done = subprocess.run(
        [sys.executable, ROOT / "examples" / "hf_generate.py", "--model", FOLDER, "--text",
         ROOT / "LICENSE", "--context", "300", "--tokens", "8", "--budget", "128",
         "--wait-for-index"],
        check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    text, stats = done.stdout.rstrip().rsplit("\n\n", 1)
    assert len(text.split()) >= 3
    assert re.match(r"1 rows of up to 307 tokens, \d+ entries attended to, \d+\.\d % hits", stats)
