"""Measures functions by their braces: no parser, but right for code in the house's format."""

import re

# Text before a brace that opens no function: of a scope or an initializer.
_NO_FUNCTION = re.compile(r"\b(namespace|class|struct|union|enum|concept|extern)\b|=\s*$")


def _opens_function(head):
    """True when `head`, the text from the last ; { } to a brace, is a function's signature."""
    return ")" in head and not _NO_FUNCTION.search(re.sub(r"\(.*\)", "()", head, flags=re.DOTALL))


def long_functions(code, lines_max):
    """Yields (line from 1, count of lines) of each outermost function longer than `lines_max`.

    `code` has its comments and literals blanked.
    """
    scopes = []  # for each open brace: the line of a function's start, or None
    closed = None  # the entry of the brace closed last
    head_begin = 0
    for match in re.finditer(r"[{};]|^[ \t]*#[^\n]*", code, re.MULTILINE):
        token, position = match.group(), match.start()
        if token == "{":
            inside_function = any(line is not None for line in scopes)
            head = code[head_begin:position].strip()
            if inside_function:
                scopes.append(None)
            elif closed is not None and (not head or head.startswith(",")):
                scopes.append(closed)  # a constructor: its initializers have braces of their own
            else:
                scopes.append(code.count("\n", 0, position) + 1 if _opens_function(head) else None)
        elif token == "}" and scopes:
            begin = closed = scopes.pop()
            if begin is not None:
                count = code.count("\n", 0, position) + 2 - begin
                if count > lines_max:
                    yield begin, count
        head_begin = match.end()
