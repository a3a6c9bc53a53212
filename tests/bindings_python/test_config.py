"""Settings, and what a runtime says of itself."""

import pytest

import engine
import terrace


def test_values_become_text_and_nearest_keys_are_named(tmp_path):
    config = terrace.Config({"retrieval.budget": 0.25})
    assert config["retrieval.budget"] == "0.25"
    file = tmp_path / "settings.yaml"
    file.write_text("cache.policy: lru\nretrieval.budget: 0.5\n")
    config.load(file)
    assert config["cache.policy"] == "lru"
    assert config["retrieval.budget"] == "0.25"  # set by hand
    with pytest.raises(terrace.InvalidArgument, match="retrieval.budget"):
        config["retrieval.budgte"] = 1
    with pytest.raises(terrace.StoreError):
        config.load(tmp_path / "none.yaml")
    with pytest.raises(terrace.InvalidArgument, match="mine:2"):
        config.parse("cache.policy: [", "mine")
    assert {"name", "value", "origin", "accepts", "meaning"} <= set(config.describe()[0])


def test_paths_are_text_bytes_or_objects_that_have_one(tmp_path):
    file = tmp_path / "settings.yaml"
    file.write_text("cache.policy: lru\n")
    for path in (file, str(file), bytes(file)):
        config = terrace.Config()
        config.load(path)
        assert config["cache.policy"] == "lru"
    with pytest.raises(terrace.StoreError, match=r"\\xff"):
        terrace.Config().load(bytes(tmp_path) + b"/\xff")


def test_the_environment_is_read_when_asked(monkeypatch):
    monkeypatch.setenv("TERRACE_CACHE_POLICY", "lfu")
    config = terrace.Config()
    assert config["cache.policy"] != "lfu"
    config.load_environment()
    assert config["cache.policy"] == "lfu"
    monkeypatch.setenv("TERRACE_CACHE_POLCY", "arc")
    with pytest.raises(terrace.InvalidArgument, match="did you mean TERRACE_CACHE_POLICY"):
        config.load_environment()


def test_policies_in_other_letters_are_near():
    with pytest.raises(terrace.InvalidArgument, match="did you mean pqcache"):
        engine.open_runtime({"retrieval.policy": "PQCache"})


def test_runtimes_say_what_they_are():
    runtime = terrace.Runtime(terrace.Config(engine.EXACT), **engine.SHAPE, dtype="bf16")
    assert runtime.traits()["backend"]["name"] == "host"
    assert runtime.traits()["retrieval"] == "pqcache"
    assert (runtime.layers, runtime.dtype, runtime.sequences) == (engine.LAYERS, "bf16", 0)
    sequence = runtime.open_sequence()
    assert set(sequence.needs()) == {"query_window_tokens", "pre_rope_keys", "attention_scores",
                                     "speculated_query"}


def test_runtimes_say_what_memory_a_sequence_needs():
    runtime = terrace.Runtime(terrace.Config(engine.EXACT), **engine.SHAPE, dtype="bf16")
    decoding = runtime.memory_need(1000)
    assert decoding["device_held"] == runtime.device_bytes(1000) > 0
    assert list(decoding) == ["device_held", "device_cache", "device_step", "device_shared",
                              "host_rows", "host_index", "host_rest", "index_bytes"]
    piece = runtime.memory_need(1000, 64)
    assert piece["device_shared"] > decoding["device_shared"]
    converted = runtime.memory_need(1000, step_tokens=64, dtype="f16")
    numbers = engine.SHAPE["query_heads"] * engine.SHAPE["head_dim"]
    assert converted["device_step"] - piece["device_step"] == 2 * 64 * numbers * 4
    assert runtime.memory_need(1000, draft_tokens=8)["host_rest"] > decoding["host_rest"]
    assert runtime.memory_need(1000, prompt_tokens=9, later_prompt_tokens=9, cache_sharers=2)
    with pytest.raises(terrace.InvalidArgument, match="a sequence may have"):
        runtime.memory_need(2**40)
    with pytest.raises(terrace.InvalidArgument, match="a sequence may have"):
        runtime.device_bytes(2**40)


@pytest.mark.parametrize("settings", ["terrace.yaml", ["retrieval.budget"]])
def test_settings_that_are_no_mapping_are_refused(settings):
    for call in (terrace.Config, lambda given: terrace.Runtime(given, **engine.SHAPE)):
        with pytest.raises(terrace.InvalidArgument, match="config is of type .*: give a mapping"):
            call(settings)


@pytest.mark.parametrize(("settings", "shape", "kind"), [
    ({"retrieval.policy": "pqcach"}, {}, terrace.InvalidArgument),
    ({"backend": "cuda"}, {}, terrace.Unsupported),
    ({}, {"head_dim": 33}, terrace.InvalidArgument),
    ({}, {"kv_heads": 3}, terrace.InvalidArgument),
    ({}, {"dtype": "f8"}, terrace.InvalidArgument),
])
def test_settings_and_shapes_that_do_not_fit_are_refused(settings, shape, kind):
    with pytest.raises(kind) as raised:
        terrace.Runtime({**engine.EXACT, **settings}, **{**engine.SHAPE, **shape})
    assert isinstance(raised.value, terrace.Error)
    assert "\n" not in str(raised.value)
