"""Arrays and numbers that a call cannot take: it says which and why, and nothing is lost."""

import numpy as np
import pytest

import engine
import terrace
from engine import DIM, KV_HEADS, LAYERS, QUERY_HEADS

TOKENS = 4


def good_layer():
    rng = np.random.default_rng(0)
    query, keys, values = (rng.standard_normal((TOKENS, heads, DIM)).astype(np.float32)
                           for heads in (QUERY_HEADS, KV_HEADS, KV_HEADS))
    return {"layer": 0, "query": query, "keys": keys, "values": values,
            "output": np.zeros_like(query)}


@pytest.fixture
def step(runtime):
    sequence = runtime.open_sequence()
    sequence.begin_prompt(TOKENS)
    with runtime.begin_step([sequence], runtime.wrap_caller(), [TOKENS]) as begun:
        yield begun


def refuses(call, message):
    with pytest.raises(terrace.InvalidArgument) as raised:
        call()
    assert str(raised.value) == message


def masked():
    values = good_layer()["values"]
    return np.ma.masked_array(values, values > 0)


def read_only():
    output = good_layer()["output"]
    output.flags.writeable = False
    return output


def misaligned(name):
    numbers = good_layer()[name]
    moved = np.frombuffer(bytearray(numbers.nbytes + 1), np.uint8)[1:]
    return moved.view(np.float32).reshape(numbers.shape)


FORMAT = "give f32, f16 or bf16, in the order of bytes of this machine"
NO_ARRAY = ("give an array of NumPy, PyTorch or a library that speaks DLPack or the buffer "
            "protocol")
COPY = "give a contiguous copy"
UTF8 = "give text that UTF-8 has, without the character 0"


@pytest.mark.parametrize(("name", "given", "message"), [
    ("values", lambda: good_layer()["values"].astype(">f4"),
     f"values has numbers of format '>f': {FORMAT}"),
    ("values", lambda: good_layer()["values"].tolist(), f"values is of type list: {NO_ARRAY}"),
    ("values", lambda: None, f"values is None: {NO_ARRAY}"),
    ("query", lambda: None, f"query is None: {NO_ARRAY}"),
    ("values", lambda: good_layer()["values"][None, None],
     "values has 5 dimensions: give 4 at most"),
    ("query", lambda: good_layer()["query"].astype(np.complex64),
     "query is of complex64: give f32, f16 or bf16"),
    ("values", masked, "values has a mask, which Terrace does not look at: give a plain array"),
    ("output", read_only, "output may not be written: give an array that may"),
    ("keys", lambda: misaligned("keys"),
     "keys begins amid a number of 4 bytes in memory: give a copy, which is aligned"),
    ("output", lambda: misaligned("output"),
     "output begins amid a number of 4 bytes in memory: give a copy, which is aligned"),
    ("query", lambda: good_layer()["query"][::-1],
     f"query lies backwards in memory: {COPY}"),
    ("keys", lambda: good_layer()["keys"][:, ::-1], f"keys lies backwards in memory: {COPY}"),
    ("output", lambda: np.lib.stride_tricks.as_strided(
        np.zeros((TOKENS, QUERY_HEADS, DIM), np.float32), strides=(0, 4 * DIM, 4)),
     f"output has tokens that share memory, with 0 numbers from one to the next: {COPY}"),
    ("query", lambda: np.broadcast_to(good_layer()["query"][:1], (TOKENS, QUERY_HEADS, DIM)),
     f"query has tokens that share memory, with 0 numbers from one to the next: {COPY}"),
    ("keys", lambda: np.broadcast_to(good_layer()["keys"][:, :1], (TOKENS, KV_HEADS, DIM)),
     f"keys has heads that share memory, with 0 numbers from one to the next: {COPY}"),
])
def test_an_array_that_cannot_be_taken_is_named_with_the_reason(step, name, given, message):
    layer = good_layer()
    refuses(lambda: step.attend(**{**layer, name: given()}), message)
    step.attend(**layer)
    expected = engine.attend(layer["query"], layer["keys"], layer["values"])
    assert np.abs(layer["output"] - expected).max() < 1e-5


@pytest.mark.parametrize("name", ["query", "keys", "values", "speculated_query"])
def test_an_output_within_the_memory_of_what_is_read_is_refused(step, name):
    layer = {**good_layer(), "speculated_query": good_layer()["query"]}
    memory = np.zeros((TOKENS, 2 * QUERY_HEADS, DIM), np.float32)
    layer[name] = memory[:, :layer[name].shape[1]]
    if name in ("keys", "values"):
        layer["keys"] = layer["values"] = layer[name]
        name = "keys"  # the first that is looked at
    refuses(lambda: step.attend(**{**layer, "output": memory[:, QUERY_HEADS:]}),
            f"output lies within the memory of {name}, from its first number to its last: give "
            "memory of its own")


def test_hints_are_of_their_shape(runtime):
    """Transposed, their numbers would be as many."""
    scores = np.zeros((TOKENS, KV_HEADS), np.float32)
    window = np.zeros((QUERY_HEADS, 3, DIM), np.float32)
    sequence = runtime.open_sequence()
    sequence.begin_prompt(TOKENS)
    with runtime.begin_step([sequence], runtime.wrap_caller(), [TOKENS]) as step:
        refuses(lambda: step.attend(**good_layer(),
                                    hints=[terrace.Hints(attention_scores=scores)]),
                "attention_scores has shape [4, 2]: give [2, 2]")
        refuses(lambda: step.attend(**good_layer(), hints=[terrace.Hints(query_window=window)]),
                "query_window has shape [4, 3, 32]: give [4, 4, 32]")
    refuses(lambda: terrace.Hints(query_window=[1.0]), f"query_window is of type list: {NO_ARRAY}")


def test_rows_are_read_into_memory_that_may_be_written(runtime):
    sequence = runtime.open_sequence()
    target = np.zeros((1, 2, DIM), np.float32)
    refuses(lambda: sequence.read_rows(0, 0, [-1], target),
            "positions[0] is -1: give a whole number from 0 to 4294967295")
    refuses(lambda: sequence.read_rows(0, -1, [0], target),
            "kv_head is -1: give a whole number from 0 to 4294967295")
    refuses(lambda: sequence.read_rows(0, 0, 3, target), "positions is 3: give a list of numbers")
    refuses(lambda: sequence.read_rows(0, 0, [0], np.broadcast_to(target, (1, 2, DIM))),
            "target may not be written: give an array that may")
    refuses(lambda: sequence.read_rows(0, 0, [0], None), f"target is None: {NO_ARRAY}")


@pytest.mark.parametrize(("call", "message"), [
    (lambda r, s: s.begin_prompt(-1), "tokens is -1: give a whole number from 0"),
    (lambda r, s: s.truncate(1.5), "length is 1.5: give a whole number from 0"),
    (lambda r, s: s.truncate(None), "length is None: give a whole number from 0"),
    (lambda r, s: r.open_sequence(expected_tokens="8"),
     "expected_tokens is '8': give a whole number from 0"),
    (lambda r, s: r.device_bytes(-3), "tokens is -3: give a whole number from 0"),
    (lambda r, s: r.memory_need(9, "2"), "step_tokens is '2': give a whole number from 0"),
    (lambda r, s: r.memory_need(9, dtype=2), "dtype is 2: give 'f32', 'f16' or 'bf16'"),
    (lambda r, s: r.begin_step([s], r.wrap_caller(), [-1]),
     "tokens[0] is -1: give a whole number from 0 to 4294967295"),
    (lambda r, s: r.begin_step([s], r.wrap_caller(), [2**40]),
     "tokens[0] is 1099511627776: give a whole number from 0 to 4294967295"),
    (lambda r, s: r.begin_step([s], r.wrap_caller(), 4), "tokens is 4: give a list of numbers"),
    (lambda r, s: r.begin_step([s], r.wrap_caller()).attend(**{**good_layer(), "layer": -1}),
     "layer is -1: give a whole number from 0 to 4294967295"),
    (lambda r, s: terrace.Runtime(engine.EXACT, **{**engine.SHAPE, "layers": -2}),
     "layers is -2: give a whole number from 0"),
    (lambda r, s: terrace.Runtime(engine.EXACT, **engine.SHAPE, dtype=None),
     "dtype is None: give 'f32', 'f16' or 'bf16'"),
    (lambda r, s: r.begin_step(s, r.wrap_caller()),
     "sequences is of type terrace._core.Sequence: give a list of Sequences"),
    (lambda r, s: r.begin_step([s, None], r.wrap_caller()),
     "sequences[1] is None: give a Sequence"),
    (lambda r, s: r.begin_step([s], None), "compute is None: give a Queue"),
    (lambda r, s: r.begin_step([s], r.wrap_caller(), dtype=32),
     "dtype is 32: give 'f32', 'f16' or 'bf16'"),
    (lambda r, s: r.begin_step([s], r.wrap_caller(), [TOKENS]).attend(**good_layer(), hints=[1]),
     "hints[0] is 1: give Hints, or None"),
    (lambda r, s: r.begin_step([s], r.wrap_caller(), [TOKENS]).attend(**good_layer(), hints=[]),
     "hints has 0 entries: give one, or None, for each of 1 sequences"),
    (lambda r, s: r.wrap_caller().drain(-1),
     "timeout is -1: give a number of seconds from 0"),
    (lambda r, s: r.wrap_caller().drain("x"), "timeout is 'x': give a number of seconds from 0"),
    (lambda r, s: r.wrap_caller().drain(None), "timeout is None: give a number of seconds from 0"),
    (lambda r, s: r.begin_step([], r.wrap_caller()),
     "sequences has no member: give one Sequence or more"),
    (lambda r, s: terrace.Config({3: 4}), "a key of config is 3: give text"),
    (lambda r, s: terrace.Runtime({3: 4}, **engine.SHAPE), "a key of config is 3: give text"),
    (lambda r, s: terrace.Config({"\udcff": 4}), f"a key of config is '\\udcff': {UTF8}"),
    (lambda r, s: terrace.Config({"tier.nvme.path": "a\0b"}),
     f"tier.nvme.path is 'a\\x00b': {UTF8}"),
    (lambda r, s: terrace.Config().load(None), "path is None: give the path of a file"),
    (lambda r, s: terrace.Config().load("a\0b"), "path is 'a\\x00b': give the path of a file"),
    (lambda r, s: terrace.Config().parse(3), "text is 3: give text"),
    (lambda r, s: terrace.Config().parse("", None), "name is None: give text"),
    (lambda r, s: terrace.Config()[3], "key is 3: give text"),
    (lambda r, s: terrace.Config().__setitem__(3, 4), "key is 3: give text"),
    (lambda r, s: r.open_queue(3), "name is 3: give text"),
    (lambda r, s: r.wrap_caller(None), "name is None: give text"),
    (lambda r, s: r.open_sequence([1], with_tail="x"), "with_tail is 'x': give True or False"),
    (lambda r, s: s.publish([1], with_tail=None), "with_tail is None: give True or False"),
    (lambda r, s: r.memory_need(9, dtype="\udcff"),
     "dtype is '\\udcff': give 'f32', 'f16' or 'bf16'"),
    (lambda r, s: terrace.Runtime(engine.EXACT, **engine.SHAPE, softmax_scale="x"),
     "softmax_scale is 'x': give a number"),
    (lambda r, s: r.wrap_stream(-1), "stream is -1: give a whole number from 0"),
])
def test_what_cannot_be_taken_is_named(runtime, call, message):
    refuses(lambda: call(runtime, runtime.open_sequence()), message)


class Interrupted:
    """Ctrl-C comes whenever something is asked of it."""

    def interrupt(self, *args, **options):
        raise KeyboardInterrupt

    __iter__ = __index__ = __float__ = __repr__ = __dlpack__ = interrupt


@pytest.mark.parametrize("call", [
    lambda r, s, q: r.begin_step(Interrupted(), q),
    lambda r, s, q: r.begin_step([s, Interrupted()], q),
    lambda r, s, q: r.begin_step([s], q, Interrupted()),
    lambda r, s, q: s.truncate(Interrupted()),
    lambda r, s, q: q.drain(Interrupted()),
    lambda r, s, q: r.begin_step([s], q).append(0, Interrupted(), None),
])
def test_errors_of_arguments_own_code_are_raised_as_they_are(runtime, call):
    with pytest.raises(KeyboardInterrupt):
        call(runtime, runtime.open_sequence(), runtime.wrap_caller())


def test_an_error_of_a_generator_is_raised_as_it_is(runtime):
    with pytest.raises(ZeroDivisionError):
        runtime.begin_step((1 / 0 for _ in range(1)), runtime.wrap_caller())


def test_numbers_may_be_of_numpy(runtime):
    sequence = runtime.open_sequence(expected_tokens=np.int64(TOKENS))
    sequence.begin_prompt(np.uint8(TOKENS))
    with runtime.begin_step([sequence], runtime.wrap_caller(), np.array([TOKENS])) as step:
        for layer in range(LAYERS):
            step.attend(**{**good_layer(), "layer": np.int32(layer)})
        step.end((TOKENS,))
    assert len(sequence) == TOKENS
