"""The house rules. Each takes all files and yields findings: (path, line from 1, what to do)."""

import re

from documents import docs
from functions import long_functions
from guides import guides
from words import words

LIBRARY = {
    "core", "kernels", "policies", "offload", "tiers", "node", "runtime", "engine", "tuning",
    "bindings",
}
BUILT = LIBRARY | {"apps", "tests", "bench", "examples"}

COLUMNS_MAX = 100
FILE_LINES_MAX = 600
HEADER_LINES_MAX = 200
FUNCTION_LINES_MAX = 70

_COLUMN_SUFFIXES = {".cpp", ".hpp", ".c", ".h", ".cu", ".cuh", ".py", ".cmake", ".sh"}
_CUDA_HEADER = re.compile(
    r'#\s*include\s*[<"](cuda|cublas|cub/|cuco/|thrust/|nvtx|nvml|cooperative_groups|device_launch)'
)
# nvcc 13.0 compiles them to 0 in device code, without a word, unless they are constants.
_BIT_FUNCTION = re.compile(
    r"\bstd::(bit_(floor|ceil|width)|has_single_bit|count[lr]_(zero|one)|popcount)\b"
)
_CONSTANT = re.compile(r"\bconstexpr [\w:]+ \w+ =")
_LIBRARY_CALL = re.compile(
    r"\b(?:std::)?(cout|cerr|clog|printf|fprintf|puts|fputs|putchar|vprintf|vfprintf|perror"
    r"|exit|_Exit|quick_exit|abort|terminate|random_device|sleep_for|sleep_until|usleep|nanosleep)"
    r"\b(?!\s*=)"
    r"|\bfmt::print\b|(?<![\w.])sleep\("
)
_DRAWERS = {"util", "utils", "helper", "helpers", "common", "types", "misc", "stuff", "shared"}
# Folders of runtime/src from the bottom up. A folder sees those below its line, none beside it.
_RUNTIME_FOLDERS = (
    ("plan",),
    ("work",),
    ("memory",),
    ("services",),
    ("rows",),
    ("layer",),
    ("cache", "index", "need", "prefix", "retention"),
    ("sequence",),
    ("step",),
    ("api",),
)
_RUNTIME_HEIGHTS = {name: at for at, names in enumerate(_RUNTIME_FOLDERS) for name in names}
_FOLDER_INCLUDE = re.compile(r'#include "(\w+)/')
_TODO = re.compile(r"\b(TODO|FIXME|XXX)\b(?!\(#\d+\))")
# Absolute, so neither after a name nor after a variable.
_MACHINE_PATH = re.compile(r"(?<![\w.~})*-])/(home|root|Users|work)/")


def columns(sources):
    for source in sources:
        if source.path.suffix in _COLUMN_SUFFIXES or source.path.name == "CMakeLists.txt":
            for number, line in enumerate(source.lines, 1):
                if len(line) > COLUMNS_MAX:
                    yield source.path, number, f"{len(line)} columns; at most {COLUMNS_MAX}"


def cuda_headers(sources):
    for source in sources:
        # The stand-in for the CUDA runtime has headers of the same names.
        if not source.is_cpp or {"cuda", "cuda_on_host"} & set(source.path.parts[:-1]):
            continue
        for number, line in enumerate(source.lines, 1):
            if _CUDA_HEADER.search(line):
                yield source.path, number, "CUDA header outside a cuda/ folder; move the code there"


def runtime_folders(sources):
    for source in sources:
        folder = source.path.parts[2] if len(source.path.parts) > 3 else None
        if source.path.parts[:2] != ("runtime", "src") or folder not in _RUNTIME_HEIGHTS:
            continue
        for number, line in enumerate(source.lines, 1):
            match = _FOLDER_INCLUDE.match(line)
            seen = match.group(1) if match else folder
            height = _RUNTIME_HEIGHTS.get(seen, -1)
            if seen != folder and height >= _RUNTIME_HEIGHTS[folder]:
                yield source.path, number, f"{seen}/ is not below {folder}/: docs/architecture.md"


def device_bits(sources):
    for source in sources:
        headers = source.path.parts[:2] in {("core", "include"), ("kernels", "include")}
        if not headers and source.path.suffix not in {".cu", ".cuh"}:
            continue
        for number, line in enumerate(source.code().splitlines(), 1):
            match = _BIT_FUNCTION.search(line)
            if match and not _CONSTANT.search(line):
                yield source.path, number, f"{match.group()} is 0 in device code; write a loop"


def library_calls(sources):
    for source in sources:
        if source.top not in LIBRARY or not source.is_cpp:
            continue
        if source.allows("library_calls"):
            continue
        for number, line in enumerate(source.code().splitlines(), 1):
            match = _LIBRARY_CALL.search(line)
            if match and not source.allows("library_calls", number):
                call = match.group().strip("( ")
                advice = "return an Error or take it as a parameter"
                yield source.path, number, f"{call} in a library; {advice}"


def printing(sources):
    for source in sources:
        if source.top != "apps" or not source.is_cpp or source.path.stem == "output":
            continue
        for number, line in enumerate(source.code().splitlines(), 1):
            if re.search(r"\bfmt::print\b|\bstd::(cout|cerr)\b|\bf?printf\(", line):
                advice = "a stream that cannot be written would end the program; use output.hpp"
                yield source.path, number, advice


def length(sources):
    for source in sources:
        if source.path.suffix not in _COLUMN_SUFFIXES or source.allows("length"):
            continue
        if len(source.lines) > FILE_LINES_MAX:
            yield source.path, 1, f"{len(source.lines)} lines; at most {FILE_LINES_MAX}"
        if source.path.suffix == ".hpp":
            count = sum(1 for line in source.code().splitlines() if line.strip())
            if count > HEADER_LINES_MAX:
                advice = f"without comments; at most {HEADER_LINES_MAX}"
                yield source.path, 1, f"header of {count} lines {advice}"
        if source.is_cpp:
            for number, lines in long_functions(source.code(), FUNCTION_LINES_MAX):
                advice = f"at most {FUNCTION_LINES_MAX}"
                yield source.path, number, f"function of {lines} lines; {advice}"


def todo(sources):
    for source in sources:
        if source.path.parent.as_posix() == "tests/tidy":
            continue
        for number, line in enumerate(source.lines, 1):
            if _TODO.search(line):
                yield source.path, number, "without an issue's number; write TODO(#12)"


def drawers(sources):
    for source in sources:
        for part in (*source.path.parts[:-1], source.path.stem):
            if part.lower() in _DRAWERS:
                yield source.path, 1, f"'{part}' is a drawer; name it after what is in it"


def foreign_paths(sources):
    for source in sources:
        # The rule's own cases are full of them.
        if source.path.as_posix() == "tests/tidy/rules_test.py":
            continue
        for number, line in enumerate(source.lines, 1):
            match = _MACHINE_PATH.search(line)
            if match:
                yield source.path, number, f"{match.group()} is on one machine only"


def unbuilt(sources):
    lists = {s.path.parent: s.text for s in sources if s.path.name == "CMakeLists.txt"}
    for source in sources:
        if source.top not in BUILT or source.path.suffix not in {".cpp", ".c", ".cu"}:
            continue
        owners = [folder for folder in source.path.parents if folder in lists]
        named = any(
            re.search(rf"(?<![\w/.]){re.escape(source.path.relative_to(o).as_posix())}\b", lists[o])
            for o in owners
        )
        if not named:
            yield source.path, 1, "in no CMakeLists.txt; add it or delete it"


_ALL = (
    columns,
    cuda_headers,
    device_bits,
    docs,
    drawers,
    foreign_paths,
    guides,
    length,
    library_calls,
    printing,
    runtime_folders,
    todo,
    unbuilt,
    words,
)
RULES = {rule.__name__: rule for rule in _ALL}
