"""vLLM with SmolLM2 in this process, with few pages, and what the tests ask of it."""

import contextlib
import os
import pathlib
import subprocess
import sys
import tempfile
import tomllib

FOLDER = tempfile.TemporaryDirectory(prefix="terrace-vllm-")
SOURCE = pathlib.Path(__file__).parents[2]
MODEL = os.environ["TERRACE_TEST_MODEL"]
ENVIRONMENT = {"VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_CACHE_ROOT": FOLDER.name,
               "TORCHINDUCTOR_CACHE_DIR": FOLDER.name, "VLLM_NO_USAGE_STATS": "1",
               "TERRACE_VLLM_MIN_TOKENS": "512"}
BLOCK_TOKENS = 128
SMALL_BUDGET = 128
CONNECTOR = {"kv_connector": "TerraceConnector", "kv_role": "kv_both",
             "kv_connector_module_path": "terrace.vllm.connector"}


def write_settings(name: str, **keys) -> str:
    path = pathlib.Path(FOLDER.name, name)
    path.write_text("".join(f"{key.replace('__', '.')}: {value}\n" for key, value in keys.items()))
    return str(path)


def install_entry_points() -> str:
    """Makes a folder for the path of Python that has the package's entry points, as a wheel has."""
    project = tomllib.loads(SOURCE.joinpath("pyproject.toml").read_text())["project"]
    folder = pathlib.Path(FOLDER.name, "installed", "terrace-0.dist-info")
    folder.mkdir(parents=True, exist_ok=True)
    folder.joinpath("METADATA").write_text("Metadata-Version: 2.1\nName: terrace\nVersion: 0\n")
    folder.joinpath("entry_points.txt").write_text("".join(
        f"[{group}]\n" + "".join(f"{name} = {value}\n" for name, value in points.items())
        for group, points in project["entry-points"].items()))
    return str(folder.parent)


def prepare_process() -> None:
    """Has vLLM run in this process, quietly, and find the plugin. Before vLLM is imported."""
    os.environ.update(ENVIRONMENT, VLLM_ENABLE_V1_MULTIPROCESSING="0", VLLM_LOGGING_LEVEL="ERROR")
    sys.path.insert(0, install_entry_points())


@contextlib.contextmanager
def served_by_terrace():
    """Models that are loaded meanwhile have Terrace's attention, to all tokens."""
    import terrace.vllm
    from vllm.v1.attention import selector

    os.environ["TERRACE_CONFIG"] = exact_settings()
    terrace.vllm.register()
    selector._cached_get_attn_backend.cache_clear()  # of the stock model
    yield
    del os.environ["TERRACE_CONFIG"]


def exact_settings() -> str:
    return write_settings("exact.yaml", retrieval__policy="pqcache", retrieval__budget=4096)


def load(blocks: int = 24, **options):
    from vllm import LLM

    return LLM(model=MODEL, dtype="float32", max_model_len=2048, enforce_eager=True,
               block_size=BLOCK_TOKENS, num_gpu_blocks_override=blocks,
               max_num_batched_tokens=256, disable_log_stats=False, **options)


def metric(llm, name: str) -> int:
    return sum(one.value for one in llm.get_metrics() if one.name == name)


def texts(llm, prompts: list[list[int]], tokens: int) -> list[str]:
    from vllm import SamplingParams

    answers = llm.generate([{"prompt_token_ids": prompt} for prompt in prompts],
                           SamplingParams(temperature=0, max_tokens=tokens), use_tqdm=False)
    return [answer.outputs[0].text for answer in answers]


def run_python(*arguments, **environment) -> subprocess.CompletedProcess:
    """Runs a program with the plugin installed. Only one that hangs takes as long as the timeout,
    under sanitizers and load, too."""
    path = os.pathsep.join([install_entry_points(), os.environ["PYTHONPATH"]])
    return subprocess.run([sys.executable, *arguments], capture_output=True, text=True,
                          timeout=3600, check=False,
                          env={**os.environ, **ENVIRONMENT, "PYTHONPATH": path, **environment})


def run_example(**environment) -> str:
    """Runs the example with a budget far below the context, as a user does."""
    settings = write_settings("small.yaml", retrieval__policy="pqcache",
                              retrieval__budget=SMALL_BUDGET, index__until_ready="wait")
    done = run_python(SOURCE / "examples" / "vllm_offline.py", MODEL, SOURCE / "LICENSE",
                      TERRACE_CONFIG=settings, VLLM_LOGGING_LEVEL="INFO", **environment)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    return done.stdout + done.stderr
