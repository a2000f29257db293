"""Reads what an engine's release accepts: its flags, its environment, the keys of its configuration.

`python -m tests.engine_flags.extract vllm 0.33.0` writes a list below `tests/unit/engine_flags`, where every test
can ask for it. The releases are not imported, as they need torch and a GPU: their source is read.
"""
