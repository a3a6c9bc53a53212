#!/usr/bin/env python3
"""Compares settings of retrieval by the figures of `terrace bench quality`.

    bench/settings/compare.py [--program build/release/bin/terrace] [--model DIR]
                              [--text FILE]... [--tokens FILE]... [--budget 0.1]
                              [--context N] [--decode N] [--needles N]
                              [--format text|json] SETTING...

A SETTING is a policy and keys of the config: qpq,retrieval.window_share=0.25,pq.subspaces=4. A
setting that differs in one key from the first of its policy shows the value of that key; every
figure is relative to full attention. A policy that estimates clusters has a second row, "by all
entries", with fewer rows, so that rows and estimates together are the budget. Settings are run one
after another on all texts.
"""

import argparse
import json
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
SHOWN = ("over %", "± s.e.", "mass", "recall", "digits", "rows", "others", "index kB")


def arguments_of(setting: str, options: argparse.Namespace) -> list:
    policy, *values = setting.split(",")
    arguments = ["--policy", policy, "--budget", options.budget]
    for value in values:
        arguments += ["--set", value]
    for flag in ("model", "context", "decode", "needles"):
        if (given := getattr(options, flag)) is not None:
            arguments += [f"--{flag}", str(given)]
    for flag in ("text", "tokens"):
        for file in getattr(options, flag):
            arguments += [f"--{flag}", file]
    return arguments


def run(setting: str, options: argparse.Namespace) -> dict:
    process = subprocess.run(
        [options.program, "bench", "quality", *arguments_of(setting, options),
         "--format", "json", "-q"], check=False, capture_output=True, text=True)
    if process.returncode != 0:
        sys.exit(f"compare: {setting}: {process.stderr.strip()}")
    return json.loads(process.stdout)


def figures_of(row: dict) -> dict:
    """The figures of a text, by the names of the table's columns; None for a cell without a
    result."""
    figures = row["figures"]
    if figures is None:
        return dict.fromkeys(SHOWN)
    full = row["peer"]["value"]
    delta = figures["bits_delta_vs_full"]
    needles = figures["needles"] or {"digits_right_ratio": None}
    percent = lambda bits: None if bits is None else 100 * bits / full
    return dict(zip(SHOWN, (percent(delta["mean"]), percent(delta["standard_error"]),
                            figures["attention_mass"], figures["recall"],
                            needles["digits_right_ratio"], figures["attended_tokens_mean"],
                            figures["pseudo_entries_mean"],
                            figures["index_bytes"] / 1e3)))


def table(rows: list) -> str:
    lines = []
    for text in dict.fromkeys(row["text"] for row in rows):
        if lines:
            lines.append("")
        width = max(len(row["setting"]) for row in rows)
        lines += [text, f"{'setting':{width}} " + " ".join(f"{name:>9}" for name in SHOWN)]
        for row in rows:
            if row["text"] != text:
                continue
            cells = ("-" if value is None else f"{value:.3f}" for value in row["figures"].values())
            lines.append(f"{row['setting']:{width}} " + " ".join(f"{cell:>9}" for cell in cells))
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--program", type=pathlib.Path,
                        default=ROOT / "build" / "release" / "bin" / "terrace")
    parser.add_argument("--model")
    parser.add_argument("--text", action="append", default=[])
    parser.add_argument("--tokens", action="append", default=[])
    parser.add_argument("--budget", default="0.1")
    parser.add_argument("--context", type=int)
    parser.add_argument("--decode", type=int)
    parser.add_argument("--needles", type=int)
    parser.add_argument("--format", choices=["text", "json"], default="text")
    parser.add_argument("settings", nargs="+", metavar="SETTING")
    options = parser.parse_args()
    if not options.program.exists():
        sys.exit(f"compare: {options.program} is not there; run make first")

    head, rows = {}, []
    for number, setting in enumerate(options.settings):
        print(f"compare: {number + 1} of {len(options.settings)}, {setting}", file=sys.stderr)
        document = run(setting, options)
        head = {key: document[key] for key in ("terrace", "build", "machine")}
        for row in document["rows"]:
            its = row["parameters"]
            by_rows = its["counted"] == "rows"
            if by_rows and row["figures"] is None:
                sys.exit(f"compare: {setting}: {row['reason']}")
            rows.append({"setting": setting if by_rows else f"{setting}, by all entries",
                         "text": its["text"], "figures": figures_of(row)})
    if options.format == "json":
        print(json.dumps(head | {"command": "bench settings", "rows": rows}, indent=2))
    else:
        print(table(rows))


if __name__ == "__main__":
    main()
