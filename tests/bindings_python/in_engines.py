"""Runs a file of tests in the environment of engines: in_engines.py ROOT FILE. If the environment
is missing the tests are skipped: exit code 77."""

import os
import pathlib
import sys

ROOT = pathlib.Path(sys.argv[1])
PYTHON = ROOT / "build" / "venv-engines" / "bin" / "python"
MODEL = ROOT / "models" / "smollm2"
for needed in (PYTHON, MODEL / "model.safetensors"):
    if not needed.exists():
        print(f"skipped: no {needed}; make test-engines makes it")
        sys.exit(77)
os.environ.update(HF_HUB_OFFLINE="1", TERRACE_TEST_MODEL=str(MODEL), OMP_NUM_THREADS="1")
os.execv(PYTHON, [PYTHON, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-W",
                  "ignore::DeprecationWarning", sys.argv[2]])
