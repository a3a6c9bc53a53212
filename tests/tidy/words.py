"""The rule for plain words: comments and guides name their subject, without private idioms."""

import ast
import io
import re
import tokenize

from documents import is_guide

# A sentence begins a passage, a paragraph, an item, a cell or what follows a label or a full stop.
_BEGIN = r"(?:\A|\n\n|\n(?=\w+ {2})|\n(?:\d+\.|[-*]) |\| |[.?!][\"')`*]*\s)\s*(?:\w+ {2,})?"
_START = re.compile(_BEGIN + r"(What|Who|Whoever|Whose|Of|Behind)\b")
_PHRASE = re.compile(r"\b(of\s+which|the\s+same\s+of|com(?:e|es|ing)\s+to\s+rest|whoever)\b", re.I)
_MARKER = re.compile(r"^[ \t]*(?://[/<]*|/\*+|\*(?!/)|#(?!#)|\"\"\")?[ ]?", re.M)
# Code, names, quoted messages and headings are no sentences of a guide.
_NOT_PROSE = re.compile(r"^```.*?^```|^(?: {4}|#).*?$|`[^`\n]*`|\"[^\"\n]*\"", re.M | re.S)


def _blank(match):
    return re.sub(r"[^\n]", "x", match.group())


def _python_passages(text):
    """Docstrings, and comments with those of the lines that follow, each with its first line."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            if ast.get_docstring(node, clean=False) is not None:
                yield node.body[0].lineno, node.body[0].value.value
    passage, end = [], 0
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type != tokenize.COMMENT:
            continue
        number = token.start[0]
        if passage and (number != end + 1 or not token.line.lstrip().startswith("#")):
            yield end - len(passage) + 1, "\n".join(passage)
            passage = []
        passage.append(token.string)
        end = number
    if passage:
        yield end - len(passage) + 1, "\n".join(passage)


def _passages(source):
    if source.is_cpp:
        return source.comments()
    if source.path.suffix == ".py":
        return _python_passages(source.text)
    if is_guide(source):
        return [(1, _NOT_PROSE.sub(_blank, source.text))]
    return ()


def words(sources):
    for source in sources:
        for first, passage in _passages(source):
            text = _MARKER.sub("", passage)
            for pattern in (_START, _PHRASE):
                for match in pattern.finditer(text):
                    line = first + text.count("\n", 0, match.start(1))
                    if not source.allows("words", line):
                        found = " ".join(match.group(1).split())
                        yield source.path, line, f"'{found}': name the subject in plain words"
