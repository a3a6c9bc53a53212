"""Prefixes: a later process begins with the rows that an earlier one has published."""

import json
import os
import re
import subprocess
import sys
import textwrap

import numpy as np
import pytest

import engine
import terrace
from engine import DIM, LAYERS, QUERY_HEADS, Member, make_rows

TOKENS = [7 * i % 1000 for i in range(100)]
KEPT = 96  # of them, in whole chunks
# Few rows are selected, and by the index alone.
SETTINGS = {"backend": "host", "retrieval.policy": "pqcache", "retrieval.budget": 48,
            "retrieval.sink_tokens": 4, "index.until_ready": "wait", "kv.block_tokens": 8,
            "tier.chunk_tokens": 32}


def open_runtime(path=None, **settings):
    keeping = {"tier.nvme.path": path, "tier.nvme.bytes": "8MiB", "tier.model": "weights"}
    return engine.open_runtime({**SETTINGS, **(keeping if path else {}), **settings})


def prompted(runtime, tokens=len(TOKENS)):
    """A sequence of so many tokens of a prompt."""
    member = Member(runtime.open_sequence(), 5)
    member.sequence.begin_prompt(tokens)
    outputs(runtime, member, [tokens])
    return member


def found(sequence):
    """A sequence that has begun with a prefix."""
    member = Member(sequence, 5)
    for layer in range(LAYERS):
        make_rows(member, layer, len(sequence), np.float32)
    return member


def outputs(runtime, member, steps):
    """Takes steps of so many tokens. Returns the outputs of all."""
    queue, all_outputs = runtime.wrap_caller(), []
    for tokens in steps:
        with runtime.begin_step([member.sequence], queue, [tokens]) as step:
            for layer in range(LAYERS):
                query, keys, values = make_rows(member, layer, tokens, np.float32)
                output = np.empty((tokens, QUERY_HEADS, DIM), np.float32)
                step.attend(layer, query, keys, values, output)
                all_outputs.append(output)
            step.end()
    return np.concatenate(all_outputs)


def run_process(program, path):
    """Runs a program with this file's names, in a process of its own. Returns what it says."""
    head = f"import json\nfrom test_prefix import *\npath = {str(path)!r}\n"
    done = subprocess.run([sys.executable, "-c", head + textwrap.dedent(program)],
                          capture_output=True, text=True, cwd=os.path.dirname(__file__))
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    return json.loads(done.stdout)


def test_a_closed_sequence_goes_on_in_a_later_process_with_the_same_bits(tmp_path):
    path = tmp_path / "rows"
    expected = run_process("""
        runtime = open_runtime(path)
        member = prompted(runtime)
        outputs(runtime, member, [1] * 7)
        report = member.sequence.publish(list(range(107)), with_tail=True)
        assert report.tokens == 107
        print(json.dumps(outputs(runtime, member, [1] * 5).tolist()))
    """, path)
    went_on = run_process("""
        runtime = open_runtime(path)
        assert len(runtime.open_sequence(list(range(107)))) == 96
        member = found(runtime.open_sequence(list(range(107)), with_tail=True))
        assert len(member.sequence) == 107
        print(json.dumps(outputs(runtime, member, [1] * 5).tolist()))
    """, path)
    assert went_on == expected


def test_a_later_process_finds_it_and_computes_the_same(tmp_path):
    path = tmp_path / "rows"
    published = run_process(f"""
        runtime = open_runtime(path)
        member = prompted(runtime, {KEPT})
        report = member.sequence.publish(TOKENS[:{KEPT}], salt="tenant")
        print(json.dumps([report.tokens, report.chunks, report.bytes, report.indexed]))
    """, path)
    assert published[:2] == [KEPT, KEPT // 32] and published[2] > 0 and published[3] is True
    assert path.exists()
    said = run_process("""
        runtime = open_runtime(path)
        others = runtime.open_sequence(TOKENS, salt="another")
        member = found(runtime.open_sequence(TOKENS, salt="tenant"))
        computed = outputs(runtime, member, [1] * 8)
        print(json.dumps([len(others), len(member.sequence), computed.tobytes().hex()]))
    """, path)
    assert said[:2] == [0, KEPT + 8]
    without = open_runtime()
    assert said[2] == outputs(without, prompted(without, KEPT), [1] * 8).tobytes().hex()


def test_the_rest_of_a_prompt_comes_after_it(tmp_path):
    runtime = open_runtime(tmp_path / "rows")
    prompted(runtime, KEPT).sequence.publish(TOKENS[:KEPT])
    member = found(runtime.open_sequence(TOKENS[:-1]))
    assert len(member.sequence) == KEPT
    member.sequence.begin_prompt(len(TOKENS) - KEPT)
    rest = outputs(runtime, member, [len(TOKENS) - KEPT])
    without = open_runtime()
    whole = Member(without.open_sequence(), 5)
    whole.sequence.begin_prompt(KEPT)
    outputs(without, whole, [KEPT])
    whole.sequence.begin_prompt(len(TOKENS) - KEPT)
    assert np.array_equal(rest, outputs(without, whole, [len(TOKENS) - KEPT]))


def test_a_damaged_page_says_how_many_tokens_can_still_be_read(tmp_path):
    path = tmp_path / "rows"
    said = run_process(f"""
        runtime = open_runtime(path)
        member = prompted(runtime, {KEPT})
        row = np.empty((1, 2, DIM), np.float32)
        member.sequence.read_rows(0, 0, [50], row)
        member.sequence.publish(TOKENS[:{KEPT}])
        print(json.dumps(row.tobytes().hex()))
    """, path)
    stored = bytearray(path.read_bytes())
    place = stored.find(bytes.fromhex(said))
    assert place >= 0
    stored[place] ^= 1
    path.write_bytes(stored)
    runtime = open_runtime(path)
    sequence = runtime.open_sequence(TOKENS)
    assert sequence.readable_tokens == KEPT
    with pytest.raises(terrace.Corrupt):
        sequence.read_rows(0, 0, [50], np.empty((1, 2, DIM), np.float32))
    assert 0 < sequence.readable_tokens <= 50
    sequence.truncate(sequence.readable_tokens)
    assert sequence.readable_tokens == len(sequence)


def test_a_report_is_read(tmp_path):
    runtime = open_runtime(tmp_path / "rows")
    member = prompted(runtime)
    first, again = member.sequence.publish(TOKENS), member.sequence.publish(TOKENS)
    assert isinstance(first, terrace.PublishReport)
    assert repr(again) == f"PublishReport(tokens={KEPT}, chunks=0, bytes=0, indexed=True)"
    assert first.bytes > first.chunks * 32 * LAYERS
    assert member.sequence.publish([]).tokens == 0


@pytest.mark.parametrize("width", [np.int8, np.uint8, np.int16, np.uint16, np.int32, np.uint32,
                                   np.int64, np.uint64, ">i8", object])
def test_tokens_may_be_arrays(tmp_path, width):
    runtime = open_runtime(tmp_path / "rows")
    tokens = [i % 100 for i in range(100)]
    prompted(runtime).sequence.publish(tokens)
    array = np.array(tokens, width)
    assert len(runtime.open_sequence(array)) == KEPT
    assert len(runtime.open_sequence(np.repeat(array, 2)[::2])) == KEPT
    assert len(runtime.open_sequence(array[::-1][::-1])) == KEPT
    assert len(runtime.open_sequence(tuple(array))) == KEPT
    assert len(runtime.open_sequence(range(100))) == KEPT
    assert len(runtime.open_sequence(array[:40])) == 32


@pytest.mark.parametrize(("tokens", "message"), [
    ([1, -2], r"tokens[1] is -2: give a whole number from 0 to 4294967295"),
    ([1, 2**32], r"tokens[1] is 4294967296: give a whole number from 0 to 4294967295"),
    ([1, 2**70], r"tokens[1] is 1180591620717411303424: give a whole number from 0 to 4294967295"),
    ([1, 2.0], r"tokens[1] is 2.0: give a whole number from 0 to 4294967295"),
    ([[1, 2]], r"tokens[0] is [1, 2]: give a whole number from 0 to 4294967295"),
    (np.array([1, 5, -2]), r"tokens[2] is -2: give a whole number from 0 to 4294967295"),
    (np.array([2**32]), r"tokens[0] is 4294967296: give a whole number from 0 to 4294967295"),
    (np.array([2**63], np.uint64), r"tokens[0] is 9223372036854775808: give a whole number from"),
    (np.array([1.0]), "tokens is of f64: give whole numbers"),
    (np.array([True]), "tokens is of bool: give whole numbers"),
    (np.zeros((1, 5), np.int64), "tokens has 2 dimensions: give one, the tokens of one sequence"),
    (np.array(3), "tokens has 0 dimensions: give one, the tokens of one sequence"),
    (5, "tokens is 5: give a list of numbers"),
    ("text", "tokens is 'text': give a list or an array of token ids"),
    (b"text", "tokens is b'text': give a list or an array of token ids"),
])
def test_other_tokens_are_refused_by_name(runtime, tokens, message):
    sequence = runtime.open_sequence()
    for call in (runtime.open_sequence, sequence.publish):
        with pytest.raises(terrace.InvalidArgument, match=re.escape(message)) as raised:
            call(tokens)
        assert "\n" not in str(raised.value)


def test_a_salt_is_text_or_bytes_and_is_never_shown(tmp_path):
    runtime = open_runtime(tmp_path / "rows")
    sequence = prompted(runtime).sequence
    sequence.publish(TOKENS, salt=b"caf\xc3\xa9\0")
    assert len(runtime.open_sequence(TOKENS, salt="café\0")) == KEPT
    assert len(runtime.open_sequence(TOKENS, salt="café")) == 0
    for salt in (bytearray(b"secret"), 1234, ["secret"]):
        with pytest.raises(terrace.InvalidArgument, match="salt is of type .*: give") as raised:
            sequence.publish(TOKENS, salt=salt)
        assert "secret" not in str(raised.value) and "1234" not in str(raised.value)
    with pytest.raises(terrace.InvalidArgument, match="salt is text that UTF-8 has not"):
        runtime.open_sequence(TOKENS, salt="\ud800")
    with pytest.raises(terrace.InvalidArgument, match="salt is given without tokens"):
        runtime.open_sequence(salt="secret")


def test_hashes_name_a_prefix_in_place_of_tokens(tmp_path):
    runtime = open_runtime(tmp_path / "rows")
    sequence = prompted(runtime).sequence
    hashes = [bytes([block, 7]) for block in range(KEPT // 8)]
    named = {"hashes": hashes, "hash_tokens": 8}
    assert sequence.publish(**named).tokens == KEPT
    assert len(runtime.open_sequence(**named)) == KEPT
    assert len(runtime.open_sequence(**named, salt="a tenant's")) == 0
    assert len(runtime.open_sequence(TOKENS)) == 0
    for wrong, why in (({"hashes": b"bytes", "hash_tokens": 8}, "hashes is b.bytes.: give a list"),
                       ({"hashes": [b"a", 7], "hash_tokens": 8}, r"hashes\[1\] is 7: give bytes"),
                       ({"hashes": [b"a", b"bc"], "hash_tokens": 8}, r"hashes\[1\] has 2 bytes"),
                       ({"hashes": [b""], "hash_tokens": 8}, r"hashes\[0\] has 0 bytes"),
                       ({"hashes": hashes, "hash_tokens": 0}, "no whole hashes of 0 tokens"),
                       ({"hashes": hashes, "hash_tokens": -1}, "hash_tokens"),
                       ({**named, "tokens": TOKENS}, "tokens and hashes")):
        with pytest.raises(terrace.InvalidArgument, match=why):
            runtime.open_sequence(**wrong)
        with pytest.raises(terrace.InvalidArgument, match=why):
            sequence.publish(**wrong)
    with pytest.raises(terrace.InvalidArgument, match="give tokens or hashes"):
        sequence.publish()


def test_without_a_model_nothing_is_kept(tmp_path):
    runtime = open_runtime(tmp_path / "rows", **{"tier.model": ""})
    sequence = prompted(runtime).sequence
    with pytest.raises(terrace.Unsupported, match="tier.model"):
        sequence.publish(TOKENS)
    assert len(runtime.open_sequence(TOKENS)) == 0


def test_tokens_that_a_sequence_has_not_are_refused(tmp_path):
    runtime = open_runtime(tmp_path / "rows")
    sequence = prompted(runtime).sequence
    with pytest.raises(terrace.InvalidArgument, match="101 tokens of a sequence that has 100"):
        sequence.publish(TOKENS + [1])
    sequence.close()
    with pytest.raises(terrace.InvalidArgument, match="the sequence is closed"):
        sequence.publish(TOKENS)


def test_a_full_file_is_out_of_memory(tmp_path):
    runtime = open_runtime(tmp_path / "rows", **{"tier.nvme.bytes": "1MiB"})
    member = prompted(runtime, 2000)  # 3 MiB of rows
    with pytest.raises(terrace.OutOfMemory):
        member.sequence.publish(list(range(2000)))
    assert outputs(runtime, member, [1]).shape == (LAYERS, QUERY_HEADS, DIM)
    assert len(runtime.open_sequence(range(2000))) > 0
