"""Requests that vLLM's connector records, without vLLM: `terrace trace convert` and `terrace tune`
read them, and find the tokens that requests share."""

import json
import os
import pathlib
import stat
import subprocess

import pytest

import terrace
from terrace.vllm.prefix_log import PrefixLog
from terrace.vllm.settings import ConnectorSettings

DAEMON = os.environ.get("TERRACED_PROGRAM", "")
CHUNK = 256
PROMPT = [7 * i % 1000 for i in range(700)]
# Begins as PROMPT does, for two chunks and a part of the third.
OTHER = PROMPT[:600] + [3] * 300

needs_program = pytest.mark.skipif(not DAEMON, reason="TERRACED_PROGRAM names no daemon")


def run(*arguments) -> subprocess.CompletedProcess:
    program = pathlib.Path(DAEMON).with_name("terrace")
    return subprocess.run([program, *map(str, arguments)], capture_output=True, text=True,
                          check=False)


def convert(path) -> subprocess.CompletedProcess:
    return run("trace", "convert", path, f"{path}.prefixes", "--from", "mooncake",
               "--block-tokens", CHUNK, "-q")


def tuned(path) -> dict:
    """The report of tune on tiers with room for all of a file's requests."""
    done = convert(path)
    assert (done.returncode, done.stderr) == (0, "")
    done = run("tune", "--trace", f"{path}.prefixes", "--shape", "llama-3.1-8b", "--memory",
               "4GiB,8GiB", "--prefill-rate", 5000, "--format", "json")
    assert (done.returncode, done.stderr) == (0, "")
    return json.loads(done.stdout)


def write(path, *requests) -> None:
    """Records requests of (tokens, salt, second)."""
    log = PrefixLog(str(path), CHUNK)
    for request in requests:
        log.add(*request)
    log.close()


@needs_program
def test_tune_finds_the_tokens_that_prompts_share(tmp_path):
    path = tmp_path / "requests.jsonl"
    write(path, (PROMPT, None, 1e9), (OTHER, None, 1e9 + 10), (PROMPT, "salt", 1e9 + 20),
          (OTHER, "salt", 1e9 + 30), (PROMPT[CHUNK:], None, 1e9 + 40), (PROMPT, None, 1e9 + 50))
    document = tuned(path)
    assert document["chunk"]["tokens"] == CHUNK
    tokens = 4 * len(PROMPT) - CHUNK + 2 * len(OTHER)
    assert document["requests"] == {"count": 6, "timed": 6, "overlapping": 0, "tokens": tokens}
    asked = document["rows"][0]
    assert asked["hit_tokens"] == 3 * 2 * CHUNK  # of OTHER, OTHER with the salt, and the last
    assert asked["missed_tokens"] == tokens - 3 * 2 * CHUNK


@needs_program
def test_times_say_which_requests_overlap(tmp_path):
    path = tmp_path / "requests.jsonl"
    write(path, (PROMPT, None, 1e9), (PROMPT, None, 1e9 + 0.1))
    document = tuned(path)
    assert document["requests"]["overlapping"] == 1
    assert document["rows"][0]["hit_tokens"] == 0


@needs_program
def test_several_processes_and_later_ones_record_in_one_file(tmp_path):
    path = tmp_path / "requests.jsonl"
    logs = [PrefixLog(str(path), CHUNK) for _ in range(2)]
    logs[0].add(PROMPT, None, 1e9)
    logs[1].add(PROMPT, None, 1e9 + 10)
    for log in logs:
        log.close()
        log.close()
    write(path, (PROMPT, None, 1e9 + 20))
    assert tuned(path)["rows"][0]["hit_tokens"] == 2 * 2 * CHUNK


@needs_program
def test_a_line_that_was_cut_spoils_no_other(tmp_path):
    path = tmp_path / "requests.jsonl"
    path.write_text('{"timestamp": 1, "inp')
    write(path, (PROMPT, None, 1e9))
    write(path, (PROMPT, None, 1e9 + 10))
    refused = convert(path)
    assert refused.returncode != 0
    assert "requests.jsonl:1: no JSON" in refused.stderr
    path.write_text(path.read_text().split("\n", 1)[1])
    assert tuned(path)["rows"][0]["hit_tokens"] == 2 * CHUNK


def test_the_file_is_its_users_and_has_numbers_alone(tmp_path):
    path = tmp_path / "requests.jsonl"
    write(path, (PROMPT, "salt", 12.3456), (OTHER, None, 13))
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    first, second = map(json.loads, path.read_text().splitlines())
    assert (first["timestamp"], second["timestamp"]) == (12345, 13000)
    assert (first["input_length"], second["input_length"]) == (700, 900)
    assert (len(first["hash_ids"]), len(second["hash_ids"])) == (3, 4)
    assert set(first["hash_ids"]).isdisjoint(second["hash_ids"])
    assert all(0 <= number < 2**63 for number in first["hash_ids"])


def test_a_file_without_room_is_an_error(tmp_path):
    with pytest.raises(terrace.StoreError, match="nowhere/requests.jsonl: No such file"):
        PrefixLog(str(tmp_path / "nowhere" / "requests.jsonl"), CHUNK)
    log = PrefixLog("/dev/full", CHUNK)
    with pytest.raises(terrace.StoreError, match="/dev/full: No space left"):
        log.add(PROMPT, None, 1)
    log.close()


def test_a_line_that_was_written_in_part_is_an_error(tmp_path, monkeypatch):
    log = PrefixLog(str(tmp_path / "requests.jsonl"), CHUNK)
    whole = os.write
    monkeypatch.setattr(os, "write", lambda file, text: whole(file, text[:5]))
    with pytest.raises(terrace.StoreError, match="requests.jsonl: no room for a line"):
        log.add(PROMPT, None, 1)
    log.close()


@pytest.mark.parametrize("settings, message", [
    ({"memory": "8"}, "memory is '8'"), ({"memory": 8}, "memory is '8'"),
    ({"memory": "1.5GiB"}, "memory is '1.5GiB'"), ({"memroy": "8GiB"}, "memroy is not known"),
    ({"trace": ""}, "trace is ''"), ({"trace": 3}, "trace is 3")])
def test_settings_that_cannot_be_read_are_refused(settings, message):
    assert ConnectorSettings.read({}) == ConnectorSettings(2**32, None)
    assert ConnectorSettings.read({"memory": "8GiB", "trace": "r"}) == ConnectorSettings(2**33, "r")
    with pytest.raises(terrace.InvalidArgument, match=message):
        ConnectorSettings.read(settings)
