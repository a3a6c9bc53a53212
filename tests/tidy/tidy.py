#!/usr/bin/env python3
"""Checks the repository's files against house rules: tidy.py [RULE...], all rules by default."""

import sys
from pathlib import Path

from rules import RULES
from source import read_tree


def main(names):
    unknown = [name for name in names if name not in RULES]
    if unknown:
        print(f"tidy.py: no rule {unknown[0]}; there are {', '.join(RULES)}", file=sys.stderr)
        return 2
    sources = read_tree(Path(__file__).resolve().parents[2])
    count = 0
    for name in names or RULES:
        for path, line, advice in RULES[name](sources):
            print(f"{path}:{line}: {name}: {advice}")
            count += 1
    return 1 if count else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
