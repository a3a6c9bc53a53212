"""The table that people get."""

COLUMNS = [("context", "context", "{:d}"), ("cache", "cache", "{}"),
           ("prompt s", "prompt_seconds", "{:.2f}"), ("ms a token", "token_ms", "{:.1f}"),
           ("KV on device", "device_kv_bytes", "{}"), ("bits a token", "bits", "{:.4f}"),
           ("same token", "agreement", "{:.3f}"), ("needles", "needles", "{}"),
           ("hits", "hit_rate", "{:.3f}")]


def size(count: int) -> str:
    return f"{count / 2**20:.1f} MiB"


def cell(row: dict, key: str, form: str) -> str:
    value = row[key]
    if value is None:
        return "-"
    if key == "needles":
        return f"{value['found']} of {value['asked']}"
    return form.format(size(value) if key == "device_kv_bytes" else value)


def table(report: dict) -> str:
    lines = [[title for title, _, _ in COLUMNS]]
    lines += [[cell(row, key, form) for _, key, form in COLUMNS] for row in report["rows"]]
    widths = [max(len(line[i]) for line in lines) for i in range(len(COLUMNS))]
    head = (f"{report['model']}, {report['dtype']}, budget {report['budget']}, "
            f"{report['tokens']} tokens after each prompt, {report['threads']} threads")
    return "\n".join([head, *("  ".join(text.rjust(width) for text, width in zip(line, widths))
                              for line in lines)])
