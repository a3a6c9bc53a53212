"""The sequences of vLLM's plugin, without vLLM: for all fates of pages, outputs are those of the
rows that lie there now."""

import gc

import numpy as np
import pytest
import terrace
import torch
from engine import DIM, KV_HEADS, LAYERS, QUERY_HEADS, attend, open_runtime
from terrace.vllm import plugin, serving
from terrace.vllm.ledger import Orders, Prefix
from terrace.vllm.pages import Layout, Pages
from terrace.vllm.serving import Row, Serving, more_than_rows
from terrace.vllm.settings import Settings
from test_daemon_prefix import node_of  # noqa: F401, the fixture node

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
        self.held, self.given_back = {}, {}
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

    def end(self, *names, laid_aside=(), wanted=()):
        """Requests have ended; of some the sequences are laid aside."""
        for name in names:
            self.held.pop(name, None)
            self.given_back.pop(name, None)
        self.serving.obey(Orders(laid_aside=list(laid_aside)), set(names), set(wanted))

    def give_back(self, name):
        """The engine takes the pages of rows that Terrace holds, and writes others there."""
        self.held.update(self.serving.report().held)
        pages = self.held.get(name, 0) // TOKENS
        self.given_back[name] = pages * TOKENS
        self.serving.obey(Orders(given_back={name: pages * TOKENS}), set(), set())
        self.caches[:, self.blocks[name][:pages]] = torch.nan

    def append(self, name):
        self.rows[name] = torch.cat([self.rows[name], self.draw(LAYERS, 2, 1, KV_HEADS, DIM)], 2)
        kept = self.given_back.get(name, 0) // TOKENS
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
    engine.end("a", "never seen")
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
    engine.end("long")
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
    assert engine.given_back == {"a": 80}  # of 82 tokens, but the newest keeps its page
    assert engine.serving.lacks_pages("a") and not engine.serving.lacks_pages("b")
    assert engine.serving.stats().pages_given_back == 5
    assert done(engine) == (70 + 60, 0)


def test_a_request_without_pages_goes_on_when_it_is_refused(engine):
    engine.add("a", 70, [3, 1, 7, 0, 5, 9])
    engine.decode("a")
    engine.give_back("a")
    engine.serving.refuse(["a"], terrace.OutOfMemory("no room"))
    for _ in range(3):
        assert engine.decode_alone("a") < 1e-5
        engine.give_back("a")
    assert engine.given_back == {"a": 64}  # no more
    assert engine.serving.stats().exact_tokens == 3
    engine.end("a")
    assert engine.serving.runtime.sequences == 0
    engine.add("a", 20, [3, 1])
    assert engine.decode("a") < 1e-5


def test_a_request_with_pages_is_the_engines_when_it_is_refused(engine):
    engine.add("a", 70, [3, 1, 7, 0, 5, 9])
    engine.decode("a")
    engine.serving.refuse(["a"], terrace.OutOfMemory("no room"))
    assert engine.serving.report().held == {"a": 0}
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


def test_nothing_is_lent_where_heads_are_in_several_processes(runtime):
    engine = Engine(runtime)
    engine.serving.lends = False
    engine.add("a", 70, [3, 1, 7, 0, 5, 9])
    engine.decode("a")
    assert engine.serving.report().held == {}


def with_one_aside(policy="pqcache", **settings):
    """An engine whose request "old" of 72 tokens has ended, and is laid aside."""
    engine = Engine(open_runtime({"retrieval.policy": policy, **settings}), blocks=400)
    engine.add("old", 70, [3, 1, 7, 0, 5, 9])
    engine.decode("old")
    engine.decode("old")
    engine.end("old", laid_aside=["old"])
    return engine


def begin_with_old(engine, count):
    """A request "new" that begins with `count` tokens of "old" and has two pages of them."""
    rows = engine.rows["old"][:, :, :count]
    engine.add("new", 2 * TOKENS, [20, 21, 22, 23, 24, 25])
    engine.rows["new"][:] = rows[:, :, :2 * TOKENS]
    engine.write("new")
    engine.serving.bring("new", "old", 2 * TOKENS, count, engine.blocks["new"])
    pages = engine.caches[:, engine.blocks["new"]].clone()
    engine.rows["new"] = rows
    engine.write("new")
    assert torch.equal(engine.caches[:, engine.blocks["new"]], pages)


@pytest.mark.parametrize("policy", POLICIES)
def test_a_request_that_begins_alike_goes_on_with_a_fork(policy):
    engine = with_one_aside(policy)
    for _ in range(2):
        begin_with_old(engine, 4 * TOKENS)
        engine.rows["new"] = torch.cat(
            [engine.rows["new"], engine.draw(LAYERS, 2, 9, KV_HEADS, DIM)], 2)
        engine.write("new")
        for _ in range(3):
            assert engine.decode("new") < 1e-5
        engine.end("new")
    assert done(engine) == (70 + 2 * 9, 0)
    assert engine.serving.stats().rows_brought == 2 * 2 * TOKENS


def test_rows_that_cannot_be_brought_are_no_longer_kept(monkeypatch):
    engine = with_one_aside()

    def fail(*_):
        raise terrace.StoreError("the rows are gone")

    monkeypatch.setattr(Serving, "_read", fail)
    with pytest.raises(terrace.StoreError):
        begin_with_old(engine, 4 * TOKENS)
    assert engine.serving.report().dropped == ["old"]
    assert engine.serving.runtime.sequences == 0


def test_sequences_that_were_laid_aside_make_room():
    engine = with_one_aside(**{"host.memory": "4MiB"})
    engine.add("long", 1800, list(range(100, 214)))
    assert engine.decode("long") < 1e-5
    engine.end("long", laid_aside=["long"])
    assert engine.serving.report().dropped == []
    engine.add("next", 1800, list(range(220, 334)))
    assert engine.decode("next") < 1e-5
    assert engine.serving.report().dropped == ["old", "long"]
    assert engine.serving.stats().refused == {}


def test_a_sequence_that_a_pass_wants_does_not_make_room():
    engine = with_one_aside(**{"host.memory": "4MiB"})
    engine.end(wanted=["old"])
    engine.add("huge", 4000, list(range(100, 360)))
    assert engine.decode("huge") is None
    begin_with_old(engine, 4 * TOKENS)
    assert engine.decode("new") < 1e-5


def with_file(path, **settings):
    """An engine whose prompts a file keeps."""
    return Engine(open_runtime({"tier.nvme.path": path, "tier.nvme.bytes": "8MiB",
                                "tier.model": "weights", "tier.chunk_tokens": 32,
                                "kv.block_tokens": 8, **settings}))


IDS = np.arange(200, 300)


def publish_old(engine, tokens=70, salt=None):
    """A request "old" decodes two tokens and ends; nothing of it is laid aside."""
    engine.add("old", tokens, list(range(-(-(tokens + 2) // TOKENS))))
    for _ in range(2):
        engine.decode("old")
    ids = np.arange(200, 200 + tokens + 1)
    engine.serving.obey(Orders(published=[Prefix("old", ids, salt)]), {"old"}, set())


def ask(engine, ids=IDS, salt=None, known=0):
    """Returns how many tokens the file has, which are laid aside then."""
    assert not engine.serving.has_answers
    engine.serving.obey(Orders(asked=[Prefix("new", ids, salt, known)]), set(), set())
    assert engine.serving.has_answers
    return engine.serving.report().found["new"]


@pytest.mark.parametrize("policy", POLICIES[:-1])
def test_a_later_process_is_brought_what_an_earlier_one_has_published(tmp_path, policy):
    first = with_file(tmp_path / "rows", **{"retrieval.policy": policy})
    publish_old(first, salt="user")
    assert first.serving.stats().bytes_published > 64 * LAYERS * KV_HEADS * 2 * DIM * 4
    rows = first.rows["old"]
    first.serving.runtime.close()
    del first
    gc.collect()
    second = with_file(tmp_path / "rows", **{"retrieval.policy": policy})
    assert ask(second, salt="another") == 0
    assert ask(second, salt="user") == 64
    second.rows["new"] = rows[:, :, :64]
    second.blocks["new"] = [20, 21, 22, 23, 24]
    second.serving.bring("new", "prefix of new", 0, 64, second.blocks["new"])
    brought = second.caches[:, second.blocks["new"]].clone()
    second.write("new")
    assert torch.equal(second.caches[:, second.blocks["new"]], brought)
    for _ in range(3):
        assert second.decode("new") < 1e-5
    assert (second.serving.stats().rows_found, done(second)) == (64, (0, 0))


def test_engines_of_one_daemon_find_what_each_has_published(node):
    node.start()
    places = {"tier.model": "weights", "tier.chunk_tokens": 32, "kv.block_tokens": 8,
              "daemon.socket": node.socket, "daemon.deadline": "100s"}
    first, second = (Engine(open_runtime(places)) for _ in range(2))
    publish_old(first, salt="user")
    assert ask(second, salt="another") == 0
    assert ask(second, salt="user") == 64
    second.rows["new"] = first.rows["old"][:, :, :64]
    second.blocks["new"] = [20, 21, 22, 23, 24]
    second.serving.bring("new", "prefix of new", 0, 64, second.blocks["new"])
    second.write("new")
    assert second.decode("new") < 1e-5


def test_the_file_gives_nothing_that_is_known(tmp_path):
    engine = with_file(tmp_path / "rows")
    publish_old(engine)
    assert ask(engine, known=64) == 0
    assert ask(engine, IDS[:63], known=16) == 32
    assert ask(engine, IDS + 1) == 0
    assert engine.serving.runtime.sequences == 1  # "prefix of new"


def test_a_full_file_is_a_warning_and_nothing_else(tmp_path, monkeypatch):
    lines = []
    monkeypatch.setattr(serving.LOG, "warning", lambda text, *args: lines.append(text % args))
    engine = with_file(tmp_path / "rows", **{"tier.nvme.bytes": "1MiB"})
    publish_old(engine, tokens=600)
    publish_old(engine, tokens=600)
    assert len(lines) == 2 and all("is not published: " in line for line in lines)
    assert ask(engine, np.arange(200, 800)) > 0
    engine.add("next", 70, list(range(5)))
    assert engine.decode("next") < 1e-5


def test_a_runtime_without_a_file_publishes_and_finds_nothing(monkeypatch):
    lines = []
    monkeypatch.setattr(serving.LOG, "warning", lambda text, *args: lines.append(text % args))
    engine = Engine(open_runtime())
    publish_old(engine)
    assert len(lines) == 1 and "tier.nvme.path" in lines[0]
    assert ask(engine) == 0


def test_settings_keep_prefixes_with_a_file_and_a_model(tmp_path):
    file = tmp_path / "settings.yaml"
    file.write_text("tier: {nvme.path: /rows, chunk_tokens: 64, rope: words}\n")
    read = Settings.read({"TERRACE_CONFIG": str(file)})
    assert (read.model, read.rope, read.chunk_tokens) == ("", "words", 0)
    file.write_text("tier: {model: weights, chunk_tokens: 64}\n")
    assert Settings.read({"TERRACE_CONFIG": str(file)}).chunk_tokens == 0
    file.write_text("tier: {nvme.path: /rows, model: weights, chunk_tokens: 64}\n")
    assert Settings.read({"TERRACE_CONFIG": str(file)}).chunk_tokens == 64


def test_pages_of_rounded_numbers_have_no_layout():
    def rounds(keys, values, block):
        write_transposed(keys // 2 * 2, values, block)

    assert Layout.ask(rounds, TOKENS, DIM, torch.float32) is None


@pytest.mark.parametrize("settings, wanted", [
    ({"retrieval.policy": "qpq"}, "query_window_tokens"),
    ({"retention.policy": "h2o", "retrieval.policy": "streaming"}, "to see all queries")])
def test_policies_that_need_more_than_rows_are_known(settings, wanted):
    assert more_than_rows(open_runtime(settings)) == wanted


@pytest.fixture
def said(monkeypatch):
    """Collects warnings, because vLLM's logger does not pass records on."""
    lines = []
    monkeypatch.setattr(plugin.LOG, "warning", lambda text, *args: lines.append(text % args))
    return lines


def test_variables_win_over_the_file(tmp_path, monkeypatch, said):
    file = tmp_path / "settings.yaml"
    file.write_text("retrieval.budget: 7\nseed: 3\n")
    monkeypatch.setenv("TERRACE_RETRIEVAL_BUDGET", "9")
    monkeypatch.setenv("TERRACE_VLLM_MIN_TOKENS", "20")
    assert Settings.read() is None
    monkeypatch.setenv("TERRACE_CONFIG", str(file))
    settings = Settings.read()
    assert settings.min_tokens == 20
    keys = ("retrieval.budget", "seed", "retrieval.prompts", "backend")
    assert [settings.config[key] for key in keys] == ["9", "3", "exact", "host"]
    assert not said


def test_settings_that_have_no_effect_are_warned_of(tmp_path, monkeypatch, said):
    monkeypatch.setenv("TERRACE_VLLM_MIN_TOKENS", "20")
    plugin.register()
    assert said == ["TERRACE_VLLM_MIN_TOKENS is set, and TERRACE_CONFIG is not: vLLM goes on with "
                    "its own attention. Have TERRACE_CONFIG name a file of settings, or unset "
                    "TERRACE_VLLM_MIN_TOKENS"]
    file = tmp_path / "settings.yaml"
    file.write_text("retrieval.prompts: retrieved\nbackend: cuda\n")
    settings = Settings.read({"TERRACE_CONFIG": str(file)})
    assert said[1:] == ["backend is cuda, and host with vLLM: leave it out",
                        "retrieval.prompts is retrieved, and exact with vLLM: leave it out"]
    assert (settings.config["backend"], settings.config["retrieval.prompts"]) == ("host", "exact")
