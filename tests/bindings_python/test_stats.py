"""Sums of counters: the attention's mass, as its definition has it, and means over sequences."""

import numpy as np
import pytest

import engine
from engine import DIM, KV_HEADS, LAYERS, QUERY_HEADS, Member, run_step
from terrace.stats import TerraceStats, add_counters

# 4 sinks, a window of 15 tokens, and the token itself.
STREAMING = {"retrieval.policy": "streaming", "retrieval.budget": 20, "retrieval.sink_tokens": 4}


def decode(settings, steps, seeds=(0,), prompt=60):
    """Returns members after a prompt and so many steps."""
    runtime = engine.open_runtime({**STREAMING, **settings})
    queue = runtime.wrap_caller()
    members = [Member(runtime.open_sequence(), seed) for seed in seeds]
    for member in members:
        member.sequence.begin_prompt(prompt)
    run_step(runtime, queue, members, [prompt] * len(members))
    for _ in range(steps):
        run_step(runtime, queue, members, [1] * len(members))
    return members


def mass_of(member, layer, head, position):
    """The share of the softmax over all tokens that lies on sinks and window, mean over the query
    heads of a KV head."""
    group = slice(head * QUERY_HEADS // KV_HEADS, (head + 1) * QUERY_HEADS // KV_HEADS)
    rng = np.random.default_rng([member.seed, layer, position])
    query = rng.standard_normal((QUERY_HEADS, DIM)).astype(np.float32)
    keys = np.stack(member.keys[layer][:position + 1]).astype(np.float32)[:, head]
    weights = np.exp(query[group] @ keys.T / np.sqrt(DIM))
    weights /= weights.sum(-1, keepdims=True)
    return float((weights[:, :4].sum(-1) + weights[:, position - 15:].sum(-1)).mean())


@pytest.mark.parametrize("every", [1, 3])
def test_mass_is_the_share_of_the_softmax(every):
    steps, turns = 9, LAYERS * KV_HEADS
    [member] = decode({"stats.mass_every": every}, steps)
    stats = TerraceStats.of([member.sequence.counters()], {})
    # The first sample comes with the step of that number; KV heads of all layers take turns.
    expected = [mass_of(member, *divmod(5 * number % turns, KV_HEADS), 60 + step)
                for number, step in enumerate(range(every - 1, steps, every))]
    assert stats.mass_samples == len(expected)
    assert stats.attention_mass == pytest.approx(np.mean(expected), abs=1e-5)
    assert f"with {100 * stats.attention_mass:.1f} % of the attention's mass" in str(stats)


def test_mass_is_a_mean_over_samples_of_all_sequences():
    members = decode({"stats.mass_every": 1}, 4, seeds=(0, 1))
    counters = [member.sequence.counters() for member in members]
    closed = {}
    add_counters(closed, counters[0])
    stats = TerraceStats.of(counters[1:], closed)
    assert stats.mass_samples == 8
    assert stats.attention_mass == pytest.approx(
        sum(one["attention_mass"] for one in counters) / 8)


def test_there_is_no_mass_without_samples():
    [member] = decode({}, 4)
    for stats in (TerraceStats.of([member.sequence.counters()], {}), TerraceStats.of([], {})):
        assert (stats.attention_mass, stats.mass_samples) == (None, 0)
        assert "mass" not in str(stats)


def test_without_a_cache_there_is_no_hit_rate():
    oracle = {"retrieval.policy": "oracle", "index.until_ready": "wait"}
    [without] = decode(oracle, 4, prompt=200)
    stats = TerraceStats.of([without.sequence.counters()], {})
    assert stats.rows_missed > 0
    assert stats.cache_tokens == 0 and stats.hit_rate is None and "no cache" in str(stats)
    [cached] = decode({**oracle, "cache.tokens": 64}, 4, prompt=200)
    stats = TerraceStats.of([cached.sequence.counters()], {})
    assert stats.cache_tokens == 64 and stats.hit_rate is not None and "% hits" in str(stats)
