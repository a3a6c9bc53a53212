"""The rows of bench/peers/disk.py: medians, ratios, the table, and what the goals say of them."""

import statistics
import typing

NOTES = """\
GB/s      10^9 bytes a second: median of all turns, in brackets the least and the most
CPU s/GB  user and system time of the reading process, its threads and its workers in the kernel
kernel    time of the kernel's own threads meanwhile, those that other programs keep busy included
x         Terrace's rate over the peer's, or the peer's time over Terrace's: above 1, Terrace is
          better
flipped   a bit of one page is flipped in the file: whether the read that follows says so"""


class Figure(typing.NamedTuple):
    key: str
    title: str
    form: str
    higher_is_better: bool


READ = Figure("read", "read GB/s", "{:.2f}", True)
WRITTEN = Figure("written", "written GB/s", "{:.2f}", True)
CPU = Figure("read_cpu", "CPU s/GB", "{:.3f}", False)
KERNEL = Figure("read_kernel", "kernel", "{:.3f}", False)
COMPARED = (READ, WRITTEN, CPU)
FIGURES = (*COMPARED, KERNEL)


class Goal(typing.NamedTuple):
    """Terrace's figure over a peer's, or alone, is to be at least or at most a number."""

    words: str
    figure: Figure
    peers: tuple
    bound: float


GOALS = (
    Goal("read rate over NIXL's", READ, ("NIXL POSIX", "NIXL POSIX, sleeping"), 1.0),
    Goal("read rate over LMCache raw_block's", READ, ("LMCache raw_block",), 1.5),
    Goal("the same, huge pages for it, too", READ, ("LMCache raw_block, huge",), 1.5),
    Goal("read rate over fio's", READ, ("fio",), 0.95),
    Goal("CPU seconds a GB read", CPU, (), 0.15),
)


def summary(samples: list) -> dict:
    return {"median": statistics.median(samples), "least": min(samples), "most": max(samples),
            "samples": len(samples)}


def row_of(name: str, version: str, page_bytes: int, turns: list) -> dict:
    """Returns a row of what a store's turns have shown."""
    row = {"name": name, "version": version, "page_bytes": page_bytes}
    for figure in FIGURES:
        samples = [sample for turn in turns for sample in turn.get(figure.key, [])]
        if samples:
            row[figure.key] = summary(samples)
    flips = [turn["flipped"] for turn in turns if "flipped" in turn]
    return row | ({"flipped": flips[0]} if flips else {})


def add_ratios(rows: list) -> None:
    """Adds to each row of one page size how much better the first row, which is Terrace's, is."""
    for row in rows[1:]:
        for figure in COMPARED:
            ours, its = rows[0].get(figure.key), row.get(figure.key)
            if ours and its and ours["median"] and its["median"]:
                ratio = ours["median"] / its["median"]
                its["ratio"] = ratio if figure.higher_is_better else 1 / ratio


def goals_of(rows: list) -> list:
    """Returns each goal with the figure seen at one page size; None where it was not measured."""
    ours = rows[0]
    answers = []
    for goal in GOALS:
        mine = ours.get(goal.figure.key)
        theirs = [row[goal.figure.key]["median"] for row in rows
                  if row["name"] in goal.peers and goal.figure.key in row]
        seen = None
        if mine and not goal.peers:
            seen = mine["median"]
        elif mine and theirs:
            seen = mine["median"] / max(theirs)
        met = seen is not None and (seen >= goal.bound if goal.figure.higher_is_better
                                    else seen <= goal.bound)
        answers.append({"goal": goal.words, "bound": goal.bound, "page_bytes": ours["page_bytes"],
                        "seen": seen, "met": met if seen is not None else None})
    return answers


def cell(row: dict, figure: Figure) -> str:
    its = row.get(figure.key)
    if its is None:
        return "-"
    low, high = (figure.form.format(its[end]) for end in ("least", "most"))
    ratio = f" {its['ratio']:.2f}x" if "ratio" in its else ""
    return f"{figure.form.format(its['median'])} ({low}-{high}){ratio}"


def line(row: dict) -> str:
    if "reason" in row:
        return f"{row['name']:27} not measured: {row['reason']}"
    cells = "".join(f"{cell(row, figure):27}" for figure in FIGURES)
    return f"{row['name']:27} {cells}{row.get('flipped', '-')}"


def goal_line(answer: dict) -> str:
    if answer["seen"] is None:
        return f"{answer['goal']:36} not measured (goal {answer['bound']})"
    word = "met" if answer["met"] else "MISSED"
    return f"{answer['goal']:36} {answer['seen']:.3f} (goal {answer['bound']}) {word}"


def table(tables: list) -> str:
    """Returns the text of lists of rows, one list for each page size, Terrace's row first."""
    head = f"{'':27} " + "".join(f"{figure.title:27}" for figure in FIGURES) + "flipped"
    lines = []
    for rows in tables:
        lines += [f"pages of {rows[0]['page_bytes'] >> 10} KiB", head, *map(line, rows), "",
                  *map(goal_line, goals_of(rows)), ""]
    return "\n".join([*lines, NOTES])
