"""The measurements in vLLM: the same model, once with its own attention and once with Terrace's.

vLLM keeps the attention of a process's first model, so each cache has a process of its own:
`python -m terrace.bench.vllm`, which reads what to do from standard input as JSON, and prints rows.
"""

import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time
import types

from terrace.bench import needles, texts

OWN = "vllm"
# A prompt's tokens in one pass: as many on one CPU take as long in any case.
PASS_TOKENS = 512


def environment(options, policy: str, folder: str) -> dict[str, str]:
    """Returns the environment of the process of one cache."""
    made = {**os.environ, "VLLM_ENABLE_V1_MULTIPROCESSING": "0", "VLLM_NO_USAGE_STATS": "1",
            "OMP_NUM_THREADS": str(options.threads), "TERRACE_VLLM_MIN_TOKENS": "2"}
    made.setdefault("VLLM_LOGGING_LEVEL", "WARNING")
    made.setdefault("VLLM_CPU_KVCACHE_SPACE", "2")
    made.pop("TERRACE_CONFIG", None)
    if policy != OWN:
        keys = {"retrieval.policy": policy, "retrieval.budget": options.budget,
                "index.until_ready": "wait", **options.set}
        made["TERRACE_CONFIG"] = os.path.join(folder, f"{policy}.yaml")
        with open(made["TERRACE_CONFIG"], "w", encoding="utf-8") as file:
            file.writelines(f"{key}: {value}\n" for key, value in keys.items())
    return made


def reason_in(log: list[str]) -> str:
    """Returns the first line in which Terrace says something, or else the last."""
    said = [line[line.index("Terrace"):] for line in log if "Terrace" in line] + log[-1:]
    return said[0] if said else "no word why"


def rows_of(options, policy: str) -> dict:
    """Returns what the process of one cache found: a row for each context."""
    with tempfile.TemporaryDirectory(prefix="terrace-bench-") as folder:
        asked = {**vars(options), "text": [str(path) for path in options.text], "policy": policy}
        done = subprocess.run([sys.executable, "-m", __name__], input=json.dumps(asked), text=True,
                              capture_output=True, check=False,
                              env=environment(options, policy, folder))
    last = done.stdout.splitlines()[-1] if done.stdout else ""
    if done.returncode != 0 or not last.startswith("{"):
        raise ValueError(f"vLLM with {policy} ended with {done.returncode}: "
                         f"{reason_in((done.stdout + done.stderr).splitlines())}")
    return json.loads(last)


def measure(options, say) -> dict:
    """Returns the report: a row for each context and cache, vLLM's own first."""
    found = {}
    # An unknown policy is reported before vLLM alone is measured.
    for policy in (*options.policy.split(","), OWN):
        say(f"{policy}, {len(options.context)} contexts")
        found[policy] = rows_of(options, policy)
    rows = []
    for at in range(len(options.context)):
        likeliest = found[OWN]["rows"][at]["likeliest"]
        for policy in (OWN, *options.policy.split(",")):
            row = found[policy]["rows"][at]
            same = [ours == theirs for ours, theirs in zip(row.pop("likeliest"), likeliest)]
            rows.append({**row, "agreement": sum(same) / len(same)})
    return {"engine": found[OWN]["engine"], "torch": found[OWN]["torch"],
            "terrace": found[OWN]["terrace"], "model": str(options.model), "dtype": options.dtype,
            "budget": options.budget, "settings": options.set, "tokens": options.tokens,
            "threads": options.threads, "rows": rows}


def make_dictation():
    """Makes the class of a logits processor that scores the tokens of a text, and lets vLLM go on
    with them. The process has one; vLLM makes it."""
    import torch
    from vllm.v1.sample.logits_processor import LogitsProcessor

    class Dictation(LogitsProcessor):
        """text: the tokens to feed, or None: vLLM generates freely."""

        text, nats, likeliest, times, output = None, [], [], [], []

        def __init__(self, vllm_config, device, is_pin_memory):
            pass

        @classmethod
        def begin(cls, text: list[int] | None) -> None:
            cls.text, cls.nats, cls.likeliest, cls.times, cls.output = text, [], [], [], []

        def is_argmax_invariant(self) -> bool:
            return False

        def update_state(self, batch_update) -> None:
            for _, _, _, output in batch_update.added if batch_update else ():
                type(self).output = output  # what was decoded, which vLLM appends to

        def apply(self, logits: torch.Tensor) -> torch.Tensor:
            cls = type(self)
            at = len(cls.output)
            if cls.text is None or at >= len(cls.text):
                return logits
            # A piece of a prompt is scored like its end, and what it gives thrown away.
            for scored in (cls.nats, cls.likeliest, cls.times):
                del scored[at:]
            target = torch.tensor([cls.text[at]])
            cls.times.append(time.perf_counter())
            cls.nats.append(float(torch.nn.functional.cross_entropy(logits[:1].float(), target)))
            cls.likeliest.append(int(logits[0].argmax()))
            forced = torch.full_like(logits, -math.inf)
            forced[:, target] = 0
            return forced

    return Dictation


class Process:
    """The model of this process."""

    def __init__(self, options) -> None:
        from vllm import LLM

        self.options = options
        self.dictation = make_dictation()
        longest = max(options.context) + options.tokens + 1
        self.llm = LLM(model=options.model, dtype=options.dtype, enforce_eager=True,
                       max_model_len=longest, max_num_batched_tokens=PASS_TOKENS,
                       enable_prefix_caching=False, logits_processors=[self.dictation])
        self.tokens = texts.read(options, self.llm.get_tokenizer())

    def generate(self, prompt: list[int], tokens: int):
        from vllm import SamplingParams

        return self.llm.generate([{"prompt_token_ids": prompt}],
                                 SamplingParams(temperature=0, max_tokens=tokens, ignore_eos=True),
                                 use_tqdm=False)[0].outputs[0]

    def row(self, context: int) -> dict:
        """As in transformers: the text after the prompt is fed token by token, and scored from the
        second on. The second waits for rows that Terrace copies and indexes, so it is not counted
        among tokens."""
        import terrace.vllm

        before = terrace.vllm.stats()
        begin = time.perf_counter()
        self.dictation.begin(self.tokens[context:context + self.options.tokens + 1])
        self.generate(self.tokens[:context], self.options.tokens + 1)
        times = self.dictation.times
        stats = terrace.vllm.stats()
        if self.options.policy != OWN and stats.tokens == before.tokens:
            reasons = "; ".join(stats.refused) or "no reason is known"
            sys.exit(f"Terrace decoded no token: {reasons}")
        nats = self.dictation.nats[1:]
        found = {"context": context, "cache": self.options.policy,
                 "prompt_seconds": times[0] - begin, "second_token_seconds": times[1] - times[0],
                 "token_ms": 1e3 * statistics.median(
                     after - at for at, after in zip(times[1:], times[2:])),
                 "bits": sum(nats) / len(nats) / math.log(2),
                 "page_bytes": self.page_bytes(
                     context + self.options.tokens,
                     stats.pages_given_back - before.pages_given_back),
                 "tokens_of_terrace": stats.tokens - before.tokens,
                 "attended": stats.of_sequences.attended or float(context),
                 "hit_rate": stats.of_sequences.hit_rate,
                 "likeliest": self.dictation.likeliest[1:]}
        found["device_kv_bytes"] = found["page_bytes"] + stats.device_bytes
        self.dictation.begin(None)
        found["needles"] = needles.ask(self.options.needles, self.llm.get_tokenizer(),
                                       self.tokens[:context], self.answer)
        return found

    def answer(self, prompt: list[int], tokens: int) -> str:
        return self.generate(prompt, tokens).text

    def page_bytes(self, tokens: int, given_back: int) -> int:
        """Bytes of vLLM's pages after so many tokens, without the pages that it got back."""
        config = self.llm.llm_engine.vllm_config
        model, size = config.model_config, 4 if self.options.dtype == "float32" else 2
        block = config.cache_config.block_size
        return ((-(-tokens // block) - given_back) * block *
                model.get_num_layers(config.parallel_config) * 2 * size *
                model.get_num_kv_heads(config.parallel_config) * model.get_head_size())


def main() -> None:
    import torch
    import vllm

    import terrace

    options = types.SimpleNamespace(**json.load(sys.stdin))
    process = Process(options)
    # Shortest first, for device_bytes is the most that a sequence of the process took so far.
    found = {context: process.row(context) for context in sorted(options.context)}
    rows = [found[context] for context in options.context]
    print(json.dumps({"engine": f"vllm {vllm.__version__}", "torch": torch.__version__,
                      "terrace": terrace.__version__, "rows": rows}))


if __name__ == "__main__":
    main()
