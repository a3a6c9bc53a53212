"""Installs packages that need PyTorch without the libraries of CUDA: 2 GB in place of 6.

PyPI's torch for Linux is linked with CUDA's libraries, which come as packages of their own. On a
CPU none of their functions is ever called, yet the loader wants every file and every symbol.
Therefore these packages are left out, and empty libraries stand in for them. All symbols are in one
library that each of them needs, because the loader wants a versioned symbol from the library that a
program names for it, and from no other. Every function fails: there is no device.

For an environment that computes on the CPU alone.
"""

import pathlib
import re
import subprocess
import sys

# Libraries that torch asks for, by the names of packages; CUDA 12's end in -cu12.
LEFT_OUT = ("triton", "cuda-bindings", "cuda-toolkit",
            *(f"nvidia-{name}{version}" for version in ("", "-cu12", "-cu13")
              for name in ("cublas", "cuda-cupti", "cuda-nvrtc", "cuda-runtime", "cudnn", "cufft",
                           "cufile", "curand", "cusolver", "cusparse", "cusparselt", "nccl",
                           "nvjitlink", "nvshmem", "nvtx")))
_CUDA_LIBRARY = re.compile(r"lib(cu|nv|nccl)")
_CUDA_SYMBOL = re.compile(r"_*(cu|nv|nccl)")
_TEXT = re.compile(r"ErrorString|ErrorName")
SYMBOLS = "no_cuda_here"
NO_DEVICE = 100  # cudaErrorNoDevice and CUDA_ERROR_NO_DEVICE


def output_of(*command) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def symbols_of(libraries: list, which: str) -> set:
    """Returns the names of symbols, without versions."""
    listed = (output_of("nm", "-D", "-j", which, path).split() for path in libraries)
    return {symbol.split("@")[0] for symbols in listed for symbol in symbols}


def source_of(symbols: list) -> str:
    def function(name: str) -> str:
        if _TEXT.search(name):
            return f'const char *{name}(void) {{ return "no CUDA here"; }}\n'
        return f"int {name}(void) {{ return {NO_DEVICE}; }}\n"

    return "".join(map(function, symbols))


def link(folder: pathlib.Path, name: str, source: str, *options: str) -> None:
    subprocess.run(["gcc", "-shared", "-fPIC", "-fno-builtin", "-w", "-x", "c", "-", "-o",
                    folder / name, f"-Wl,-soname,{name}", *options],
                   check=True, input=source, text=True, stdout=sys.stderr)


def make_stand_ins(folder: pathlib.Path) -> list:
    """Makes libraries that those in a folder want and do not find there; returns their names."""
    libraries = [path for path in sorted(folder.glob("*.so*"))
                 if not _CUDA_LIBRARY.match(path.name) and SYMBOLS not in path.name]
    needed = {name for path in libraries
              for name in re.findall(r"NEEDED.*\[(.*)\]", output_of("readelf", "-d", path))}
    missing = sorted(name for name in needed if _CUDA_LIBRARY.match(name))
    wanted = symbols_of(libraries, "--undefined-only") - symbols_of(libraries, "--defined-only")
    symbols = sorted(name for name in wanted if _CUDA_SYMBOL.match(name))
    link(folder, f"lib{SYMBOLS}.so", source_of(symbols))
    for name in missing:
        link(folder, name, "", "-Wl,--no-as-needed,-rpath,$ORIGIN", f"-L{folder}", f"-l{SYMBOLS}")
    return missing


def install(python: pathlib.Path, packages: tuple, *, left_out: tuple = (),
            overrides: tuple = ()) -> None:
    """Installs packages and torch into an interpreter's environment, without the ones left out;
    versions of `overrides` win over packages' own requirements."""
    environment = python.parent.parent
    excludes = environment / "left-out.txt"
    excludes.write_text("\n".join((*LEFT_OUT, *left_out)))
    versions = environment / "overrides.txt"
    versions.write_text("\n".join(overrides))
    # pip cannot leave out what a package asks for; uv can.
    subprocess.run([python, "-m", "pip", "install", "--quiet", "uv"], check=True, stdout=sys.stderr)
    subprocess.run([environment / "bin" / "uv", "pip", "install", "--quiet", "--python", python,
                    "--excludes", excludes, "--overrides", versions, "torch", *packages],
                   check=True, stdout=sys.stderr)
    where = "import importlib.util as u; print(u.find_spec('torch').submodule_search_locations[0])"
    torch = output_of(python, "-I", "-c", where).strip()
    make_stand_ins(pathlib.Path(torch, "lib"))
