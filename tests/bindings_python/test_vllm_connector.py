"""With Terrace's connector, vLLM does not compute prompts again after it has lost their pages, and
texts are those of vLLM alone."""

import json
import time

import pytest
import vllm_engine
from vllm_engine import SOURCE, metric, texts

vllm_engine.prepare_process()

import terrace.vllm
from terrace.vllm.prefix_log import PrefixLog
from terrace.vllm.serving import Serving
from transformers import AutoTokenizer
from vllm import SamplingParams

TOKENIZER = AutoTokenizer.from_pretrained(vllm_engine.MODEL)
LICENCE = TOKENIZER.encode(SOURCE.joinpath("LICENSE").read_text())
MORE = TOKENIZER.encode("\n\nSummary:")
# Each needs 12 of the 17 pages, so that most of those of the one before are lost.
BLOCKS = 18
FIRST, OTHER = LICENCE[:1500], LICENCE[700:2100]
DECODED = 12
FOUND = 11 * vllm_engine.BLOCK_TOKENS  # of the 1500 + 11 tokens whose rows there are


def second_turn(llm) -> list[str]:
    """Texts of a prompt, of another one, and of a second turn after the first text."""
    first = texts(llm, [FIRST], DECODED)
    other = texts(llm, [OTHER], DECODED)
    return [*first, *other, *texts(llm, [FIRST + TOKENIZER.encode(first[0]) + MORE], DECODED)]


@pytest.fixture(scope="module")
def stock():
    llm = vllm_engine.load(BLOCKS)
    found = second_turn(llm)
    assert metric(llm, "vllm:prefix_cache_hits") < FOUND
    return found


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    """The file that the connector records requests in."""
    return tmp_path_factory.mktemp("trace") / "requests.jsonl"


@pytest.fixture(scope="module")
def served(stock, recorded):
    connector = {**vllm_engine.CONNECTOR, "kv_connector_extra_config": {"trace": str(recorded)}}
    with vllm_engine.served_by_terrace():
        yield vllm_engine.load(BLOCKS, kv_transfer_config=connector)


def test_a_second_turn_is_brought(stock, served):
    assert second_turn(served) == stock
    done = terrace.vllm.stats()
    hits = metric(served, "vllm:prefix_cache_hits")
    assert done.rows_brought > 0
    assert done.rows_brought + hits == FOUND
    assert done.rows_brought == metric(served, "vllm:external_prefix_cache_hits")
    assert done.rows_taken == len(FIRST) + len(OTHER) + (len(FIRST) + DECODED + len(MORE) - FOUND)
    assert done.mismatches == 0 and done.refused == {}


def test_a_request_that_lost_its_pages_goes_on(stock, served):
    served.reset_prefix_cache(reset_connector=True)
    before = terrace.vllm.stats()
    engine = served.llm_engine
    engine.add_request("lost", {"prompt_token_ids": FIRST},
                       SamplingParams(temperature=0, max_tokens=DECODED))
    text = ""
    while engine.has_unfinished_requests():
        for output in engine.step():
            text = output.outputs[0].text
            if len(output.outputs[0].token_ids) == 5:
                engine.reset_prefix_cache(reset_running_requests=True)
    assert text == stock[0]
    done = terrace.vllm.stats()
    assert metric(served, "vllm:num_preemptions") == 1
    assert done.rows_brought - before.rows_brought == FOUND
    assert done.rows_taken - before.rows_taken == len(FIRST) + len(FIRST) + 5 - FOUND


def test_spoilt_rows_give_other_texts(stock, served, monkeypatch):
    read = Serving._read
    monkeypatch.setattr(Serving, "_read", lambda self, *where: -read(self, *where))
    served.reset_prefix_cache()
    found = texts(served, [FIRST + TOKENIZER.encode(stock[0]) + MORE], DECODED)
    assert found != stock[2:]


def test_rows_that_cannot_be_read_fail_the_request(stock, served, monkeypatch):
    def fail(*_):
        raise terrace.StoreError("the rows are gone")

    monkeypatch.setattr(Serving, "_read", fail)
    served.reset_prefix_cache()
    assert texts(served, [FIRST], DECODED) == [""]


def test_requests_are_recorded_until_the_file_has_no_room(served, recorded, monkeypatch):
    before = len(recorded.read_text().splitlines())
    began = int(time.time() * 1000)
    texts(served, [FIRST, FIRST[:600] + MORE], 1)
    requests = [json.loads(line) for line in recorded.read_text().splitlines()[before:]]
    assert [one["input_length"] for one in requests] == [1500, 600 + len(MORE)]
    assert began <= requests[0]["timestamp"] <= requests[1]["timestamp"] <= time.time() * 1000
    first, second = (one["hash_ids"] for one in requests)
    assert (len(first), len(second)) == (6, 3)  # of tier.chunk_tokens, 256
    assert first[:2] == second[:2] and first[2] != second[2]

    def fail(*_):
        raise terrace.StoreError("there is no room")

    monkeypatch.setattr(PrefixLog, "add", fail)
    text = texts(served, [FIRST], 1)
    monkeypatch.undo()
    assert texts(served, [FIRST], 1) == text != [""]
    assert len(recorded.read_text().splitlines()) == before + 2
