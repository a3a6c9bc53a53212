"""Man pages of a program and its commands, as roff."""

import re

STATUS = [("0", "done"), ("1", "failed"), ("2", "used wrongly")]


def _escape(text):
    text = text.replace("\\", "\\e").replace("-", "\\-")
    return re.sub(r"^([.'])", r"\\&\1", text)


def _bold(text):
    return f"\\fB{_escape(text)}\\fP"


def page_name(words):
    return "-".join(words)


def _paragraph(term, text):
    return f".TP\n{term}\n{_escape(text)}\n" if term else f".PP\n{_escape(text)}\n"


def _option(option):
    names = ", ".join(map(_bold, option.names))
    value = f" \\fI{_escape(option.value)}\\fP" if option.value else ""
    text = option.text + (" (required)" if option.required else "")
    return _paragraph(names + value, text)


def _heading(title):
    """In capitals, as other man pages have it, but for options that it names."""
    if not title:
        return ".SH NOTES\n"
    words = [word if "--" in word else word.upper() for word in title.split()]
    return f".SH {_escape(' '.join(words))}\n"


def _sections(command):
    if command.positionals:
        yield ".SH ARGUMENTS\n" + "".join(map(_option, command.positionals))
    yield ".SH OPTIONS\n" + "".join(map(_option, command.options))
    if command.below:
        yield ".SH COMMANDS\n" + "".join(
            _paragraph(_bold(below.words[-1]), below.summary) for below in command.below)
    for section in command.notes:
        yield _heading(section.title) + "".join(
            _paragraph(_bold(e.term) if e.term else "", e.text) for e in section.entries)
    yield ".SH EXIT STATUS\n" + "".join(_paragraph(_bold(s), text) for s, text in STATUS)


def _see_also(command, pages):
    near = [command.words[:-1], *(below.words for below in command.below)]
    names = [page_name(words) for words in near if words]
    names += [name for name in ("terrace-config-explain", "terrace", "terraced")
              if name in pages and name not in names and name != page_name(command.words)]
    refs = ",\n".join(f".BR {_escape(name)} ({pages[name]})" for name in names if name in pages)
    # A macro takes no comma on a line of its own: it belongs to the section before it.
    return ".SH SEE ALSO\n" + refs.replace("),\n", ") ,\n") + "\n"


def man_page(command, version, pages):
    """Returns the text of a page. `pages`: the section, as "1", of each page there is."""
    name = page_name(command.words)
    head = (f'.TH {_escape(name.upper())} {pages[name]} "" "terrace {version}" "Terrace"\n'
            ".nh\n.ad l\n")  # words and file names stay whole
    summary = re.sub(r"^[A-Z](?=[a-z])", lambda match: match.group().lower(), command.summary)
    program, *rest = command.usage.split(" ")
    return "".join([
        head, f".SH NAME\n{_escape(name)} \\- {_escape(summary)}\n",
        f".SH SYNOPSIS\n{_bold(program)} {_escape(' '.join(rest))}\n", *_sections(command),
        _see_also(command, pages)])
