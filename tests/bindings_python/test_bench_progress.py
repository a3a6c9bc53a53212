"""The progress that a terminal is shown while `python -m terrace.bench` works."""

import io

import pytest

from terrace.bench.__main__ import say


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(("stderr", "kind", "shown"), [
    (Terminal, "xterm", "\r2048 tokens, full\033[K\r\033[K"),
    (Terminal, "dumb", ""),
    (Terminal, "", ""),
    (Terminal, None, ""),
    (io.StringIO, "xterm", ""),
])
def test_progress_is_for_terminals_that_can_take_a_line_back(monkeypatch, stderr, kind, shown):
    if kind is None:
        monkeypatch.delenv("TERM", raising=False)
    else:
        monkeypatch.setenv("TERM", kind)
    said = stderr()
    monkeypatch.setattr("sys.stderr", said)
    say("2048 tokens, full")
    say("")
    assert said.getvalue() == shown
