#!/usr/bin/env python3
"""Builds the documentation site in build/docs, as `make docs` does:

    tools/docs/make_site.py [--build BUILD]

The programs in BUILD/bin say what the reference pages have. MkDocs and codespell come from the
environment `docs` of tools/environments, Doxygen from Debian. Each warning is an error.
"""

import argparse
import os
import pathlib
import shutil
import subprocess
import sys

import help_text
from pages import copy_pages
from reference_pages import command_page, headers_page, keys_page

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
PAGES = ROOT / "build" / "docs-pages"
SITE = ROOT / "build" / "docs"


def write_reference(build, out):
    out.mkdir()
    for name in ("terrace", "terraced"):
        program = help_text.walk(build / "bin" / name, (name,))
        (out / f"{name}.md").write_text(command_page(program), encoding="utf-8")
    keys = help_text.config_keys(build / "bin" / "terrace")
    (out / "keys.md").write_text(keys_page(keys), encoding="utf-8")
    (out / "headers.md").write_text(headers_page(), encoding="utf-8")


def run(*command):
    """Ends the program when a command fails or warns, as each of them reports by its status."""
    # Otherwise the theme advertises its successor: decision 0130.
    environment = os.environ | {"NO_MKDOCS_2_WARNING": "1"}
    if subprocess.run(command, cwd=ROOT, env=environment, check=False).returncode != 0:
        sys.exit(f"make_site.py: {pathlib.Path(command[0]).name} found faults")


def make_site(build):
    tools = pathlib.Path(sys.executable).parent  # of this environment
    shutil.rmtree(PAGES, ignore_errors=True)
    copy_pages(ROOT, PAGES)
    write_reference(build, PAGES / "reference")
    for file in ("site.css", "iframe-worker.js"):
        shutil.copy(HERE / file, PAGES)
    run(tools / "codespell", PAGES)
    run("doxygen", HERE / "Doxyfile")
    run(tools / "mkdocs", "build", "--strict", "--config-file", HERE / "mkdocs.yml")
    (SITE / "404.html").unlink()  # of servers, with links from their root
    print(f"open {SITE / 'index.html'}")


def main():
    parser = argparse.ArgumentParser(description="Builds the documentation site.")
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build" / "release")
    make_site(parser.parse_args().build.resolve())


if __name__ == "__main__":
    main()
