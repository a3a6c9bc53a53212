"""The rule for what readers follow: links, commands, code and messages that there are."""

import posixpath
import re

from documents import commands, is_guide

_LINK = re.compile(r"\]\(([^)\s#:]*)(?:#([^)\s]+))?\)")
_COMMAND = re.compile(r"^\s*(?:\w+=\S+ )*(?:[\w./]+/)?terrace ([a-z]\w*)(?: ([a-z]\w*))?")
_GROUPS = {"bench", "config", "trace"}


def _anchors(text):
    """Headings as GitHub names them."""
    heads = re.findall(r"^#+ (.+)$", text, re.M)
    return {re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in heads}


def _links(sources):
    texts = {s.path.as_posix(): s.text for s in sources}
    places = set(texts) | {p.as_posix() for s in sources for p in s.path.parents}
    for source in (s for s in sources if s.path.suffix == ".md"):
        here = source.path.as_posix()
        for number, line in enumerate(source.lines, 1):
            for name, anchor in _LINK.findall(re.sub(r"`[^`]*`", "", line)):
                target = posixpath.normpath(posixpath.join(posixpath.dirname(here), name))
                target = target if name else here
                if target not in places:
                    yield source.path, number, f"there is no {target}"
                elif anchor and anchor not in _anchors(texts.get(target, "")):
                    yield source.path, number, f"{target} has no heading #{anchor}"


def _unknown_commands(sources):
    makers = [s.text for s in sources if s.top == "apps" and "add_subcommand(" in s.text]
    words = set(re.findall(r'"(\w+)"', "".join(makers)))
    for source, number, code in commands(filter(is_guide, sources)):
        for command, below in _COMMAND.findall(code):
            asked = [command, below] if command in _GROUPS and below else [command]
            if not words.issuperset(asked):
                yield source.path, number, f"terrace has no command {' '.join(asked)}"


def _untried_code(sources):
    """Code of README.md stands in an example, or in a docstring of the Python package."""
    tried = [s.text for s in sources if s.top == "examples" or "bindings/python" in str(s.path)]
    tried = [{line.strip() for line in text.splitlines()} for text in tried]
    for source in (s for s in sources if s.path.as_posix() == "README.md"):
        for block in re.finditer(r"^```(?:cpp|c|python)\n(.*?)^```", source.text, re.M | re.S):
            code = re.sub(r"\s*(/\*.*?\*/|//.*|  #.*)", "", block.group(1))
            lines = {line.strip() for line in code.splitlines() if line.strip()}
            if not any(lines <= text for text in tried):
                number = source.text[: block.start()].count("\n") + 1
                yield source.path, number, "no file of examples has all of this code"


def _unsaid_messages(sources):
    said = "".join(s.text for s in sources if s.path.suffix in {".cpp", ".hpp", ".py"})
    said = re.sub(r'"\s*f?"', "", said)
    for source in (s for s in sources if s.path.name == "troubleshooting.md"):
        for number, line in enumerate(source.lines, 1):
            cell = line.split(" | ")[0] if line.startswith('| "') else ""
            for message in re.findall(r'"([^"]+)"', cell):
                for part in filter(None, map(str.strip, message.split("..."))):
                    if part not in said:
                        yield source.path, number, f"no message says: {part}"


def _unlisted_decisions(sources):
    decisions = [s for s in sources if s.path.parent.as_posix() == "docs/decisions"]
    lists = "".join(s.text for s in decisions if s.path.name == "README.md")
    for source in decisions:
        if f"({source.path.name})" not in lists and source.path.name != "README.md":
            yield source.path, 1, "docs/decisions/README.md does not list it"


def guides(sources):
    for find in (_links, _unknown_commands, _untried_code, _unsaid_messages, _unlisted_decisions):
        yield from find(sources)
