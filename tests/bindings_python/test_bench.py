"""python -m terrace.bench, with the real model and a short context."""

import json
import sys

import pytest

from hf_models import FOLDER
from terrace.bench import __main__ as bench
from terrace.bench import hf

SHORT = ["hf", "--model", FOLDER, "--context", "100", "--policy", "pqcache,full", "--tokens", "6",
         "--needles", "1", "--budget", "4096"]


@pytest.fixture(scope="module")
def loaded():
    return hf.load(bench.parse(SHORT))


@pytest.fixture
def run(loaded, monkeypatch, capsys):
    """Runs the program with a model that is loaded once; returns what it printed."""
    def call(*arguments):
        monkeypatch.setattr(hf, "load", lambda options: loaded)
        monkeypatch.setattr(sys, "argv", ["terrace.bench", *arguments])
        bench.main()
        return capsys.readouterr().out

    return call


def test_with_all_tokens_every_cache_measures_the_same(run):
    report = json.loads(run(*SHORT, "--format", "json"))
    own, *ours = report["rows"]
    assert [row["cache"] for row in report["rows"]] == ["transformers", "pqcache", "full"]
    for row in ours:
        assert row["bits"] == pytest.approx(own["bits"], abs=1e-4)
        assert row["agreement"] == 1.0
        assert row["needles"] == own["needles"]
        assert row["device_kv_bytes"] > 0 and row["token_ms"] > 0
    assert own["device_kv_bytes"] == 106 * 30 * 3 * 2 * 64 * 4


def test_people_get_a_table(run):
    lines = run(*SHORT, "--policy", "full").splitlines()
    assert lines[0].endswith("float32, budget 4096, 6 tokens after each prompt, 1 threads")
    assert [line.split()[1] for line in lines[2:]] == ["transformers", "full"]


@pytest.mark.parametrize(("change", "message"), [
    (["--policy", "pqcach"], "did you mean pqcache"),
    (["--set", "retrieval.budgte=3"], "retrieval.budgte"),
    (["--text", "/nowhere"], "/nowhere"),
    (["--context", "90000"], "give more --text"),
])
def test_wrong_usage_is_one_line(run, change, message):
    with pytest.raises(SystemExit, match=message) as stopped:
        run(*SHORT, *change)
    assert str(stopped.value).startswith("terrace.bench: ")
    assert "\n" not in str(stopped.value)


def test_arguments_are_checked():
    assert bench.parse([*SHORT, "--set", "cache.policy=lfu"]).set == {"cache.policy": "lfu"}
    for wrong in (["--set", "lfu"], ["--context", "0"], ["--model", "/nowhere"]):
        with pytest.raises(SystemExit):
            bench.parse([*SHORT, *wrong])
