"""Reference pages of commands and config keys, as Markdown."""

_KEYS = """# Config keys

All keys, made from the table that the program reads them by.
[Settings](../docs/commands.md#settings) says where values come from. A key is also the
variable `TERRACE_` and its name in capitals, with `_` in place of dots:
`TERRACE_KV_DTYPE` sets `kv.dtype`.
"""

_HEADERS = """# C++ and C

Classes and functions of the public headers, as their comments have them:
[classes](../api/annotated.html), [namespaces](../api/namespaces.html),
[headers](../api/files.html).

"""
# Where names are in two folders, Doxygen needs the whole path.
_BEGIN_WITH = {
    "embed Terrace in C++": ["runtime.hpp", "sequence.hpp", "step.hpp"],
    "embed Terrace in C": ["terrace.h"],
    "read chunks of the daemon": ["daemon_client.hpp"],
    "write a policy": [f"core/include/terrace/core/{name}.hpp"
                       for name in ("retrieval", "retention", "replacement")],
    "write a backend or a store": ["backend.hpp", "queue.hpp", "store.hpp"],
}


def _text(text):
    """A text as Markdown that reads as it is written."""
    for sign in "\\`*_<>[]|{}":
        text = text.replace(sign, f"\\{sign}" if sign not in "<>" else f"&{'lg'[sign == '>']}t;")
    return text


def _code(text):
    return f"`{text}`".replace("|", "\\|")


def _table(head, rows):
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"


def _option_row(option):
    names = ", ".join(map(_code, option.names))
    value = f" {_code(option.value)}" if option.value else ""
    return [names + value, _text(option.text) + (" (required)" if option.required else "")]


def _entries(entries):
    """Paragraphs, and tables of terms that come one after the other."""
    parts, rows = [], []
    for entry in [*entries, None]:
        if entry and entry.term:
            rows.append([_code(entry.term), _text(entry.text)])
            continue
        if rows:
            parts.append(_table(["term", "meaning"], rows))
            rows = []
        if entry:
            parts.append(_text(entry.text) + "\n")
    return "\n".join(parts)


def _command(command):
    title = "#" * min(len(command.words), 3)
    parts = [f"{title} {' '.join(command.words)}\n", _text(command.summary) + "\n",
             f"    {command.usage}\n"]
    if command.positionals:
        parts.append(_table(["argument", "meaning"], map(_option_row, command.positionals)))
    parts.append(_table(["option", "meaning"], map(_option_row, command.options)))
    if command.below:
        parts.append(_table(["command", "meaning"],
                            [[_code(b.words[-1]), _text(b.summary)] for b in command.below]))
    for section in command.notes:
        head = f"**{_text(section.title)}**\n\n" if section.title else ""
        parts.append(head + _entries(section.entries))
    return "\n".join(parts)


def command_page(program):
    return "\n".join(map(_command, program.all()))


def keys_page(keys):
    """Keys of a group stand together, those without a dot last."""
    groups = {}
    for key in keys:
        groups.setdefault(key.name.split(".")[0] if "." in key.name else "", []).append(key)
    groups[""] = groups.pop("", [])
    parts = [_KEYS]
    for name, members in groups.items():
        rows = [[_code(key.name), _code(key.default) if key.default else "", _text(key.accepts),
                 _text(key.meaning)] for key in members]
        parts.append(f"## {name or 'Without a group'}\n\n"
                     + _table(["key", "default", "takes", "meaning"], rows))
    return "\n".join(parts)


def _header_link(path):
    page = path.replace("_", "__").replace(".", "_8").replace("/", "_2")  # as Doxygen names it
    return f"[{path.split('/')[-1]}](../api/{page}.html)"


def headers_page():
    return _HEADERS + _table(["to", "begin with"], [
        [purpose, ", ".join(map(_header_link, paths))] for purpose, paths in _BEGIN_WITH.items()])
