"""The sequences of vLLM's plugin, without vLLM: whatever becomes of pages, outputs are those of the
rows that lie there now."""

import copy
import pickle

import numpy as np
import pytest
import terrace
import torch
from engine import DIM, KV_HEADS, LAYERS, QUERY_HEADS, attend, open_runtime
from terrace.vllm.ledger import Ledger
from terrace.vllm.pages import Layout, Pages
from terrace.vllm.serving import Row, Serving, more_than_rows
from terrace.vllm.settings import Settings
from terrace.vllm.shelf import Kept, Shelf

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
        self.ledger = Ledger()
        self.serving = Serving(runtime, Pages(lambda layer: self.caches[layer], layout),
                               self.ledger)
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

    def give_back(self, name):
        """The engine takes the pages of rows that Terrace holds, and writes others there."""
        pages = self.ledger.held(name) // TOKENS
        self.ledger.give_back(name, pages * TOKENS, pages)
        self.caches[:, self.blocks[name][:pages]] = torch.nan

    def append(self, name):
        self.rows[name] = torch.cat([self.rows[name], self.draw(LAYERS, 2, 1, KV_HEADS, DIM)], 2)
        kept = self.ledger.given_back(name) // TOKENS
        pages = self.caches[:, self.blocks[name][:kept]].clone()
        self.write(name)
        self.caches[:, self.blocks[name][:kept]] = pages

    def row(self, name):
        return Row(name, self.rows[name].shape[2], list(self.blocks[name]))

    def decode_alone(self, name):
        """As decode(), for a request that no step can serve. Returns the largest error."""
        self.append(name)
        assert self.serving.begin([self.row(name)]) is None
        return self.error_alone(name)

    def error_alone(self, name):
        worst = 0.0
        for layer in range(LAYERS):
            query = self.draw(1, QUERY_HEADS, DIM)
            expected = attend(query.numpy(), *self.rows[name][layer].numpy())
            output = self.serving.attend_exactly(layer, self.row(name), query[0])
            worst = max(worst, float(np.abs(expected - output.numpy()).max()))
        return worst

    def decode(self, *names, layers=LAYERS):
        """Each request decodes a token. Returns the largest error; None: Terrace took no part."""
        for name in names:
            self.append(name)
        turn = self.serving.begin([self.row(name) for name in names])
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


@pytest.mark.parametrize("policy", POLICIES)
def test_pages_of_rows_that_are_held_can_be_given_back(policy):
    engine = Engine(open_runtime({"retrieval.policy": policy}))
    engine.add("a", 70, [3, 1, 7, 0, 5, 9])
    engine.add("b", 60, [2, 4, 6, 8, 10])
    assert not engine.serving.lacks_pages("a")
    for _ in range(12):
        assert engine.decode("a", "b") < 1e-5
        engine.give_back("a")
    assert engine.ledger.given_back("a") == 80  # of 82 tokens, but the newest keeps its page
    assert engine.ledger.given_back("b") == 0
    assert engine.serving.lacks_pages("a") and not engine.serving.lacks_pages("b")
    assert engine.serving.stats().pages_given_back >= 5
    assert done(engine) == (70 + 60, 0)


def test_a_request_without_pages_goes_on_when_it_is_refused(engine):
    engine.add("a", 70, [3, 1, 7, 0, 5, 9])
    engine.decode("a")
    engine.give_back("a")
    engine.serving.refuse(["a"], terrace.OutOfMemory("no room"))
    for _ in range(3):
        assert engine.decode_alone("a") < 1e-5
        engine.give_back("a")
    assert engine.ledger.given_back("a") == 64  # no more
    engine.serving.forget({"a"})
    assert engine.serving.runtime.sequences == 0
    assert engine.ledger.given_back("a") == 0
    engine.add("a", 20, [3, 1])
    assert engine.decode("a") < 1e-5


def test_a_request_with_pages_is_the_engines_when_it_is_refused(engine):
    engine.add("a", 70, [3, 1, 7, 0, 5, 9])
    engine.decode("a")
    engine.serving.refuse(["a"], terrace.OutOfMemory("no room"))
    assert engine.ledger.held("a") == 0
    assert not engine.serving.lacks_pages("a")
    assert engine.serving.runtime.sequences == 0


def test_a_pass_that_breaks_off_is_made_up_for_without_pages(engine):
    engine.add("a", 70, [3, 1, 7, 0, 5, 9])
    engine.decode("a")
    engine.give_back("a")
    engine.decode("a", layers=1)
    engine.serving.give_up()
    assert engine.error_alone("a") < 1e-5
    assert engine.decode("a") < 1e-5
    assert done(engine) == (70 + 1, 0)


def test_rows_without_pages_are_never_copied_anew(engine):
    engine.add("a", 70, [3, 1, 7, 0, 5, 9])
    engine.decode("a")
    engine.give_back("a")
    engine.rows["a"][:, :, -1] += 1
    engine.write("a")
    with pytest.raises(RuntimeError, match="first pages were given back"):
        engine.decode("a")


def test_a_ledger_stays_in_its_process():
    ledger = Ledger()
    ledger.hold("a", 7)
    assert copy.deepcopy(ledger) is ledger
    assert pickle.loads(pickle.dumps(ledger)).held("a") == 0


def tokens(*numbers):
    return np.array(numbers, np.int64)


def shelved(policy="pqcache", limit=1000, **settings):
    """An engine whose request "old" of 72 tokens has ended, and lies on the shelf."""
    engine = Engine(open_runtime({"retrieval.policy": policy, **settings}), blocks=400)
    engine.ledger.shelf.limit = limit
    engine.add("old", 70, [3, 1, 7, 0, 5, 9])
    engine.decode("old")
    engine.decode("old")
    engine.serving.shelve("old", np.arange(80))
    return engine


def begin_with(engine, kept, count):
    """A request "new" that begins with `count` tokens of "old", of which two pages are there."""
    rows = engine.rows["old"][:, :, :count]
    engine.add("new", 2 * TOKENS, [20, 21, 22, 23, 24, 25])
    engine.rows["new"][:] = rows[:, :, :2 * TOKENS]
    engine.write("new")
    engine.serving.bring("new", kept.sequence, 2 * TOKENS, count, engine.blocks["new"])
    pages = engine.caches[:, engine.blocks["new"]].clone()
    engine.rows["new"] = rows
    engine.write("new")
    assert torch.equal(engine.caches[:, engine.blocks["new"]], pages)


@pytest.mark.parametrize("policy", POLICIES)
def test_a_request_that_begins_alike_goes_on_with_a_fork(policy):
    engine = shelved(policy)
    found = np.concatenate([np.arange(66), tokens(1, 2, 3)])
    kept, count = engine.ledger.shelf.find("new", found, None)
    assert count == 66
    begin_with(engine, kept, 4 * TOKENS)
    engine.rows["new"] = torch.cat([engine.rows["new"], engine.draw(LAYERS, 2, 9, KV_HEADS, DIM)],
                                   2)
    engine.write("new")
    for _ in range(3):
        assert engine.decode("new") < 1e-5
    assert done(engine) == (70 + 9, 0)
    assert engine.serving.stats().rows_brought == 2 * TOKENS
    engine.serving.shelve("new", np.concatenate([found[:64], np.arange(20)]))
    begin_with(engine, engine.ledger.shelf.find("new", np.arange(72), None)[0], 4 * TOKENS)


def test_a_request_that_lost_its_pages_finds_its_own_sequence():
    engine = shelved()
    engine.add("a", 70, [3, 1, 7, 0, 5, 9])
    engine.decode("a")
    engine.serving.forget({"a"})
    assert engine.ledger.shelf.find("b", np.arange(90), None)[1] == 72  # not "a"
    kept, count = engine.ledger.shelf.find("a", np.arange(1000, 1090), None)
    assert count == 71
    engine.rows["old"] = engine.rows["a"]
    begin_with(engine, kept, 4 * TOKENS)
    engine.serving.shelve("a", np.arange(500, 571))  # it ended without coming back
    assert engine.ledger.shelf.find("b", np.arange(500, 540), None)[1] == 40


def test_the_shelf_keeps_what_was_of_use_last():
    shelf = Shelf(limit=100)
    for number in range(3):
        shelf.put(str(number), Kept(None, 30, np.arange(30) + number))
    assert shelf.find("x", np.arange(40), None)[1] == 30
    shelf.put("3", Kept(None, 30, np.arange(30) + 3, "salt"))
    starts = [shelf.find("x", np.arange(40) + number, None)[1] for number in range(4)]
    assert starts == [30, 0, 30, 0]  # "1" has gone, and "3" is of another salt
    assert shelf.find("x", np.arange(40) + 3, "salt")[1] == 30
    shelf.put("huge", Kept(None, 101, None))
    assert len(shelf) == 0 and not shelf.drop_oldest()


def test_sequences_on_the_shelf_make_room():
    engine = shelved(limit=10**6, **{"host.memory": "4MiB"})
    engine.add("long", 1800, list(range(100, 214)))
    assert len(engine.ledger.shelf) == 1
    assert engine.decode("long") < 1e-5
    engine.serving.shelve("long", np.arange(1801))
    assert len(engine.ledger.shelf) == 2
    engine.add("next", 1800, list(range(220, 334)))
    assert engine.decode("next") < 1e-5
    assert len(engine.ledger.shelf) == 0
    assert engine.serving.stats().refused == {}


def test_without_a_limit_nothing_is_kept(engine):
    engine.add("a", 40, [0, 1, 2, 3])
    engine.decode("a")
    engine.serving.shelve("a", np.arange(41))
    assert engine.serving.runtime.sequences == 0


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
