"""vLLM runs scheduler and model in processes of their own, as servers do: both load the plugin."""

import json
import re
import sys

import vllm_engine


def test_the_engines_process_decodes_with_terrace():
    output = vllm_engine.run_example(VLLM_ENABLE_V1_MULTIPROCESSING="1")
    # When the first request ends.
    found = re.search(r"Terrace: .* (\d+) tokens decoded by Terrace .* (\d+) pages given back.* "
                      r"tokens, (\d+) entries", output)
    assert found, output[-4000:]
    assert int(found[1]) >= 15
    assert int(found[2]) >= 16
    assert 0 < int(found[3]) <= vllm_engine.SMALL_BUDGET


def test_a_prompt_whose_pages_were_lost_is_brought():
    done = vllm_engine.run_python(__file__, TERRACE_CONFIG=vllm_engine.exact_settings(),
                                  VLLM_ENABLE_V1_MULTIPROCESSING="1")
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    found = json.loads(next(line for line in done.stdout.splitlines() if line.startswith("{")))
    assert found["texts"][0] == found["texts"][2] != found["texts"][1]
    assert found["preemptions"] == 0
    assert found["hits"] + found["brought"] == 11 * vllm_engine.BLOCK_TOKENS
    assert found["brought"] > 0


def test_requests_are_recorded_without_settings(tmp_path):
    requests = tmp_path / "requests.jsonl"
    done = vllm_engine.run_python(__file__, requests, VLLM_ENABLE_V1_MULTIPROCESSING="1")
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    first, other, again = map(json.loads, requests.read_text().splitlines())
    assert [one["input_length"] for one in (first, other, again)] == [1500, 1400, 1500]
    assert first["hash_ids"] == again["hash_ids"]
    assert set(first["hash_ids"]).isdisjoint(other["hash_ids"])


def main() -> None:
    """Asks for the same text twice, and for another one in between. An argument is the file that
    requests are recorded in."""
    from transformers import AutoTokenizer

    tokens = AutoTokenizer.from_pretrained(vllm_engine.MODEL).encode(
        vllm_engine.SOURCE.joinpath("LICENSE").read_text())
    settings = {"trace": sys.argv[1]} if len(sys.argv) > 1 else {}
    llm = vllm_engine.load(18, kv_transfer_config={**vllm_engine.CONNECTOR,
                                                   "kv_connector_extra_config": settings})
    texts = [vllm_engine.texts(llm, [prompt], 12)[0]
             for prompt in (tokens[:1500], tokens[700:2100], tokens[:1500])]
    print(json.dumps({"texts": texts,
                      "preemptions": vllm_engine.metric(llm, "vllm:num_preemptions"),
                      "hits": vllm_engine.metric(llm, "vllm:prefix_cache_hits"),
                      "brought": vllm_engine.metric(llm, "vllm:external_prefix_cache_hits")}))
    llm.llm_engine.engine_core.shutdown()  # else Python waits for its process


if __name__ == "__main__":
    main()
