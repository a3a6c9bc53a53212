"""Sequences and hints that an argument alone holds: they live as long as the call needs them."""

import numpy as np
import pytest

import engine
import terrace
from engine import LAYERS, Member, make_rows

QUEUES = ["wrap_caller", "open_queue"]
CONTAINERS = [list, tuple, iter, lambda made: (one for one in made)]
# Prompts of so many tokens are indexed with the help of hints, and do not fit the budget.
TOKENS = 300
SELECTING = {"retrieval.policy": "infllm", "retrieval.budget": 48, "infllm.block_tokens": 16,
             "index.until_ready": "wait"}


@pytest.mark.parametrize("queue", QUEUES)
@pytest.mark.parametrize("container", CONTAINERS)
def test_a_step_holds_the_sequences_that_it_is_given(runtime, queue, container):
    compute = getattr(runtime, queue)()
    members = [Member(None, seed) for seed in range(3)]
    rows = [[make_rows(member, layer, 1, np.float32) for member in members]
            for layer in range(LAYERS)]
    opened = container([runtime.open_sequence() for _ in members])
    with runtime.begin_step(opened, compute, container([1, 1, 1])) as step:
        del opened
        assert runtime.sequences == len(members)
        for layer in range(LAYERS):
            query, keys, values = (np.concatenate(parts) for parts in zip(*rows[layer]))
            output = np.empty_like(query)
            step.attend(layer, query, keys, values, output)
            compute.drain()
            assert np.array_equal(output, values.repeat(engine.QUERY_HEADS // engine.KV_HEADS, 1))
        step.end(container([1, 1, 1]))


def test_a_step_holds_the_only_sequence_of_a_generator(runtime):
    with runtime.begin_step((runtime.open_sequence() for _ in range(1)), runtime.open_queue()):
        assert runtime.sequences == 1


class SpoiltWhenDropped(np.ndarray):
    """Its memory has no numbers left after its end."""

    def __del__(self):
        self.base.fill(np.nan)


def make_hints(query, factor):
    window = (query[-100:] * factor).copy().view(SpoiltWhenDropped)
    return terrace.Hints(query_window=window)


def decode_after_prompt(queue, call, container, factor=1):
    """Returns the outputs of a token after a prompt with hints, which `container` is to hold."""
    runtime = engine.open_runtime(SELECTING)
    compute, member = getattr(runtime, queue)(), Member(runtime.open_sequence(), 0)
    member.sequence.begin_prompt(TOKENS)
    outputs = []
    for tokens in (TOKENS, 1):
        with runtime.begin_step([member.sequence], compute, [tokens]) as step:
            for layer in range(LAYERS):
                query, keys, values = make_rows(member, layer, tokens, np.float32)
                hints = (make_hints(query, factor) for _ in range(1)) if tokens > 1 else [None]
                if tokens > 1 and call == "append":
                    step.append(layer, keys, values, container(hints))
                    continue
                outputs.append(np.empty_like(query))
                step.attend(layer, query, keys, values, outputs[-1], hints=container(hints))
            step.end()
    return np.stack(outputs[-LAYERS:])


@pytest.mark.parametrize("queue", QUEUES)
@pytest.mark.parametrize("call", ["attend", "append"])
def test_hints_are_held_until_they_are_read(queue, call):
    held = []

    def hold(hints):
        held.append(list(hints))
        return held[-1]

    expected = decode_after_prompt(queue, call, hold)
    assert not np.array_equal(decode_after_prompt(queue, call, hold, factor=-1), expected)
    for container in CONTAINERS:
        assert np.array_equal(decode_after_prompt(queue, call, container), expected)


@pytest.mark.parametrize("queue", QUEUES)
def test_gather_holds_the_hints_that_it_is_given(queue):
    runtime = engine.open_runtime(SELECTING)
    sequence = runtime.open_sequence()
    sequence.begin_prompt(1)
    member = Member(sequence, 0)
    with runtime.begin_step([sequence], getattr(runtime, queue)()) as step:
        for layer in range(LAYERS):
            query, keys, values = make_rows(member, layer, 1, np.float32)
            hints = (make_hints(query, 1) for _ in range(1))
            assert len(step.gather(layer, query, keys, values, hints=hints)) == 1
        step.end()


@pytest.mark.parametrize("made", [terrace.Sequence, terrace.Queue, terrace.Hints])
def test_objects_with_nothing_in_them_are_refused(runtime, made):
    empty, sequence, queue = made.__new__(made), runtime.open_sequence(), runtime.wrap_caller()
    with pytest.raises(terrace.InvalidArgument, match="give a"):
        runtime.begin_step([empty], queue)
    with pytest.raises(terrace.InvalidArgument, match="give a"):
        runtime.begin_step([sequence], empty)
    query, keys, values = make_rows(Member(sequence, 0), 0, 1, np.float32)
    with runtime.begin_step([sequence], queue) as step:
        with pytest.raises(terrace.InvalidArgument, match=r"hints\[0\] is .*: give Hints"):
            step.attend(0, query, keys, values, np.empty_like(query), hints=[empty])
