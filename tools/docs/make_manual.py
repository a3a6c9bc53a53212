#!/usr/bin/env python3
"""Writes man pages and completion of the programs, as they lie below a prefix's share/:

    tools/docs/make_manual.py --build BUILD --out FOLDER

The programs in BUILD/bin are asked for it.
"""

import argparse
import pathlib
import shutil
import sys

import help_text
from bash_completion import bash_completion
from man_pages import man_page, page_name
from zsh_completion import zsh_completion

SECTIONS = {"terrace": 1, "terraced": 8}


def write(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def make_manual(build, out):
    made_before = (out / "bash-completion" / "completions" / "terraced").exists()
    if out.exists() and any(out.iterdir()) and not made_before:
        sys.exit(f"make_manual.py: {out} has other files: name another folder")
    shutil.rmtree(out, ignore_errors=True)  # pages of commands that are gone
    terrace = build / "bin" / "terrace"
    keys = help_text.config_keys(terrace)
    version = help_text.version(terrace)
    programs = {name: help_text.walk(build / "bin" / name, (name,)) for name in SECTIONS}
    pages = {page_name(c.words): SECTIONS[name] for name, p in programs.items() for c in p.all()}
    for name, program in programs.items():
        for command in program.all():
            page = f"{page_name(command.words)}.{SECTIONS[name]}"
            write(out / "man" / f"man{SECTIONS[name]}" / page, man_page(command, version, pages))
        write(out / "bash-completion" / "completions" / name, bash_completion(program, keys))
        write(out / "zsh" / "site-functions" / f"_{name}", zsh_completion(program, keys))


def main():
    parser = argparse.ArgumentParser(description="Writes man pages and completion.")
    parser.add_argument("--build", type=pathlib.Path, default="build/release")
    parser.add_argument("--out", type=pathlib.Path, default="build/release/manual")
    options = parser.parse_args()
    make_manual(options.build, options.out)


if __name__ == "__main__":
    main()
