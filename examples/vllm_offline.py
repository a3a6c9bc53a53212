"""Questions about a long text, by vLLM with Terrace:

    pip install '.[vllm]'
    TERRACE_CONFIG=terrace.yaml python examples/vllm_offline.py MODEL TEXT

terrace.yaml:

    retrieval:
      policy: pqcache
      budget: 1024
"""

import os
import sys

# One process, so that stats() sees its counters. Servers leave this out, and read their log.
os.environ.setdefault("VLLM_ENABLE_V1_MULTIPROCESSING", "0")

import terrace.vllm
from vllm import LLM, SamplingParams

QUESTIONS = ["Question: what is this text about?\nAnswer:", "In one sentence, this text says that"]


def main(model: str, path: str) -> None:
    llm = LLM(model=model, enforce_eager=True)
    tokenizer = llm.get_tokenizer()
    with open(path, encoding="utf-8") as file:
        text = tokenizer.encode(file.read())[:llm.model_config.max_model_len // 2]
    prompts = [{"prompt_token_ids": text + tokenizer.encode("\n\n" + question)}
               for question in QUESTIONS]
    limits = [SamplingParams(temperature=0, max_tokens=tokens) for tokens in (16, 32)]
    for question, answer in zip(QUESTIONS, llm.generate(prompts, limits)):
        print(f"{question}{answer.outputs[0].text}\n")
    print(terrace.vllm.stats())


if __name__ == "__main__":
    main(*sys.argv[1:])
