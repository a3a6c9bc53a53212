"""Measures Terrace inside an engine, beside the engine's own cache: python -m terrace.bench."""
