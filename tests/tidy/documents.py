"""The rule for guides: each file, key, option and symbol that they name in backticks is there.

Decisions, CHANGELOG.md and archives tell of a day, and may name what has gone since.
"""

import re

_CODE_SUFFIXES = r"(?:hpp|cpp|h|c|cuh|cu|py|cmake)"
_SOURCE_FILE = re.compile(rf"(?<![\w/.*-])[\w.-]+(?:/[\w.-]+)*\.{_CODE_SUFFIXES}\b")
_PATH = re.compile(r"[\w.-]+(/[\w.-]+)+/?")
_KEY = re.compile(
    rf"(?<![\w./-])([a-z]+)\.(?!{_CODE_SUFFIXES}\b|yaml|json)([a-z_]+)\b(?![\w.(/])"
)
_VARIABLE_OF_KEY = re.compile(r"TERRACE_(\w+)")
_OPTION = re.compile(r"(?<![\w-])--[a-z][a-z-]+")
# Camel case, words joined by underscores, names in a scope, calls; no file of a reader's.
_SYMBOL = re.compile(
    r"(?<![\w/-])(?:[A-Z][a-z0-9]+(?:[A-Z][a-z0-9]+)+|TERRACE_\w+|[A-Za-z]*[a-z](?:_[A-Za-z0-9]+)+"
    r"|(?<=::)\w+|\w+(?=::)|[a-z]\w*(?=\())\b(?!\.\w)"
)
_IS_CODE = {".hpp", ".cpp", ".h", ".c", ".cu", ".cuh"}


def is_guide(source):
    if source.path.suffix != ".md" or source.path.stem.endswith("-archive"):
        return False
    return source.path.as_posix() in {"README.md", "HACKING.md"} or (
        source.top == "docs" and source.path.parts[1] != "decisions"
    )


class _Tree:
    """The names that guides may use."""

    def __init__(self, sources):
        self.paths = {s.path.as_posix() for s in sources}
        self.folders = {p.as_posix() for s in sources for p in s.path.parents}
        self.tops = {s.top for s in sources if len(s.path.parts) > 1}
        # The rules' own cases name what is not there.
        cases = ("tests", "tidy")
        code = [s for s in sources if s.path.suffix != ".md" and s.path.parts[:2] != cases]
        self.words = "\n".join({w for s in code for w in re.findall(r"\w+", s.text)})
        self.options = {o for s in code for o in _OPTION.findall(s.text)}
        self.declared = {
            w for s in sources if s.path.suffix in _IS_CODE for w in re.findall(r"\w+", s.text)
        }
        table = [s.text for s in sources if s.path.as_posix() == "core/src/config_keys.cpp"]
        self.keys = set(re.findall(r'\.name = "([\w.]+)"', "".join(table)))
        self.groups = {key.split(".")[0] for key in self.keys}
        self.key_variables = {key.upper().replace(".", "_") for key in self.keys}

    def has_file(self, name):
        return any(path == name or path.endswith("/" + name) for path in self.paths)

    def has_symbol(self, name):
        # Rows of benches have sizes and policies in their names, as serving_step_b64_n4096_signs,
        # and are called by a part of them: step_b.
        stem = re.match(r"[A-Za-z_]*", name).group() if name.islower() else name
        return re.search(rf"(?<![A-Za-z0-9]){stem}(?![A-Za-z])", self.words) is not None

    def missing(self, code):
        """Yields advice for each name in `code`, a text in backticks, that is of nothing."""
        for name in re.findall(r"\bterrace::([\w:]+)", code):
            if not all(part in self.declared for part in name.split("::")):
                yield f"no header declares terrace::{name}"
        for name in _SOURCE_FILE.findall(code):
            if not self.has_file(name):
                yield f"there is no file {name}"
        if _PATH.fullmatch(code) and code.split("/")[0] in self.tops:
            if code.rstrip("/") not in self.paths | self.folders:
                yield f"there is no {code}"
        for group, name in _KEY.findall(code):
            if group in self.groups and f"{group}.{name}" not in self.keys:
                yield f"there is no key {group}.{name}"
        for option in _OPTION.findall(code):
            if option not in self.options:
                yield f"nothing takes option {option}"
        for name in _SYMBOL.findall(code):
            if name == "terrace":
                continue  # a scope that the rest of the name was looked up in
            variable = _VARIABLE_OF_KEY.fullmatch(name)
            if variable and variable.group(1) in self.key_variables:
                continue
            if not self.has_symbol(name):
                yield f"nothing is called {name}"


def commands(sources):
    """Yields (source, line from 1, text): of lines of code all, of others what is in backticks."""
    for source in sources:
        fenced = False
        for number, line in enumerate(source.lines, 1):
            fenced ^= line.startswith("```")
            if source.allows("docs", number):
                continue
            if re.match(r" {4}(make|terrace|tools/)", line) and not fenced:
                yield source, number, line
            elif not fenced:
                for code in re.findall(r"`([^`]+)`", line):
                    yield source, number, code


def docs(sources):
    tree = _Tree(sources)
    for source, number, code in commands(filter(is_guide, sources)):
        for advice in tree.missing(code):
            yield source.path, number, advice
