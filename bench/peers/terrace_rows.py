"""Terrace's own rows of bench/peers/retention.py, by `terrace run`."""

import json
import pathlib
import subprocess
import sys
import typing

import token_files

# The window is a quarter of the budget after the sinks; Terrace uses one thread, as peers do.
SETTINGS = {"retrieval.window_share": 0.25, "threads.device": 1, "threads.host": 1}
# Settings that concern a policy of their own share a run, and with it full attention's pass.
PLAIN = {}
ONCE = {"retention.rerun": "once", "retention.base": "snapkv", "retention.normalise": "on"}
MERGED = {"retention.merge": 0.5}


class Row(typing.NamedTuple):
    label: str
    policy: str
    settings: dict


ROWS = [
    Row("dense", "full", PLAIN),
    Row("streaming", "streaming", PLAIN),
    Row("recent", "recent", PLAIN),
    Row("h2o", "h2o", PLAIN),
    Row("h2o, normalised", "h2o", ONCE),
    Row("snapkv", "snapkv", PLAIN),
    Row("snapkv, merged rest", "snapkv", MERGED),
    Row("snapkv, once", "snapkv", ONCE),
    Row("pyramidkv, once", "pyramidkv", ONCE),
    Row("kvcrush on h2o", "kvcrush", PLAIN),
    Row("kvcrush on snapkv, once", "kvcrush", ONCE),
    Row("chelsea", "chelsea", PLAIN),
    Row("smartkv", "smartkv", PLAIN),
    Row("wave", "wave", PLAIN),
    Row("pqcache", "pqcache", PLAIN),
    Row("oracle", "oracle", PLAIN),
]


def groups_of(rows: list) -> list:
    """Returns lists of rows with the same settings."""
    groups = {}
    for row in rows:
        groups.setdefault(json.dumps(row.settings), []).append(row)
    return list(groups.values())


def command_of(rows: list, case: dict, *arguments) -> list:
    command = ["run", "--model", case["model"], "--budget", case["budget"],
               "--policy", ",".join(row.policy for row in rows)]
    for key, value in (SETTINGS | rows[0].settings).items():
        command += ["--set", f"{key}={value}"]
    return [*map(str, [*command, *arguments]), "--format", "json", "--quiet"]


def scored_figures(run: dict) -> dict:
    """Returns a row's figures of one run of the program."""
    delta, needles = run["bits_delta_vs_full"], run["needles"]
    full = run["bits_per_token"] - delta["mean"]
    return {"entries": run["entries_mean"], "attention_error": run["attention_error"],
            "attention_mass": run["attention_mass"], "agreement": run["top1_agreement"],
            "bits_per_token": run["bits_per_token"], "bits_over_dense": delta["mean"] / full,
            "standard_error": delta["standard_error"] / full,
            "digits_asked_after": needles and needles["digits_right_ratio"]}


class Program:
    """Asks the program, and keeps what it answers."""

    name = "terrace"

    def __init__(self, program: pathlib.Path, kept, environment: dict) -> None:
        self.program, self.kept = program, kept
        # Variables set config keys, too.
        self.environment = {name: value for name, value in environment.items()
                            if not name.startswith("TERRACE_")}
        self.version = self.answer(["--version"]).strip()

    def answer(self, arguments: list) -> str:
        process = subprocess.run([self.program, *arguments], check=False, capture_output=True,
                                 text=True, env=self.environment)
        if process.returncode != 0:
            sys.exit(f"retention: {process.stderr.strip()}")
        return process.stdout

    def runs(self, case: dict, command: list) -> dict:
        """Returns the runs of a command by their policies."""
        document = self.kept.get([self.version, case["sha256"], *command],
                                 lambda: json.loads(self.answer(command)))
        return {run["policy"]: run for run in document["runs"]}

    def rows(self, case: dict) -> list:
        wanted = [row for row in ROWS if row.label in (case["only"] or [one.label for one in ROWS])]
        found = {}
        for group in groups_of(wanted):
            figures = {row.policy: {"policy": row.label} for row in group}
            if case["scored"]:
                self.score(case, group, figures)
            self.generate(case, group, figures)
            found |= {its["policy"]: its for its in figures.values()}
        return [found[row.label] for row in wanted]

    def score(self, case: dict, group: list, figures: dict) -> None:
        runs = self.runs(case, command_of(
            group, case, "--tokens", case["tokens"], "--context", case["context"],
            "--decode", case["scored"], "--needles-file", case["needles_file"]))
        for policy, its in figures.items():
            its |= scored_figures(runs[policy])

    def generate(self, case: dict, group: list, figures: dict) -> None:
        """Adds the tokens generated after each prompt, by the row and by full attention."""
        dense = ROWS[0]._replace(settings=group[0].settings)
        group = [dense, *(row for row in group if row.policy != dense.policy)]
        for number, prompt in enumerate(case["prompts"]):
            file = pathlib.Path(case["tokens"]).with_suffix(f".prompt-{number}.u32")
            token_files.write_ids(file, prompt["ids"])
            runs = self.runs(case, command_of(
                group, case, "--tokens", file, "--context", len(prompt["ids"]),
                "--decode", prompt["tokens"], "--generate"))
            for policy, its in figures.items():
                its.setdefault("entries", runs[policy]["entries_mean"])
                its.setdefault("generated", []).append(runs[policy]["generated"]["ids"])
                its.setdefault("dense_generated", []).append(runs["full"]["generated"]["ids"])
