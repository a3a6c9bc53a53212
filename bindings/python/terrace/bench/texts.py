"""The tokens that caches are measured with."""

import pathlib


def read(options, tokenizer) -> list[int]:
    """Returns tokens of the texts, enough for the longest context."""
    tokens, wanted = [], max(options.context) + options.tokens + 1
    for path in options.text:
        text = pathlib.Path(path).read_text(errors="replace")
        tokens += tokenizer(text).input_ids
        if len(tokens) >= wanted:
            return tokens
    raise ValueError(f"the texts have {len(tokens)} tokens, and {wanted} are wanted: give more "
                     "--text")
