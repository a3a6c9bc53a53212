"""The rows of bench/peers/retention.py: figures of a peer's answers, and the table."""

import itertools
import math

NOTES = """\
bits      of a scored token, mean
over %    bits of the scored tokens over the same program's dense attention; ± standard error
entries   tokens that a step attends to, mean; estimates and merged entries included
same      share of scored tokens whose likeliest next token is dense attention's
err, mass error of attention's outputs, and share of full attention's weight that is attended to;
          of Terrace's rows alone
after     digits of planted facts that are right, asked for behind the scored tokens, so unknown
          to a policy when the prompt ended; the true answers are fed
asked     the same, but the question ends the prompt, and tokens are generated
text      tokens generated behind the context until the first that dense attention has otherwise

Protocols differ. Terrace decides anew when its window is full, unless a row says `once`, and holds
the budget while it decodes. kvpress prunes once, behind the prompt, to the budget, and keeps every
later token: at the end of N scored tokens it attends to N more. Its rows `decoding` prune again
each quarter of the budget, as Terrace does. OpenVINO evicts whole blocks of 32 tokens behind the
prompt and while it generates; its scores are of prompts, which feel no eviction, so that only
what it generates can be compared, and its weights stay the 4 bits of its file."""
# Column, figure, format.
COLUMNS = (
    ("entries", "entries", "{:.0f}"), ("bits", "bits_per_token", "{:.3f}"),
    ("over %", "bits_over_dense", "{:+.2%}"),
    ("±", "standard_error", "{:.2%}"), ("same", "agreement", "{:.3f}"),
    ("err", "attention_error", "{:.3f}"), ("mass", "attention_mass", "{:.3f}"),
    ("after", "digits_asked_after", "{:.2f}"), ("asked", "digits_asked_in_prompt", "{:.2f}"),
    ("text", "same_tokens", "{}"))


def paired(ours: list, dense: list) -> tuple:
    """Returns mean and standard error of the difference, as the program has it: neighbours are
    alike, so the error is that of the means of stretches."""
    differences = [a - b for a, b in zip(ours, dense, strict=True)]
    mean = sum(differences) / len(differences)
    stretches = max(2, math.isqrt(len(differences)))
    bounds = [i * len(differences) // stretches for i in range(stretches + 1)]
    means = [sum(differences[a:b]) / (b - a) for a, b in itertools.pairwise(bounds)]
    squares = sum((one - mean) ** 2 for one in means)
    return mean, math.sqrt(squares / (stretches - 1) / stretches)


def scored_figures(row: dict, dense: dict) -> dict:
    """Returns figures of a peer's row, by those of its dense attention."""
    full = sum(dense["bits"]) / len(dense["bits"])
    mean, error = paired(row["bits"], dense["bits"])
    alike = [a == b for a, b in zip(row["likeliest"], dense["likeliest"], strict=True)]
    return {"bits_per_token": full + mean, "bits_over_dense": mean / full,
            "standard_error": error / full, "agreement": sum(alike) / len(alike),
            "digits_asked_after": row["digits_right"] / row["digits"] if row["digits"] else None}


def same_tokens(ours: list, dense: list) -> int:
    """Returns how many tokens are the same before the first that differs."""
    return sum(1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], zip(ours, dense)))


def digits_right(generated: list, needle: dict) -> list:
    """Returns of each digit of the answer whether it was generated at its place."""
    generated = generated + [None] * len(needle["answer"])
    return [own == token for own, token, is_digit
            in zip(generated, needle["answer"], needle["answer_is_digit"]) if is_digit]


def generated_figures(generated: list, dense: list, prompts: list) -> dict:
    """Returns figures of the tokens after each prompt; some prompts end in a question."""
    asked = [right for ids, prompt in zip(generated, prompts, strict=True) if prompt["needle"]
             for right in digits_right(ids, prompt["needle"])]
    lengths = [same_tokens(own, its) for own, its, prompt
               in zip(generated, dense, prompts, strict=True) if not prompt["needle"]]
    return {"digits_asked_in_prompt": sum(asked) / len(asked) if asked else None,
            "same_tokens": sum(lengths) / len(lengths) if lengths else None}


def finished(row: dict, dense: dict, case: dict) -> dict:
    """Returns a row with its figures in place of what they were made from."""
    raw = {"bits", "likeliest", "digits", "digits_right", "generated", "dense_generated"}
    figures = {key: value for key, value in row.items() if key not in raw}
    if "bits" in row:
        figures |= scored_figures(row, dense)
    if row.get("generated"):
        its = row if "dense_generated" in row else {"dense_generated": dense["generated"]}
        figures |= generated_figures(row["generated"], its["dense_generated"], case["prompts"])
    return figures


def cell(row: dict, figure: str, form: str) -> str:
    value = row.get(figure)
    return "-" if value is None else form.format(value)


def line(row: dict) -> str:
    name = f"{row['program']:9} {row['policy']:31}"
    if "reason" in row:
        return f"{name} skipped: {row['reason']}"
    return name + "".join(f"{cell(row, figure, form):>9}" for _, figure, form in COLUMNS)


def table(rows: list) -> str:
    def case_of(row: dict) -> str:
        return (f"{row['text']}, {row['context_tokens']} tokens of context, "
                f"{row['scored_tokens']} scored, budget {row['budget']}")

    head = " " * 41 + "".join(f"{name:>9}" for name, _, _ in COLUMNS)
    lines = []
    for case, its in itertools.groupby(rows, case_of):
        lines += [case, head, *map(line, its), ""]
    return "\n".join([*lines, NOTES])
