"""Prefixes that processes share through terraced: each finds what others have published."""

import json
import os
import subprocess
import sys
import textwrap

import pytest

import terrace
from test_prefix import KEPT, TOKENS, found, open_runtime, outputs, prompted

DAEMON = os.environ.get("TERRACED_PROGRAM", "")
STEPS = [1] * 8

pytestmark = pytest.mark.skipif(not DAEMON, reason="TERRACED_PROGRAM names no daemon")


def settings(socket):
    return {"tier.model": "weights", "daemon.socket": socket, "daemon.deadline": "100s"}


def end(process):
    process.kill()
    process.wait()


@pytest.fixture(name="node")
def node_of(tmp_path):
    """Starts daemons of one socket and one file."""

    class Node:
        socket = tmp_path / "run" / "terraced.sock"
        started = []

        def start(self):
            keys = {"tier.nvme.path": tmp_path / "chunks", "tier.nvme.bytes": "8MiB",
                    "daemon.socket": self.socket, "daemon.memory": "1MiB"}
            sets = [word for key, value in keys.items() for word in ("--set", f"{key}={value}")]
            daemon = subprocess.Popen([DAEMON, *sets], stderr=subprocess.PIPE, text=True)
            self.started.append(daemon)
            assert "serving" in daemon.stderr.readline()
            return daemon

    node = Node()
    yield node
    for daemon in node.started:
        end(daemon)
        daemon.stderr.close()


def start_process(program, socket):
    """Starts a program with this file's names, in a process of its own."""
    head = f"import json\nfrom test_daemon_prefix import *\nsocket = {str(socket)!r}\n"
    return subprocess.Popen([sys.executable, "-c", head + textwrap.dedent(program)], text=True,
                            stdout=subprocess.PIPE, stdin=subprocess.PIPE,
                            cwd=os.path.dirname(__file__))


def computed_alone():
    without = open_runtime()
    return outputs(without, prompted(without, KEPT), STEPS).tobytes().hex()


PUBLISHER = f"""
    runtime = open_runtime(**settings(socket))
    member = prompted(runtime, {KEPT})
    report = member.sequence.publish(TOKENS[:{KEPT}], salt="tenant")
    print(json.dumps([report.tokens, report.chunks, report.indexed]), flush=True)
    input()  # for ever, with a sequence and its rows
"""
READER = """
    runtime = open_runtime(**settings(socket))
    others = runtime.open_sequence(TOKENS, salt="another")
    member = found(runtime.open_sequence(TOKENS, salt="tenant"))
    print(json.dumps([len(others), len(member.sequence)]), flush=True)
    input()  # until the publisher is dead
    print(json.dumps(outputs(runtime, member, STEPS).tobytes().hex()), flush=True)
"""


def test_a_killed_process_leaves_what_it_has_published_to_the_others(node):
    node.start()
    publisher = start_process(PUBLISHER, node.socket)
    readers = []
    try:
        assert json.loads(publisher.stdout.readline()) == [KEPT, KEPT // 32, True]
        readers = [start_process(READER, node.socket) for _ in range(2)]
        for reader in readers:
            assert json.loads(reader.stdout.readline()) == [0, KEPT]
        end(publisher)
        end(readers[1])
        said, _ = readers[0].communicate("\n")
        assert json.loads(said) == computed_alone()
        last = start_process(READER, node.socket)
        readers.append(last)
        said, _ = last.communicate("\n")
        counts, computed = map(json.loads, said.splitlines())
        assert counts == [0, KEPT]
        assert computed == computed_alone()
    finally:
        for process in [publisher, *readers]:
            end(process)
            process.stdin.close()
            process.stdout.close()


def test_a_killed_daemon_costs_its_rows_and_nothing_else(node):
    daemon = node.start()
    runtime = open_runtime(**settings(node.socket))
    prompted(runtime, KEPT).sequence.publish(TOKENS[:KEPT])
    member = found(runtime.open_sequence(TOKENS))
    assert len(member.sequence) == member.sequence.readable_tokens == KEPT
    end(daemon)
    assert len(runtime.open_sequence(TOKENS)) == 0
    readable = member.sequence.readable_tokens
    assert readable < KEPT
    member.sequence.truncate(readable)
    assert member.sequence.readable_tokens == readable
    with pytest.raises(terrace.NotReady):
        prompted(runtime, KEPT).sequence.publish(TOKENS[:KEPT])
    node.start()
    sequence = runtime.open_sequence(TOKENS)
    while len(sequence) == 0:  # until the pause is over
        sequence = runtime.open_sequence(TOKENS)
    assert len(sequence) == KEPT
    assert outputs(runtime, found(sequence), STEPS).tobytes().hex() == computed_alone()
