"""Steps: outputs, arrays of other libraries, and what is refused."""

import array

import numpy as np
import pytest

import engine
import terrace
from engine import DIM, KV_HEADS, LAYERS, QUERY_HEADS, Member, run_step


def prompted(runtime, tokens, seed=0):
    member = Member(runtime.open_sequence(expected_tokens=tokens + 8), seed)
    member.sequence.begin_prompt(tokens)
    return member


@pytest.mark.parametrize(("dtype", "width", "most"),
                         [("f32", np.float32, 1e-5), ("f16", np.float16, 5e-3)])
def test_outputs_are_attention(dtype, width, most):
    runtime = engine.open_runtime(dtype=dtype)
    for queue in (runtime.wrap_caller(), runtime.open_queue()):
        members = [prompted(runtime, tokens, seed) for seed, tokens in enumerate((70, 5, 130))]
        assert run_step(runtime, queue, members, [70, 5, 64], width) < most
        assert run_step(runtime, queue, members, [1, 1, 66], width) < most
        for _ in range(3):
            assert run_step(runtime, queue, members, [1, 1, 1], width) < most
        assert [len(m.sequence) for m in members] == [74, 9, 133]
        assert members[0].sequence.counters()["length"] == 74


@pytest.mark.parametrize("scale", [0.5, 1 / np.sqrt(DIM), 0.0])
def test_logits_are_products_times_the_scale(scale):
    runtime = terrace.Runtime(engine.EXACT, **engine.SHAPE, dtype="f32", softmax_scale=scale)
    query, keys, values = engine.make_rows(Member(None, 0), 0, 20, np.float32)
    sequence, output = runtime.open_sequence(), np.empty_like(query)
    sequence.begin_prompt(20)
    with runtime.begin_step([sequence], runtime.wrap_caller(), [20]) as step:
        step.attend(0, query, keys, values, output)
    expected = engine.attend(query, keys, values, scale or None)
    assert np.abs(output - expected).max() < 1e-5
    unscaled = np.abs(output - engine.attend(query, keys, values)).max()
    assert (unscaled > 0.1) == (scale == 0.5)


@pytest.mark.parametrize("scale", [-1, float("nan"), 1e300])
def test_a_scale_that_is_none_is_refused(scale):
    with pytest.raises(terrace.InvalidArgument, match="softmax_scale .*: give a finite number"):
        terrace.Runtime(engine.EXACT, **engine.SHAPE, softmax_scale=scale)


@pytest.mark.parametrize(("least", "is_exact"), [({}, True), ({"retrieval.budget_min": 1}, False)])
def test_a_share_of_a_short_sequence_is_all_of_it(least, is_exact):
    """Up to retrieval.budget_min tokens."""
    runtime = engine.open_runtime({"retrieval.budget": 0.1, "index.until_ready": "wait",
                                   "retrieval.sink_tokens": 4, "kv.block_tokens": 8, **least})
    queue, member = runtime.wrap_caller(), prompted(runtime, 20)
    run_step(runtime, queue, [member], [20])
    worst = max(run_step(runtime, queue, [member], [1]) for _ in range(60))
    assert (worst < 1e-5) == is_exact


def test_drafts_keep_what_is_accepted(runtime):
    queue = runtime.wrap_caller()
    member = prompted(runtime, 40)
    run_step(runtime, queue, [member], [40])
    rows = np.zeros((4, KV_HEADS, DIM), np.float32)
    query = np.zeros((4, QUERY_HEADS, DIM), np.float32)
    with runtime.begin_step([member.sequence], queue, [4]) as step:
        for layer in range(LAYERS):
            step.attend(layer, query, rows, rows, np.empty_like(query))
        with pytest.raises(terrace.InvalidArgument, match="one for each of 1 sequences"):
            step.end([1, 1])
        step.end([2])
    assert len(member.sequence) == 42
    member.sequence.truncate(40)
    assert run_step(runtime, queue, [member], [1]) < 1e-5


def test_strides_are_followed(runtime):
    """Rows as PyTorch's attention has them: [heads, tokens, dim]."""
    queue = runtime.wrap_caller()
    rng = np.random.default_rng(1)
    rows = rng.standard_normal((2, KV_HEADS, 20, DIM), np.float32)
    query = rng.standard_normal((20, QUERY_HEADS + 3, DIM), np.float32)[:, :QUERY_HEADS]
    keys, values = rows.transpose(0, 2, 1, 3)
    output = np.empty((20, QUERY_HEADS, DIM), np.float32)
    sequence = runtime.open_sequence()
    sequence.begin_prompt(20)
    with runtime.begin_step([sequence], queue, [20]) as step:
        for layer in range(LAYERS):
            step.attend(layer, query, keys, values, output)
            assert np.abs(output - engine.attend(query, keys, values)).max() < 1e-5
        step.end()
    target = np.empty((2, 2, DIM), np.float32)
    sequence.read_rows(1, 1, [7, 3], target)
    assert np.array_equal(target, np.stack([rows[:, 1, 7], rows[:, 1, 3]]))


def test_buffers_without_numpy(runtime):
    """Memory of the standard library's arrays, by the buffer protocol."""
    def make(heads, value):
        numbers = array.array("f", [value] * (heads * DIM))
        return memoryview(numbers).cast("B").cast("f", (1, heads, DIM))

    sequence, output = runtime.open_sequence(), make(QUERY_HEADS, 0.0)
    with runtime.begin_step([sequence], runtime.wrap_caller()) as step:
        for layer in range(LAYERS):
            step.attend(layer, make(QUERY_HEADS, 1.0), make(KV_HEADS, 0.5), make(KV_HEADS, 3.0),
                        output)
        step.end()
    assert output[0, QUERY_HEADS - 1, DIM - 1] == 3.0


def zeros(*shape, width=np.float32):
    return np.zeros(shape, width)


@pytest.mark.parametrize(("change", "message"), [
    ({"query": zeros(1, 3, DIM)}, r"query has shape \[1, 3, 32\]: give \[1, 4, 32\]"),
    ({"query": zeros(1, QUERY_HEADS, DIM, width=float)}, "query is of f64: give f32, f16 or bf16"),
    ({"keys": zeros(1, KV_HEADS, DIM, width=np.float16)}, "keys is of f16: give f32"),
    ({"values": zeros(2, KV_HEADS, DIM)}, r"values has shape \[2, 2, 32\]"),
    ({"output": zeros(1, QUERY_HEADS, DIM, width=np.float16)}, "output is of f16: give f32"),
    ({"keys": zeros(1, KV_HEADS, 2 * DIM)[:, :, ::2]}, "keys has gaps in its last"),
    ({"query": zeros(1, 2 * QUERY_HEADS, DIM)[:, ::2]}, "query has gaps between the heads"),
    ({"keys": zeros(1, 2 * KV_HEADS, DIM)[:, ::2]}, "keys and values lie in memory"),
    ({"layer": 1}, "layer 0"),
])
def test_tensors_that_do_not_fit_are_refused_and_nothing_is_lost(runtime, change, message):
    good = {"layer": 0, "query": np.zeros((1, QUERY_HEADS, DIM), np.float32),
            "keys": np.zeros((1, KV_HEADS, DIM), np.float32),
            "values": np.zeros((1, KV_HEADS, DIM), np.float32),
            "output": np.zeros((1, QUERY_HEADS, DIM), np.float32)}
    sequence = runtime.open_sequence()
    with runtime.begin_step([sequence], runtime.wrap_caller()) as step:
        with pytest.raises(terrace.InvalidArgument, match=message):
            step.attend(**{**good, **change})
        for layer in range(LAYERS):
            step.attend(**{**good, "layer": layer})
        step.end()
    assert len(sequence) == 1


def test_a_step_of_an_unknown_type_is_refused(runtime):
    with pytest.raises(terrace.InvalidArgument, match="dtype is 'f64': give 'f32', 'f16'"):
        runtime.begin_step([runtime.open_sequence()], runtime.wrap_caller(), dtype="f64")


def test_read_only_outputs_are_refused(runtime):
    query = np.zeros((1, QUERY_HEADS, DIM), np.float32)
    rows = np.zeros((1, KV_HEADS, DIM), np.float32)
    output = np.zeros_like(query)
    output.flags.writeable = False
    rows.flags.writeable = False  # inputs may be
    with runtime.begin_step([runtime.open_sequence()], runtime.wrap_caller()) as step:
        step.attend(0, query, rows, rows, np.empty_like(query))
        with pytest.raises(terrace.InvalidArgument, match="output may not be written"):
            step.attend(1, query, rows, rows, output)


def test_a_sequence_that_fails_is_named_and_others_go_on(runtime):
    queue = runtime.wrap_caller()
    good, bad = Member(runtime.open_sequence(), 1), Member(runtime.open_sequence(), 2)
    bad.sequence.begin_prompt(2)
    rows = np.zeros((4, KV_HEADS, DIM), np.float32)
    query = np.zeros((4, QUERY_HEADS, DIM), np.float32)
    with runtime.begin_step([good.sequence, bad.sequence], queue, [1, 3]) as step:  # 3 of 2
        assert list(step.failures) == [1]
        assert isinstance(step.failures[1], terrace.InvalidArgument)
        for layer in range(LAYERS):
            step.attend(layer, query, rows, rows, np.empty_like(query))
        with pytest.raises(terrace.SequencesFailed, match="sequences failed; number 1") as raised:
            step.end()
    assert isinstance(raised.value.failures[1], terrace.InvalidArgument)
    assert (len(good.sequence), len(bad.sequence)) == (1, 0)


def test_a_prompt_whose_rows_alone_are_appended(runtime):
    queue = runtime.wrap_caller()
    member = Member(runtime.open_sequence(), 4)
    member.sequence.begin_prompt(60)
    for tokens in (40, 20):
        with runtime.begin_step([member.sequence], queue, [tokens]) as step:
            for layer in range(LAYERS):
                _, keys, values = engine.make_rows(member, layer, tokens, np.float32)
                step.append(layer, keys, values)
            step.end()
    assert run_step(runtime, queue, [member], [1]) < 1e-5
    with runtime.begin_step([member.sequence], queue) as step:
        with pytest.raises(terrace.InvalidArgument, match="have to attend"):
            step.append(0, keys[:1], values[:1])


def test_gather_gives_addresses_of_rows(runtime):
    queue = runtime.wrap_caller()
    member = Member(runtime.open_sequence(), 0)
    for _ in range(5):
        run_step(runtime, queue, [member], [1])
    query, keys, values = engine.make_rows(member, 0, 1, np.float32)
    with runtime.begin_step([member.sequence], queue) as step:
        view, = step.gather(0, query, keys, values)
        assert view["window"][1] == 6
        assert len(view["blocks"]) * view["block_tokens"] >= 6
        assert view["lists"] == KV_HEADS
    assert len(member.sequence) == 5
