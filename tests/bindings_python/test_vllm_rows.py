"""The sequences of vLLM's plugin, without vLLM: whatever becomes of pages, outputs are those of the
rows that lie there now."""

import numpy as np
import pytest
import torch
from engine import DIM, KV_HEADS, LAYERS, QUERY_HEADS, attend, open_runtime
from terrace.vllm.pages import Layout, Pages
from terrace.vllm.serving import Row, Serving, more_than_rows
from terrace.vllm.settings import Settings

TOKENS = 16  # of a block


def write_transposed(keys, values, block):
    """Keys of a head [head_dim, tokens], then values [tokens, head_dim], as vLLM on many CPUs."""
    halves = block.view(2, -1)
    halves[0] = keys[:, 0].T.flatten()
    halves[1] = values[:, 0].flatten()


class Engine:
    """Pages, requests whose rows lie there, and attention over all rows of a request."""

    def __init__(self, runtime, blocks=40):
        self.caches = torch.zeros((LAYERS, blocks, KV_HEADS, TOKENS, 2 * DIM))
        layout = Layout.ask(write_transposed, TOKENS, DIM, torch.float32)
        self.serving = Serving(runtime, Pages(lambda layer: self.caches[layer], layout))
        self.rows = {}     # of requests: keys and values [layers, 2, tokens, heads, dim]
        self.blocks = {}
        self.random = torch.Generator().manual_seed(1)

    def draw(self, *shape):
        return torch.randn(shape, generator=self.random)

    def add(self, name, tokens, blocks):
        """A request, whose prompt the engine has computed."""
        self.rows[name] = self.draw(LAYERS, 2, tokens, KV_HEADS, DIM)
        self.blocks[name] = blocks
        self.write(name)

    def write(self, name):
        rows = self.rows[name]
        for position in range(rows.shape[2]):
            block, at = divmod(position, TOKENS)
            for head in range(KV_HEADS):
                halves = self.caches[:, self.blocks[name][block], head].view(LAYERS, 2, -1)
                halves[:, 0].view(LAYERS, DIM, TOKENS)[:, :, at] = rows[:, 0, position, head]
                halves[:, 1].view(LAYERS, TOKENS, DIM)[:, at] = rows[:, 1, position, head]

    def decode(self, *names, layers=LAYERS):
        """Each request decodes a token. Returns the largest error; None: Terrace took no part."""
        for name in names:
            new = self.draw(LAYERS, 2, 1, KV_HEADS, DIM)
            self.rows[name] = torch.cat([self.rows[name], new], 2)
            self.write(name)
        turn = self.serving.begin([Row(name, self.rows[name].shape[2], list(self.blocks[name]))
                                   for name in names])
        if turn is None:
            return None
        worst = 0.0
        for layer in range(layers):
            query = self.draw(len(names), QUERY_HEADS, DIM)
            last = torch.stack([self.rows[name][layer, :, -1] for name in names])
            output = torch.empty_like(query)
            assert turn.attend(layer, query, last[:, 0].contiguous(), last[:, 1].contiguous(),
                               output)
            for place, name in enumerate(names):
                keys, values = self.rows[name][layer].numpy()
                expected = attend(query[place:place + 1].numpy(), keys, values)
                worst = max(worst, float(np.abs(expected - output[place].numpy()).max()))
        return worst


@pytest.fixture
def engine(runtime):
    return Engine(runtime)


POLICIES = ["pqcache", "wave", "signs", "quest", "clusterkv", "full"]


def done(engine):
    stats = engine.serving.stats()
    return stats.rows_taken, stats.mismatches


@pytest.mark.parametrize("policy", POLICIES)
def test_rows_come_from_pages_once(policy):
    runtime = open_runtime({"retrieval.policy": policy})
    assert more_than_rows(runtime) is None
    engine = Engine(runtime)
    engine.add("a", 70, [3, 1, 7, 0, 5, 9])
    engine.add("b", 60, [2, 4, 6, 8, 10])
    for _ in range(5):
        assert engine.decode("a", "b") < 1e-5
    assert engine.decode("b") < 1e-5
    assert done(engine) == (70 + 60, 0)


def test_prompts_longer_than_a_piece(runtime):
    engine = Engine(runtime, blocks=80)
    engine.add("a", 1200, list(range(79)))
    assert engine.decode("a") < 1e-5
    assert done(engine) == (1200, 0)


def test_a_pass_that_breaks_off_is_made_up_for(engine):
    engine.add("a", 40, [0, 1, 2, 3])
    engine.decode("a")
    assert engine.decode("a", layers=1) < 1e-5
    assert engine.decode("a") < 1e-5
    assert done(engine) == (40 + 1, 0)


def test_layers_that_come_out_of_order_are_the_engines(engine):
    engine.add("a", 40, [0, 1, 2, 3])
    turn = engine.serving.begin([Row("a", 40, [0, 1, 2, 3])])
    rows = torch.zeros((1, KV_HEADS, DIM))
    query = torch.zeros((1, QUERY_HEADS, DIM))
    assert not turn.attend(1, query, rows, rows, torch.empty_like(query))
    assert not turn.attend(0, query, rows, rows, torch.empty_like(query))


def test_another_request_of_the_same_name_and_pages(engine):
    engine.add("a", 40, [0, 1, 2, 3])
    engine.decode("a")
    engine.add("a", 41, [0, 1, 2, 3])  # the rows are others
    assert engine.decode("a") < 1e-5
    assert done(engine) == (40 + 41, 1)


def test_the_same_request_in_other_pages(engine):
    engine.add("a", 40, [0, 1, 2, 3])
    engine.decode("a")
    engine.blocks["a"] = [8, 1, 2, 3]
    engine.rows["a"][:, :, :TOKENS] += 1
    engine.write("a")
    assert engine.decode("a") < 1e-5
    assert done(engine) == (40 + 41, 1)


def test_a_request_that_became_shorter(engine):
    engine.add("a", 40, [0, 1, 2, 3])
    for _ in range(4):
        engine.decode("a")
    engine.rows["a"] = engine.rows["a"][:, :, :41]
    assert engine.decode("a") < 1e-5
    assert done(engine) == (40 + 41, 1)


def test_requests_that_have_ended_are_closed(engine, runtime):
    engine.add("a", 40, [0, 1, 2, 3])
    engine.decode("a")
    engine.serving.forget({"a", "never seen"})
    assert runtime.sequences == 0
    assert engine.serving.stats().of_sequences.attended == 41


def test_the_attentions_mass_is_sampled():
    engine = Engine(open_runtime({"stats.mass_every": 2}))
    engine.add("a", 70, [3, 1, 7, 0, 5, 9])
    for _ in range(6):
        engine.decode("a")
    of_sequences = engine.serving.stats().of_sequences
    assert of_sequences.mass_samples == 3
    assert of_sequences.attention_mass == pytest.approx(1, abs=1e-5)  # all tokens fit the budget


def test_want_of_memory_leaves_a_request_to_the_engine():
    engine = Engine(open_runtime({"host.memory": "4MiB"}), blocks=400)
    engine.add("long", 4000, list(range(100, 360)))
    assert engine.decode("long") is None
    engine.add("short", 20, [0, 1])
    assert engine.decode("short") < 1e-5
    assert engine.serving.stats().refused == {"OutOfMemory": 1}
    assert engine.decode("long") is None  # is not tried again
    assert engine.serving.stats().refused == {"OutOfMemory": 1}
    engine.serving.forget({"long"})
    assert engine.decode("long") is None
    assert engine.serving.stats().refused == {"OutOfMemory": 2}


def test_pages_of_rounded_numbers_have_no_layout():
    def rounds(keys, values, block):
        write_transposed(keys // 2 * 2, values, block)

    assert Layout.ask(rounds, TOKENS, DIM, torch.float32) is None


@pytest.mark.parametrize("settings, wanted", [
    ({"retrieval.policy": "qpq"}, "query_window_tokens"),
    ({"retention.policy": "h2o", "retrieval.policy": "streaming"}, "to see all queries")])
def test_policies_that_need_more_than_rows_are_known(settings, wanted):
    assert more_than_rows(open_runtime(settings)) == wanted


def test_variables_win_over_the_file(tmp_path, monkeypatch):
    file = tmp_path / "settings.yaml"
    file.write_text("retrieval.budget: 7\nretrieval.prompts: retrieved\nseed: 3\n")
    monkeypatch.setenv("TERRACE_RETRIEVAL_BUDGET", "9")
    monkeypatch.setenv("TERRACE_VLLM_MIN_TOKENS", "20")
    assert Settings.read() is None
    monkeypatch.setenv("TERRACE_CONFIG", str(file))
    settings = Settings.read()
    assert settings.min_tokens == 20
    keys = ("retrieval.budget", "seed", "retrieval.prompts", "backend")
    assert [settings.config[key] for key in keys] == ["9", "3", "exact", "host"]
