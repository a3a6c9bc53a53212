#!/usr/bin/env python3
"""Holds the times that `terrace tune` predicts against runs over an imitated link.

    bench/prediction/compare.py [--program build/release/bin/terrace] [--rounds 5]
                                [--policy pqcache] [--cache-granularity row|block|cluster]
                                [--link BANDWIDTH,LATENCY]... [--format text|json]

Each round records a run without a link; for each link `tune` predicts from it the time of a token
with the cache that it recommends, with none, and, where the trace has both units, with the best
cache of the other one (`other`), and all run over that link. The figure is the
median of the rounds' ratios of measured to predicted; its spread over rounds is printed beside it.
"""

import argparse
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
LINKS = (("20MB/s", "20us"), ("100MB/s", "20us"), ("1GB/s", "50us"), ("1GB/s", "500us"))


class Comparison:
    """Runs the program on one model and text, with files in a folder of its own."""

    def __init__(self, options: argparse.Namespace, folder: pathlib.Path) -> None:
        self.options, self.folder, self.head = options, folder, {}
        self.job = ["--context", str(options.context), "--decode", str(options.decode)]
        self.trace = folder / "trace"
        self.links = options.link or LINKS
        lists = ("predicted", "measured", "policy", "granularity")
        self.figures = {(link, cache): {name: [] for name in lists}
                        for link in self.links for cache in ("tuned", "other", "none")}

    def ask(self, *arguments: str) -> dict:
        process = subprocess.run([self.options.program, *arguments, "--format", "json", "-q"],
                                 check=False, capture_output=True, text=True)
        if process.returncode != 0:
            sys.exit(f"compare: {process.stderr.strip()}")
        document = json.loads(process.stdout)
        self.head = {key: document[key] for key in ("terrace", "build", "machine")}
        return document

    def round(self) -> None:
        """Records, predicts and runs: what slows the machine down meets all three."""
        self.ask("run", *self.job, "--policy", self.options.policy, "--cache-granularity",
                 self.options.cache_granularity, "--trace", str(self.trace))
        config = str(self.folder / "tuned.yaml")
        for link in self.links:
            over = ["--link-bandwidth", link[0], "--link-latency", link[1]]
            tuned = self.ask("tune", "--trace", str(self.trace), "--device-memory",
                             self.options.device_memory, "--write-config", config, *over)
            for cache, row in self.chosen(tuned):
                arguments = ["--config", config, *over, *self.settings(row)]
                (run,) = self.ask("run", *self.job, *arguments)["runs"]
                figures = self.figures[link, cache]
                figures["predicted"].append(row["predicted_seconds_per_token"])
                figures["measured"].append(run["seconds"]["decode_per_token"])
                figures["policy"].append(row["policy"])
                figures["granularity"].append(row["parameters"]["granularity"])

    @staticmethod
    def chosen(tuned: dict) -> list:
        best = tuned["recommended"]
        granularity = best["parameters"]["granularity"]
        others = [row for row in tuned["rows"] if not row["parameters"]["offline"]
                  and row["parameters"]["granularity"] != granularity]
        return [("tuned", best), ("none", tuned["without_cache"])] + [
            ("other", row) for row in others[:1]]

    @staticmethod
    def settings(row: dict) -> list:
        its = row["parameters"]
        keys = {"kv.block_tokens": its["block_tokens"], "cache.policy": row["policy"],
                "cache.granularity": its["granularity"]}
        if row["policy"] != "none":
            keys |= {"cache.tokens": its["cache_tokens"], "cache.admission": its["admission"],
                     "cache.horizon": its["horizon"]}
            # The others name the unit and the capacity; these are replacement policies' settings.
            keys |= {f"cache.{name}": value for name, value in its.items()
                     if name.endswith(("_half_life", "_steps"))}
        return [word for key, value in keys.items() for word in ("--set", f"{key}={value}")]

    def rows(self) -> list:
        return [self.row(link, cache, its) for (link, cache), its in self.figures.items()
                if its["measured"]]

    @staticmethod
    def row(link: tuple, cache: str, its: dict) -> dict:
        ratios = [taken / said for taken, said in zip(its["measured"], its["predicted"])]
        return {"name": f"predicted_seconds_per_token_{'_'.join(link)}_{cache}",
                "parameters": {"bandwidth": link[0], "latency": link[1], "cache": cache} | its,
                "value": statistics.median(its["predicted"]), "unit": "s", "better": "lower",
                "samples": len(ratios), "spread": max(ratios) - min(ratios),
                "peer": {"name": "terrace run", "version": "",
                         "value": statistics.median(its["measured"])},
                "ratio": statistics.median(ratios)}


def table(rows: list) -> str:
    lines = [f"{'link':18} {'cache':12} {'predicted':>12} {'measured':>12} {'spread':>8} "
             f"{'measured/predicted':>20}"]
    for row in rows:
        its = row["parameters"]
        lines.append(f"{its['bandwidth'] + ' ' + its['latency']:18} {its['cache']:12} "
                     f"{1e3 * row['value']:9.3f} ms {1e3 * row['peer']['value']:9.3f} ms "
                     f"{row['spread']:8.2f} {row['ratio']:20.3f}")
    return "\n".join(lines)


def link_of(text: str) -> tuple:
    bandwidth, latency = text.split(",")
    return bandwidth, latency


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--program", type=pathlib.Path,
                        default=ROOT / "build" / "release" / "bin" / "terrace")
    parser.add_argument("--policy", default="pqcache")
    parser.add_argument("--cache-granularity", choices=["row", "block", "cluster"],
                        default="row")
    parser.add_argument("--context", type=int, default=4096)
    parser.add_argument("--decode", type=int, default=64)
    parser.add_argument("--device-memory", default="2MiB")
    parser.add_argument("--link", type=link_of, action="append", metavar="BANDWIDTH,LATENCY")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--format", choices=["text", "json"], default="text")
    options = parser.parse_args()
    if not options.program.exists():
        sys.exit(f"compare: {options.program} is not there; run make first")
    if options.rounds < 1:
        sys.exit(f"compare: --rounds {options.rounds}: give at least 1")

    with tempfile.TemporaryDirectory() as name:
        comparison = Comparison(options, pathlib.Path(name))
        for number in range(options.rounds):
            print(f"compare: round {number + 1} of {options.rounds}", file=sys.stderr)
            comparison.round()
    rows = comparison.rows()
    if options.format == "json":
        print(json.dumps(comparison.head | {"command": "bench prediction", "rows": rows}, indent=2))
    else:
        print(table(rows))


if __name__ == "__main__":
    main()
