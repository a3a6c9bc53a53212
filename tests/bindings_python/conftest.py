"""The fixtures that files of tests share."""

import pytest

import engine


@pytest.fixture
def runtime():
    opened = engine.open_runtime()
    yield opened
    opened.close()
