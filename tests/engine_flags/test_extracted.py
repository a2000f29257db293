"""The lists against the releases. Opt-in, as it downloads hundreds of megabytes: `make engine-flags`."""

from __future__ import annotations

import os

import pytest

from tests.engine_flags.extract import EXTRACTORS, extracted
from tests.unit.engine_flags import path, releases

pytestmark = [
    pytest.mark.skipif(os.environ.get("DISAGG_ENGINE_FLAGS") != "1", reason="`make engine-flags` runs it"),
    pytest.mark.timeout(1800),
]

RELEASES = [(engine, version) for engine in EXTRACTORS for version in releases(engine)]


@pytest.mark.parametrize(("engine", "version"), RELEASES, ids=[" ".join(release) for release in RELEASES])
def test_a_list_is_what_its_release_accepts(engine: str, version: str) -> None:
    kept, now = (
        set(text.splitlines()) for text in (path(engine, version).read_text(), extracted(engine, version))
    )
    assert not kept ^ now
