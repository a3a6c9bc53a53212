#!/usr/bin/env python3
"""Continues a text by a model of Hugging Face transformers with its keys and values in Terrace.

    examples/hf_generate.py --model models/smollm2 --text book.txt --context 4096 --budget 0.1

Prints the continuation, and Terrace's counters. Needs `pip install '.[hf]'`.
"""

import argparse
import pathlib

import torch
import transformers

from terrace.hf import TerraceCache


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", required=True, help="a folder, or a name the hub knows")
    parser.add_argument("--text", type=pathlib.Path, required=True)
    parser.add_argument("--context", type=int, default=2048, help="tokens of the text to read")
    parser.add_argument("--tokens", type=int, default=64, help="tokens to generate")
    parser.add_argument("--policy", default="pqcache")
    parser.add_argument("--budget", default="0.1", help="0.1: a share of the context; 512: tokens")
    parser.add_argument("--wait-for-index", action="store_true",
                        help="attend to few entries from the first token on, not when the index, "
                        "built beside the decoding, is there")
    options = parser.parse_args()

    tokenizer = transformers.AutoTokenizer.from_pretrained(options.model)
    model = transformers.AutoModelForCausalLM.from_pretrained(options.model, dtype=torch.float32)
    inputs = tokenizer(options.text.read_text(errors="replace"), return_tensors="pt",
                       truncation=True, max_length=options.context)

    cache = TerraceCache.for_model(model, policy=options.policy, budget=options.budget,
                                   index_until_ready="wait" if options.wait_for_index else None)
    output = model.generate(**inputs, past_key_values=cache, max_new_tokens=options.tokens,
                            do_sample=False)

    print(tokenizer.decode(output[0, inputs["input_ids"].shape[1]:]))
    print(f"\n{cache.stats()}")


if __name__ == "__main__":
    main()
