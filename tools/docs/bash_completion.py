"""Completion for bash."""

from choices import key_words, option_values

_TEMPLATE = r"""# Completion of @program for bash, made from what @program --help says.

_@program_commands() {
  case $1 in
@commands
  esac
}

_@program_options() {
  case $1 in
@options
  esac
}

# Prints what an option takes: words, and @files, @folders, @keys or @many (joined by commas).
# Fails for an option without a value.
_@program_values() {
  case $1 in
@values
    *) return 1 ;;
  esac
}

_@program_keys() {
  case $1 in
    "") echo "@names" ;;
@key_values
  esac
}

# Adds to `found` the words in $1 that `current` begins.
_@program_offer() {
  mapfile -t -O ${#found[@]} found < <(compgen -W "$1" -- "$current")
}

# Adds the words that an option takes. The user has typed `kept` and `current` of it.
_@program_offer_values() {
  local takes=" $1 "
  if [[ $takes == *" @many "* && $current == *,* ]]; then
    kept+=${current%,*},
    current=${current##*,}
  fi
  if [[ $takes == *" @keys "* && $current == *=* ]]; then
    local key=${current%%=*}
    kept+=$key=
    current=${current#*=}
    _@program_offer "$(_@program_keys "$key")"
  elif [[ $takes == *" @keys "* ]]; then
    compopt -o nospace 2>/dev/null
    _@program_offer "$(_@program_keys "")"
  fi
  _@program_offer "$(tr ' ' '\n' <<<"$takes" | grep -v '^@')"
  [[ $takes == *" @files "* ]] && _@program_offer_files -f
  [[ $takes == *" @folders "* ]] && _@program_offer_files -d
}

_@program_offer_files() {
  compopt -o filenames 2>/dev/null
  mapfile -t -O ${#found[@]} found < <(compgen "$1" -- "$current")
}

_@program() {
  local word typed current kept="" option="" command=@program
  local -a words=() found=()
  # Where bash breaks words at =, it is a word of its own.
  for word in "${COMP_WORDS[@]:1:COMP_CWORD}"; do
    if (( ${#words[@]} )) && [[ $word == =* || ${words[-1]} == *= ]]; then
      words[-1]+=$word
    else
      words+=("$word")
    fi
  done
  typed=${words[-1]}
  current=$typed
  unset 'words[-1]'
  for word in "${words[@]}"; do
    if [[ -n $option ]]; then
      option=""
    elif [[ $word == -* ]]; then
      _@program_values "$word" >/dev/null && option=$word
    elif [[ " $(_@program_commands "$command") " == *" $word "* ]]; then
      command+=" $word"
    fi
  done
  if [[ -z $option && $typed == --*=* ]]; then
    option=${typed%%=*}
    kept=$option=
    current=${typed#*=}
  fi
  if [[ -n $option ]]; then
    _@program_offer_values "$(_@program_values "$option")"
  elif [[ $typed == -* ]]; then
    _@program_offer "$(_@program_options "$command")"
  else
    _@program_offer_values "$(_@program_commands "$command")"
  fi
  COMPREPLY=("${found[@]/#/"$kept"}")
  # Where bash breaks words at =, it replaces what is behind the last one.
  if [[ $COMP_WORDBREAKS == *=* ]]; then
    COMPREPLY=("${COMPREPLY[@]#"${typed%"${typed##*=}"}"}")
  fi
}

complete -F _@program @program
"""


def _cases(rows):
    return "\n".join(f'    "{name}") echo "{" ".join(words)}" ;;' for name, words in rows)


def _values(values):
    place = [f"@{values.place}"] if values.place else []
    return [*values.words, *place, *(["@many"] if values.many and values.words else [])]


def bash_completion(program, keys):
    """Returns a script that completes a program's commands, options and their values."""
    words = key_words(keys)
    commands = list(program.all())
    parts = {
        "@commands": _cases((" ".join(c.words), [*(b.words[-1] for b in c.below),
                                                 *(["@files"] if c.positionals else [])])
                            for c in commands),
        "@options": _cases((" ".join(c.words), [n for o in c.options for n in o.names])
                           for c in commands),
        "@values": _cases((name, _values(v)) for name, v in option_values(program, words).items()),
        "@key_values": _cases(words.items()),
    }
    text = _TEMPLATE
    for mark, part in parts.items():
        text = text.replace(f"\n{mark}\n", f"\n{part}\n")
    text = text.replace("@names", " ".join(f"{key.name}=" for key in keys))
    return text.replace("@program", program.words[0])
