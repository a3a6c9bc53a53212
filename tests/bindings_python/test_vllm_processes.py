"""vLLM runs the model in a process of its own, which loads the plugin, and logs what it does."""

import re

import vllm_engine


def test_the_engines_process_decodes_with_terrace():
    output = vllm_engine.run_example(vllm_engine.install_entry_points(),
                                     VLLM_ENABLE_V1_MULTIPROCESSING="1")
    # When the first request ends.
    found = re.search(r"Terrace: .* (\d+) tokens decoded by Terrace .* tokens, (\d+) entries",
                      output)
    assert found, output[-4000:]
    assert int(found[1]) >= 15
    assert 0 < int(found[2]) <= vllm_engine.SMALL_BUDGET
