"""The programs on themselves: `--help` of all commands, and the table of config keys.

Reference pages, man pages and completion are made from it, so they say what the program says.
"""

import json
import os
import re
import subprocess
import typing

# "Columns:", or "Retention (--policy): other tokens are dropped", which begins with a paragraph.
_HEADING = re.compile(r"^(\S.*):$|^(\S.*\(--[\w-]+\)): (.+)$")
_TERM = re.compile(r"^ {2}(\S+(?: \S+)*) {2,}(\S.*)$")
_INDENTED = re.compile(r"^( {2,})(\S.*)$")
_SYNTAX = {"Options", "Positionals", "Subcommands"}


class Entry(typing.NamedTuple):
    """A term and its meaning, or a paragraph, which has no term."""

    term: str
    text: str


class Section(typing.NamedTuple):
    """Entries below a heading of --help; what stands below none has an empty title."""

    title: str
    entries: list


class Option(typing.NamedTuple):
    """An option, or what stands without one (a positional)."""

    names: tuple  # as ("-q", "--quiet")
    value: str    # as DIR, text|json; empty for a flag
    required: bool
    text: str


class Command(typing.NamedTuple):
    """A program or one of its commands, with those below it."""

    words: tuple  # as ("terrace", "bench", "kernels")
    summary: str
    usage: str
    sections: list
    below: list

    def entries(self, title):
        return [e for s in self.sections if s.title == title for e in s.entries]

    @property
    def options(self):
        return [_read_option(entry) for entry in self.entries("Options")]

    @property
    def positionals(self):
        return [_read_option(entry) for entry in self.entries("Positionals")]

    @property
    def notes(self):
        """Sections below options and commands: terms, columns, forms."""
        return [s for s in self.sections if s.title not in _SYNTAX]

    def all(self):
        yield self
        for command in self.below:
            yield from command.all()


def _read_option(entry):
    names, _, rest = entry.term.partition(" ")
    value = re.sub(r" ?(REQUIRED|Excludes: \S+)", "", rest)
    choices = re.fullmatch(r"TEXT:\{(.*)\}", value)
    value = choices.group(1).replace(",", "|") if choices else value
    if not names.startswith("-"):
        value = ""  # a positional's type
    return Option(tuple(names.split(",")), value, " REQUIRED" in entry.term, entry.text)


def _add_line(entries, line):
    term = _TERM.match(line)
    if term:
        entries.append(Entry(*term.groups()))
        return
    indent, text = _INDENTED.match(line).groups()
    deeper = len(indent) > 2
    if entries and (deeper or not entries[-1].term):
        last = entries.pop()
        entries.append(Entry(last.term, f"{last.text} {text}".strip()))
    else:
        # A term as long as this has its meaning in the lines below.
        is_term = text.startswith("-") or " TEXT" in text
        entries.append(Entry(text, "") if is_term else Entry("", text))


def _read_sections(lines):
    sections = []
    for line in filter(str.strip, lines):
        heading = _HEADING.match(line)
        if heading:
            title, titled, paragraph = heading.groups()
            sections.append(Section(title or titled, [Entry("", paragraph)] if titled else []))
        elif line.startswith(" "):
            _add_line(sections[-1].entries, line)
        else:
            if not sections or sections[-1].title:
                sections.append(Section("", []))
            _add_line(sections[-1].entries, "  " + line)
    return sections


def parse(words, text):
    """Returns the command of a text of --help, without the commands below it."""
    lines = text.strip("\n").split("\n")
    usage = next(number for number, line in enumerate(lines) if line.startswith("Usage: "))
    return Command(tuple(words), " ".join(lines[:usage]).strip(),
                   lines[usage].removeprefix("Usage: "), _read_sections(lines[usage + 1:]), [])


def ask(program, *arguments):
    """Returns what a program says, whatever variables the environment sets for it."""
    clean = {k: v for k, v in os.environ.items() if not k.startswith("TERRACE_")}
    return subprocess.run([program, *arguments], env=clean, check=True, stdout=subprocess.PIPE,
                          text=True).stdout


def walk(program, words):
    """Returns the command named `words`, and those below it, by --help of each."""
    command = parse(words, ask(program, *words[1:], "--help"))
    for entry in command.entries("Subcommands"):
        command.below.append(walk(program, (*words, entry.term)))
    return command


class Key(typing.NamedTuple):
    """A row of the table of config keys."""

    name: str
    default: str
    accepts: str
    meaning: str


def config_keys(program):
    rows = json.loads(ask(program, "config", "explain", "--format", "json"))["rows"]
    return [Key(row["key"], str(row["value"]), row["accepts"], row["meaning"]) for row in rows]


def version(program):
    return ask(program, "--version").split()[1]
