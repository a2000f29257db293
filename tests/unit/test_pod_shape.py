"""An overlay may be anything: the API server refuses it by name, so that nothing here may stumble over it before."""

from __future__ import annotations

from typing import Any

import pytest

from disagg.assess.kv_transfer import review
from disagg.build.pod_shape import is_readable
from tests.unit.resources import resource

ENGINES: dict[str, dict[str, Any]] = {
    "vllm": {},
    "sglang": {
        "engine": {"kind": "sglang", "image": "lmsysorg/sglang:v0.5.23"},
        "router": {"image": "smg:1"},
    },
    "trtllm": {"engine": {"kind": "trtllm", "image": "tensorrt-llm:1.2.0"}},
}
NO_POD: dict[str, object] = {
    "containers as text": "engine",
    "one container without a list": {"name": "engine"},
    "containers as a list of text": ["engine"],
    "an image that is a number": [{"name": "engine", "image": 7}],
    "arguments as text": [{"name": "engine", "args": "--port=8000"}],
    "arguments that are no text": [{"name": "engine", "args": ["--port", 8000]}],
    "arguments that are blocks": [{"name": "engine", "args": [{"port": 8000}]}],
    "variables as text": [{"name": "engine", "env": ["HF_HOME=/cache"]}],
    "a variable without a name": [{"name": "engine", "env": [{"value": "/cache"}]}],
    "ports as text": [{"name": "engine", "ports": ["8000"]}],
}


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("containers", NO_POD.values(), ids=NO_POD)
def test_an_overlay_that_makes_no_pod_is_left_to_the_api_server(engine: str, containers: object) -> None:
    overlay = {"podTemplate": {"spec": {"containers": containers}}}
    found = review(resource(**ENGINES[engine], decode=overlay))
    assert (found.incompatibility, found.breaches) == (None, ())


@pytest.mark.parametrize("containers", NO_POD.values(), ids=NO_POD)
def test_what_is_no_pod_is_not_read(containers: object) -> None:
    assert not is_readable({"spec": {"containers": containers}})


@pytest.mark.parametrize(
    "template",
    [
        {"spec": {}},
        {"spec": {"containers": None}},
        {"spec": {"containers": [{"name": "engine", "args": None, "env": [], "ports": [{}]}]}},
    ],
)
def test_what_is_left_out_is_no_mistake(template: dict[str, Any]) -> None:
    assert is_readable(template)
