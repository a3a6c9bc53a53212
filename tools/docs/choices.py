"""The words, files or keys that completion offers for each option."""

import re
import typing

_WORD = r"[\w.-]+"
_LIST = re.compile(rf"({_WORD}(?:, {_WORD})*(?:,? or {_WORD})?)(?: \[[^]]*\])?")
_SECTION_OF_OPTION = re.compile(r"\((--[\w-]+)\)")


class Values(typing.NamedTuple):
    """All that an option takes."""

    words: list
    place: str = ""     # "files", "folders" or "keys": what there is beside words
    many: bool = False  # words may be joined by commas


def _listed(text):
    """Returns the words of a text that lists words and nothing else: "auto, host or cuda"."""
    match = _LIST.fullmatch(text)
    words = re.split(r",? or |, ", match.group(1)) if match else []
    return words if len(words) > 1 else []


def key_words(keys):
    """Returns {key: words}, of the keys that take words alone."""
    return {key.name: _listed(key.accepts) for key in keys if _listed(key.accepts)}


def _words(option, keys):
    if "|" in option.value:
        return option.value.split("|")
    name = option.names[-1].removeprefix("--")
    of_key = [words for key, words in keys.items() if re.sub("[._]", "-", key) == name]
    also = re.findall(r", or (all|none)\b", option.text)
    return [*(_listed(option.text) or sum(of_key, [])), *also]


def _place(option):
    if option.value == "KEY=VALUE":
        return "keys"
    if option.value == "DIR":
        return "folders"
    of_files = re.match("FILE|PATH", option.value) or re.search(r"(^|: )file\b", option.text)
    return "files" if of_files else ""


def _explained(command):
    """Yields (option, words) of sections that explain an option's words: "Policies (--policy)"."""
    for section in command.notes:
        for option in _SECTION_OF_OPTION.findall(section.title):
            yield option, [e.term for e in section.entries if e.term and e.term[0] != "-"]


def option_values(program, keys):
    """Returns {option: Values} of all options with a value. An option takes the same in all
    commands that have it."""
    values = {}
    for command in program.all():
        for option in filter(lambda o: o.value, command.options):
            known = values.get(option.names[-1], Values([]))
            values[option.names[-1]] = Values(
                known.words + [w for w in _words(option, keys) if w not in known.words],
                known.place or _place(option), known.many or "by commas" in option.text)
    for command in program.all():
        for name, words in _explained(command):
            known = values[name].words
            known += [word for word in words if word not in known]
    return values
