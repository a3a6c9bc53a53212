"""vLLM with Terrace's plugin gives the texts of vLLM alone, where the budget is as large as the
context, and other texts where Terrace's rows are spoilt."""

import os
import re

import pytest
import vllm_engine
from vllm_engine import SOURCE, metric, texts

vllm_engine.prepare_process()

import terrace.vllm
from terrace.vllm import plugin
from terrace.vllm.pages import Layout, Pages
from terrace.vllm.serving import Serving, Turn
from transformers import AutoTokenizer

TOKENIZER = AutoTokenizer.from_pretrained(vllm_engine.MODEL)
LICENCE = TOKENIZER.encode(SOURCE.joinpath("LICENSE").read_text())
CAPITAL = TOKENIZER.encode("The capital of France is")
# Prompts come in chunks of up to 256 tokens, beside others that decode.
CASES = {
    "several lengths": ([LICENCE[:700], LICENCE[300:840], LICENCE[:100], CAPITAL], 24),
    "a prefix that is in the pages": (
        [LICENCE[:640] + TOKENIZER.encode("\n\nSummary:"), LICENCE[:700] + CAPITAL], 12),
    "short ones alone": ([CAPITAL, LICENCE[200:400]], 8),
    # 4 times 5 of the 23 pages, and 4 times 6 when all are as long as they get, if vLLM has to keep
    # them all.
    "as many as there are pages for": ([LICENCE[at:at + 630] for at in (30, 150, 300, 450)], 24),
    # The first requests, which vLLM serves itself, grow until the long one after them loses its
    # last page.
    "more than there are pages for": (
        [LICENCE[at:at + 340] for at in range(0, 350, 50)] + [LICENCE[200:830]], 70),
}
FIRST = "several lengths"


class Run:
    """A model, and the texts of all cases."""

    def __init__(self) -> None:
        self.llm = vllm_engine.load()
        self.hits, self.preemptions, self.done = {}, {}, {}
        self.texts = {name: self.texts_of(name) for name in CASES}

    def texts_of(self, name: str) -> list[str]:
        hits, preemptions = self.counts()
        before = terrace.vllm.stats()
        found = texts(self.llm, *CASES[name])
        after = terrace.vllm.stats()
        self.hits[name] = self.counts()[0] - hits
        self.preemptions[name] = self.counts()[1] - preemptions
        self.done[name] = {field: getattr(after, field) - getattr(before, field)
                           for field in ("tokens", "vllm_tokens", "rows_taken", "mismatches",
                                         "pages_given_back")}
        return found

    def counts(self) -> tuple[int, int]:
        return metric(self.llm, "vllm:prefix_cache_hits"), metric(self.llm, "vllm:num_preemptions")


@pytest.fixture(scope="module")
def stock():
    """vLLM has loaded the plugin, and nothing names a file of settings."""
    assert "TERRACE_CONFIG" not in os.environ
    run = Run()
    layers = run.llm.llm_engine.vllm_config.compilation_config.static_forward_context
    assert {type(layer.impl).__name__ for layer in layers.values()} == {"CPUAttentionBackendImpl"}
    assert terrace.vllm.stats().requests == 0
    return run


@pytest.fixture(scope="module")
def served(stock):
    with vllm_engine.served_by_terrace():
        yield Run()


@pytest.mark.parametrize("case", CASES)
def test_texts_are_those_of_vllm(stock, served, case):
    assert served.texts[case] == stock.texts[case]
    done = served.done[case]
    assert (done["tokens"] > 0) == (case != "short ones alone"), done
    assert done["mismatches"] == 0
    assert terrace.vllm.stats().refused == {}


def test_cases_are_what_they_say(stock, served):
    assert served.hits["a prefix that is in the pages"] >= 2 * 640
    assert stock.preemptions["as many as there are pages for"] > 0
    assert served.preemptions["as many as there are pages for"] == 0
    assert served.preemptions["more than there are pages for"] > 0
    several = served.done[FIRST]
    assert several["tokens"] == 2 * 23  # a prompt's last token gives the first
    assert several["vllm_tokens"] == 2 * 23
    assert several["rows_taken"] == 700 + 540
    assert several["pages_given_back"] == 5 + 4  # of 723 and 563 tokens


def test_sequences_of_requests_that_have_ended_are_closed(served):
    texts(served.llm, [CAPITAL], 2)
    assert terrace.vllm.stats().of_sequences.rows == 0


@pytest.mark.parametrize("case", [FIRST, "a prefix that is in the pages"])
def test_spoilt_rows_give_other_texts(stock, served, monkeypatch, case):
    read = Pages.read

    def spoilt(self, layer, *where):
        keys, values = read(self, layer, *where)
        return keys, -values if layer in (3, 20) else values

    monkeypatch.setattr(Pages, "read", spoilt)
    found = served.texts_of(case)
    different = [ours != theirs for ours, theirs in zip(found, stock.texts[case])]
    assert different == [len(prompt) >= 512 for prompt in CASES[case][0]]


def test_passes_that_break_off_are_vllms(stock, served, monkeypatch):
    attend, calls = Turn.attend, iter(range(10**6))

    def breaking(self, layer, *tensors):
        if layer == 7 and next(calls) % 3 == 0:
            self.give_up()
        return attend(self, layer, *tensors)

    monkeypatch.setattr(Turn, "attend", breaking)
    assert served.texts_of(FIRST) == stock.texts[FIRST]
    done = served.done[FIRST]
    assert done["rows_taken"] > 700 + 540  # tokens that vLLM decoded were copied
    assert 0 < done["tokens"] < 2 * 23
    assert done["tokens"] + done["vllm_tokens"] == 4 * 23


def test_sequences_that_fail_are_vllms_until_they_end(stock, served, monkeypatch):
    def fail(*_):
        raise terrace.OutOfMemory("no room")

    monkeypatch.setattr(Pages, "read", fail)
    assert served.texts_of(FIRST) == stock.texts[FIRST]
    assert served.done[FIRST]["tokens"] == 0
    assert terrace.vllm.stats().refused == {"OutOfMemory": 2}


def test_sequences_that_fail_without_pages_go_on(stock, served, monkeypatch):
    attend, calls = Turn.attend, iter(range(10**6))

    def fail(self, layer, *tensors):
        if layer == 7 and next(calls) == 5:
            self._blame(self._names, terrace.OutOfMemory("no room"))
        return attend(self, layer, *tensors)

    monkeypatch.setattr(Turn, "attend", fail)
    assert served.texts_of(FIRST) == stock.texts[FIRST]
    assert served.done[FIRST]["pages_given_back"] > 0
    assert 0 < served.done[FIRST]["tokens"] < 2 * 23
    texts(served.llm, [CAPITAL], 2)
    assert terrace.vllm.stats().of_sequences.rows == 0


def test_spoilt_rows_without_pages_give_other_texts(stock, served, monkeypatch):
    attend_exactly = Serving.attend_exactly
    monkeypatch.setattr(Turn, "attend", lambda self, *_: self.give_up() or False)
    monkeypatch.setattr(Serving, "lacks_pages", lambda self, name: name in self._held)
    assert served.texts_of(FIRST) == stock.texts[FIRST]
    monkeypatch.setattr(Serving, "attend_exactly",
                        lambda self, *where: -attend_exactly(self, *where))
    found = served.texts_of(FIRST)
    different = [ours != theirs for ours, theirs in zip(found, stock.texts[FIRST])]
    assert different == [len(prompt) >= 512 for prompt in CASES[FIRST][0]]


def test_example_attends_to_few_entries():
    output = vllm_engine.run_example(VLLM_ENABLE_V1_MULTIPROCESSING="0")
    found = re.findall(r"(\d+) tokens decoded by Terrace .* tokens, (\d+) entries", output)
    assert found, output[-4000:]
    tokens, entries = map(int, found[-1])  # the log has a line before
    assert tokens == 15 + 31
    assert 0 < entries <= vllm_engine.SMALL_BUDGET


@pytest.mark.parametrize("isa", ["vec", "vec16", "amx"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_layouts_of_vllms_kernels_are_found(isa, dtype):
    import torch
    from vllm import _custom_ops as ops

    if isa == "amx" and (dtype != "bfloat16" or not torch.cpu._is_amx_tile_supported()):
        pytest.skip("no such kernel")
    tokens, dim, heads, blocks = 32, 64, 2, 5
    made = torch.Generator().manual_seed(1)
    rows = [torch.randn((3 * tokens, heads, dim), generator=made).to(getattr(torch, dtype))
            for _ in range(2)]

    def write(keys, values, cache, slots):
        halves = cache.view(len(cache), -1, 2 * tokens, dim).chunk(2, dim=2)
        ops.cpu_attn_reshape_and_cache(keys, values, *halves, slots, isa, k_scale=1.0,
                                       v_scale=1.0, kv_cache_dtype="auto")

    cache = torch.zeros((blocks, heads, tokens, 2 * dim), dtype=rows[0].dtype)
    order = [3, 1, 4]
    slots = torch.cat([torch.arange(tokens) + block * tokens for block in order])
    write(*rows, cache, slots)
    layout = Layout.ask(lambda keys, values, block: write(keys, values, block,
                                                          torch.arange(tokens)),
                        tokens, dim, cache.dtype)
    pages = Pages(lambda layer: cache, layout)
    for first, last in ((0, 96), (5, 6), (31, 33), (40, 90)):
        for found, written in zip(pages.read(0, order, first, last), rows):
            assert torch.equal(found, written[first:last])
    assert torch.equal(pages.row(0, order, 77), torch.stack([one[77, 0] for one in rows]))


def test_another_version_is_left_alone(monkeypatch, caplog):
    import vllm

    monkeypatch.setenv("TERRACE_CONFIG", vllm_engine.write_settings("any.yaml", seed=1))
    monkeypatch.setattr(vllm, "__version__", "0.33.1")
    monkeypatch.setattr("terrace.vllm.adapter.install", lambda settings: pytest.fail("installed"))
    said = []
    monkeypatch.setattr(plugin.LOG, "warning", lambda text, *args: said.append(text % args))
    terrace.vllm.register()
    assert len(said) == 1 and "is for vLLM 0.32, and this is 0.33.1" in said[0]


@pytest.mark.parametrize("variables, message", [
    ({"TERRACE_CONFIG": "/nowhere.yaml"}, "/nowhere.yaml"),
    ({"TERRACE_CONFIG": "seed", "TERRACE_VLLM_MIN_TOKENS": "few"}, "MIN_TOKENS is 'few'")])
def test_settings_that_cannot_be_read_are_errors(monkeypatch, variables, message):
    for name, value in variables.items():
        monkeypatch.setenv(name, vllm_engine.write_settings("any.yaml", seed=1)
                           if value == "seed" else value)
    with pytest.raises(terrace.Error, match=message):
        terrace.vllm.register()
