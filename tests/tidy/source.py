"""Files of the repository as the rules see them: paths, lines, and C++ without its comments."""

import os
import re
from pathlib import Path

SKIPPED_FOLDERS = {"build", "__pycache__", "smollm2"}  # what is built or fetched
CPP = {".cpp", ".hpp", ".c", ".h", ".cu", ".cuh"}

# A literal or a comment, whichever begins first. Raw strings first: they may contain the others.
_TOKEN = re.compile(
    r'R"(?P<mark>[^\s()\\]{0,16})\(.*?\)(?P=mark)"'
    r'|"(?:\\.|[^"\\\n])*"'
    r"|(?<![0-9a-fA-F])'(?:\\.|[^'\\\n])*'"
    r"|//[^\n]*(?:\n[ \t]*//[^\n]*)*|/\*.*?\*/",
    re.DOTALL,
)


def _blank(match):
    """Replaces a token by spaces, so that lines and columns stay where they are."""
    return re.sub(r"[^\n]", " ", match.group())


class Source:
    """One text file."""

    def __init__(self, path, text):
        self.path = Path(path)
        self.text = text
        self.lines = text.splitlines()

    @property
    def is_cpp(self):
        return self.path.suffix in CPP

    @property
    def top(self):
        """The top folder, as "core"; for a file that is in none, its name."""
        return self.path.parts[0]

    def code(self):
        """The text with comments and literals blanked, for rules about what is executed."""
        return _TOKEN.sub(_blank, self.text)

    def comments(self):
        """Comments of C++, those of adjacent lines as one, each with its first line from 1."""
        for match in _TOKEN.finditer(self.text):
            if match.group().startswith("/"):
                yield self.text.count("\n", 0, match.start()) + 1, match.group()

    def allows(self, rule, line=None):
        """True where `tidy-allow(rule): reason` excuses a line, or in the file's head all."""
        mark = re.compile(r"tidy-allow\(" + rule + r"\): \S")
        if line is None:
            return any(mark.search(text) for text in self.lines[:10])
        return any(mark.search(text) for text in self.lines[max(0, line - 2) : line])


def read_tree(root):
    """Returns all text files of the project below `root`, in order of their paths."""
    sources = []
    for folder, folders, names in os.walk(root):
        folders[:] = sorted(f for f in folders if f not in SKIPPED_FOLDERS and f[0] != ".")
        for name in sorted(names):
            if name == ".git":  # of a worktree: says where its repository lies
                continue
            path = Path(folder, name)
            try:
                text = path.read_text(encoding="utf-8")
            except (UnicodeDecodeError, OSError):
                continue  # models, pictures, dangling links
            sources.append(Source(path.relative_to(root), text))
    return sources
