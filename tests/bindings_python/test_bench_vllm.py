"""python -m terrace.bench vllm: each cache has a process, and a text is dictated to vLLM."""

import json
import subprocess

import pytest
import vllm_engine


def bench(*arguments: str, engine: str = "vllm") -> subprocess.CompletedProcess:
    return vllm_engine.run_python("-m", "terrace.bench", engine, "--model", vllm_engine.MODEL,
                                  "--tokens", "6", *arguments)


def test_with_all_tokens_both_measure_the_same():
    done = bench("--context", "100,150", "--policy", "pqcache", "--budget", "4096", "--needles",
                 "1", "--format", "json")
    assert done.returncode == 0, done.stderr[-4000:]
    report = json.loads(done.stdout)
    rows = {(row["context"], row["cache"]): row for row in report["rows"]}
    for context in (100, 150):
        own, ours = rows[context, "vllm"], rows[context, "pqcache"]
        assert own["tokens_of_terrace"] == 0 and ours["tokens_of_terrace"] == 6
        assert ours["bits"] == pytest.approx(own["bits"], abs=1e-4)
        assert ours["agreement"] == 1.0 and ours["needles"] == own["needles"]
        assert ours["token_ms"] > 0 and ours["second_token_seconds"] > 0


def test_after_a_prompt_in_pieces_it_scores_the_text_that_transformers_score():
    arguments = ("--context", "700", "--policy", "full", "--needles", "0", "--dtype", "float32",
                 "--format", "json")
    bits = []
    for engine in ("vllm", "hf"):
        done = bench(*arguments, engine=engine)
        assert done.returncode == 0, done.stderr[-4000:]
        bits.append(json.loads(done.stdout)["rows"][0]["bits"])
    assert bits[0] == pytest.approx(bits[1], abs=1e-3)


def test_a_policy_that_is_not_there_is_one_line():
    done = bench("--context", "100", "--policy", "pqcash", "--needles", "0")
    assert done.returncode == 1
    assert done.stderr.startswith("terrace.bench: vLLM with pqcash ended with 1: ")
    assert "pqcache" in done.stderr and done.stderr.count("\n") == 1
