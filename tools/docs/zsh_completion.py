"""Completion for zsh."""

import re

from choices import key_words, option_values


def _quote(text):
    return "'" + text.replace("'", "'\\''") + "'"


def _plain(text):
    """A text between the brackets and colons of _arguments and _describe."""
    return re.sub(r"([\[\]:\\])", r"\\\1", text)


def _function(words):
    return "_" + "_".join(words)


def _action(values, keys_function):
    if values.place == "keys":
        return keys_function
    place = {"files": "_files", "folders": "_files -/"}.get(values.place, "")
    words = " ".join(values.words)
    if not words:
        return place or " "
    if values.many:
        return f"_sequence compadd - {words}"
    return f"{{compadd - {words}; {place}}}" if place else f"({words})"


def _option(option, values, keys_function):
    meaning = f"[{_plain(option.text)}]"
    takes = ""
    if option.value:
        action = _action(values[option.names[-1]], keys_function)
        takes = f":{_plain(option.value)}:{action}"
    many = "*" if option.value == "KEY=VALUE" else ""
    others = f"({' '.join(option.names)})" if len(option.names) > 1 else ""
    # A value comes in the next word, or in the same one after "=".
    joined = "=" if option.value else ""
    return [_quote(f"{others}{many}{name}{joined}{meaning}{takes}") for name in option.names]


def _command_function(command, values, keys_function):
    specs = [spec for o in command.options for spec in _option(o, values, keys_function)]
    if command.below:
        specs += ["'1: :->command'", "'*:: :->rest'"]
    specs += [_quote(f":{p.names[0]}:_files") for p in command.positionals]
    lines = [f"{_function(command.words)}() {{", "  local curcontext=$curcontext state line",
             "  typeset -A opt_args", "  _arguments -C -s : \\", "    " + " \\\n    ".join(specs)]
    if command.below:
        rows = " ".join(_quote(f"{b.words[-1]}:{_plain(b.summary)}") for b in command.below)
        lines += ["  case $state in", f"    command) local -a commands=({rows})",
                  "      _describe command commands ;;", "    rest) case $line[1] in",
                  *(f"      {b.words[-1]}) {_function(b.words)} ;;" for b in command.below),
                  "    esac ;;", "  esac"]
    return "\n".join([*lines, "}", ""])


def _keys_function(name, keys):
    cases = "\n".join(f'      {key}) compadd "$@" - {" ".join(words)} ;;'
                      for key, words in key_words(keys).items())
    names = " ".join(key.name for key in keys)
    return (f"{name}() {{\n  if compset -P '*='; then\n"
            f"    case ${{${{IPREFIX%=}}##*=}} in\n{cases}\n"
            f'    esac\n  else\n    compadd "$@" -S = - {names}\n  fi\n}}\n')


def zsh_completion(program, keys):
    """Returns a function file that completes a program's commands, options and their values."""
    name = program.words[0]
    keys_function = f"_{name}__keys"
    values = option_values(program, key_words(keys))
    functions = [_command_function(c, values, keys_function) for c in program.all()]
    return "\n".join([f"#compdef {name}", f"# Made from what {name} --help says.", "",
                      _keys_function(keys_function, keys), *functions, f'_{name} "$@"', ""])
