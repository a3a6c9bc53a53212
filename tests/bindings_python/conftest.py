"""Skips what this interpreter lacks, and says so."""

import pytest

import engine


@pytest.fixture
def runtime():
    opened = engine.open_runtime()
    yield opened
    opened.close()
