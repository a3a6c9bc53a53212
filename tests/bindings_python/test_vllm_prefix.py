"""Processes of vLLM that are served one after the other: a later one does not compute the prompts
that an earlier one has published, and its texts are the same."""

import json
import pathlib
import sys

import pytest
import vllm_engine

TOKENS, DECODED = 1500, 12
FOUND = 1280  # of the 1500 + 11 tokens whose rows there are, in chunks of 256


def serve(settings: str, processes: str, *salts: str) -> dict:
    """Runs main() in a process of its own."""
    done = vllm_engine.run_python(__file__, *salts, TERRACE_CONFIG=settings,
                                  VLLM_ENABLE_V1_MULTIPROCESSING=processes)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    return json.loads(next(line for line in done.stdout.splitlines() if line.startswith("{")))


def settings_in(folder: pathlib.Path, name: str, model: str) -> str:
    return vllm_engine.write_settings(
        f"{name}.yaml", retrieval__policy="pqcache", retrieval__budget=4096, tier__model=model,
        tier__nvme__path=folder / "rows", tier__nvme__bytes="512MiB")


@pytest.mark.parametrize("processes", ["0", "1"])
def test_a_prompt_is_brought_that_another_process_has_published(tmp_path, processes):
    settings = settings_in(tmp_path, "first", "weights")
    first = serve(settings, processes, "user")
    assert (first["brought"], (tmp_path / "rows").exists()) == ([0], True)
    second = serve(settings, processes, "user", "another")
    assert second["brought"] == [FOUND, FOUND]  # and none for the other user
    assert second["texts"] == 2 * first["texts"]
    others = serve(settings_in(tmp_path, "others", "other weights"), processes, "user")
    assert (others["brought"], others["texts"]) == ([0], first["texts"])


def main() -> None:
    """Asks for the text of one prompt for each user. The last request, which is short, ends after
    the others were published."""
    from transformers import AutoTokenizer
    from vllm import SamplingParams

    tokens = AutoTokenizer.from_pretrained(vllm_engine.MODEL).encode(
        vllm_engine.SOURCE.joinpath("LICENSE").read_text())
    llm = vllm_engine.load(18, kv_transfer_config=vllm_engine.CONNECTOR)
    texts, brought = [], []
    for salt in sys.argv[1:]:
        answer, = llm.generate([{"prompt_token_ids": tokens[:TOKENS], "cache_salt": salt}],
                               SamplingParams(temperature=0, max_tokens=DECODED), use_tqdm=False)
        texts.append(answer.outputs[0].text)
        brought.append(vllm_engine.metric(llm, "vllm:external_prefix_cache_hits"))
    vllm_engine.texts(llm, [tokens[:20]], 1)
    print(json.dumps({"texts": texts, "brought": brought}))
    if hasattr(llm.llm_engine.engine_core, "shutdown"):
        llm.llm_engine.engine_core.shutdown()  # else Python waits for its process


if __name__ == "__main__":
    main()
