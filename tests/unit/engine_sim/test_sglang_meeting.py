"""What prefill says of itself, what decode makes of it, and where a call's sequences meet."""

from __future__ import annotations

from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from disagg.engine_sim.api.serving import Serving
from disagg.engine_sim.dialects.sglang.arguments import parse
from disagg.engine_sim.dialects.sglang.bootstrap import Registry
from disagg.engine_sim.dialects.sglang.calls import Completion
from disagg.engine_sim.dialects.sglang.desk import Desk
from disagg.engine_sim.dialects.sglang.errors import SglangError
from disagg.engine_sim.dialects.sglang.peers import Own, misfit
from disagg.engine_sim.dialects.sglang.settings import read


def row(**fields: Any) -> dict[str, Any]:
    return {
        "attn_tp_size": 1,
        "attn_tp_rank": 0,
        "attn_cp_size": 1,
        "attn_cp_rank": 0,
        "attn_dp_size": 1,
        "attn_dp_rank": 0,
        "pp_size": 1,
        "pp_rank": 0,
        "system_dp_size": 1,
        "system_dp_rank": 0,
        "rank_ip": "10.0.0.1",
        "rank_port": 4000,
        "page_size": 64,
        "kv_cache_dtype": "bfloat16",
        **fields,
    }


# Ranks.


@given(st.integers(1, 3), st.integers(1, 3), st.integers(1, 2))
def test_a_registry_is_ready_when_all_ranks_are_there(dp: int, tp: int, pp: int) -> None:
    registry = Registry()
    places = [(d, t, p) for d in range(dp) for t in range(tp) for p in range(pp)]
    for number, (d, t, p) in enumerate(places):
        assert not registry.ready
        assert f"({number} workers registered)" in registry.missing
        sizes = {"attn_tp_size": tp, "attn_dp_size": dp, "pp_size": pp}
        registry.register(row(**sizes, attn_dp_rank=d, attn_tp_rank=t, pp_rank=p, rank_port=4000 + number))
    assert registry.ready
    assert registry.info()["dp_size"] == dp
    for number, (d, t, p) in enumerate(places):
        assert registry.rank(d, 0, t, p) == {"rank_ip": "10.0.0.1", "rank_port": 4000 + number}
    assert registry.rank(dp, 0, 0, 0) is None


def test_ranks_that_are_engines_of_their_own_count_as_well() -> None:
    registry = Registry()
    for rank in range(2):
        registry.register(row(system_dp_size=2, system_dp_rank=rank))
    assert (registry.ready, registry.info()["dp_size"]) == (True, 2)


def test_ranks_of_another_policy_are_refused() -> None:
    registry = Registry()
    assert registry.register(row()) is None
    refusal = registry.register(row(decode_allocation_policy="prefill_complete"))
    assert refusal == "Inconsistent prefill allocation policies"


def test_rooms_are_forgotten() -> None:
    registry = Registry()
    registry.enter(1, 0, 10.0)
    registry.enter(2, 1, 20.0)
    assert registry.ranks_of([1, "2", 3]) == {"1": 0, "2": 1}
    registry.forget(15.0)
    assert registry.ranks_of([1, 2]) == {"2": 1}


# What fits.

OWN = Own(64, "bfloat16", 2, 1, latent=False)


def info(**fields: Any) -> dict[str, Any]:
    return {"page_size": 64, "kv_cache_dtype": "bfloat16", "attn_tp_size": 2, "pp_size": 1, **fields}


@pytest.mark.parametrize(
    ("own", "fields", "refusal"),
    [
        (OWN, {}, None),
        (OWN, {"page_size": 1}, "Page size mismatch"),
        (OWN, {"page_size": None, "kv_cache_dtype": None}, None),
        (OWN, {"kv_cache_dtype": "fp8_e4m3"}, "KV cache dtype mismatch"),
        (OWN, {"attn_tp_size": 4}, "different TP sizes"),
        (Own(64, "bfloat16", 2, 1, latent=True), {"attn_tp_size": 8}, None),
        (Own(64, "bfloat16", 2, 1, latent=False, staging=True), {"attn_tp_size": 8}, None),
        (Own(64, "bfloat16", 2, 1, latent=False, staging=True), {"attn_tp_size": 3}, "different TP sizes"),
        (
            Own(64, "mxfp8", 2, 1, latent=False, staging=True),
            {"attn_tp_size": 4, "kv_cache_dtype": "mxfp8"},
            "MXFP8",
        ),
        (OWN, {"pp_size": 2}, None),
        (Own(64, "bfloat16", 2, 2, latent=False), {}, "pp size"),
    ],
)
def test_what_decode_can_take(own: Own, fields: dict[str, Any], refusal: str | None) -> None:
    found = misfit(own, info(**fields))
    assert found is None if refusal is None else refusal in (found or "")


# Rooms.


def desk(mode: str = "decode") -> Desk:
    env = read({"SGLANG_HOST_IP": "127.0.0.1"})
    return Desk(cast("Serving", None), parse(["--model-path=m", f"--disaggregation-mode={mode}"], env), env)


def call(**fields: Any) -> Completion:
    return Completion(prompt="hi", **fields)


def test_a_single_room() -> None:
    (place,) = desk().places(call(bootstrap_host="h", bootstrap_room=7), 1, batch=False)
    assert place is not None
    assert (place.address, place.room, place.stuck, place.fake) == ("h:8998", 7, False, False)


def test_rooms_of_a_batch_follow_each_other_unless_there_is_a_list() -> None:
    shared = desk().places(call(bootstrap_host="h", bootstrap_room=7), 3, batch=True)
    assert [place and place.room for place in shared] == [7, 8, 9]
    own = desk().places(
        call(bootstrap_host=["a", "b"], bootstrap_port=[1, None], bootstrap_room=[5, 4]), 2, batch=True
    )
    assert [place and (place.address, place.room) for place in own] == [("a:1", 5), ("b:8998", 4)]


def test_an_engine_alone_has_no_rooms() -> None:
    assert desk("null").places(call(bootstrap_host="h", bootstrap_room=7), 2, batch=True) == [None, None]


def test_no_room_is_no_place() -> None:
    assert desk().places(call(bootstrap_host="h"), 1, batch=False) == [None]


@pytest.mark.parametrize(
    ("fields", "prompts", "batch"),
    [
        ({"bootstrap_room": [1]}, 1, False),
        ({"bootstrap_room": [1]}, 2, True),
        ({"bootstrap_host": ["h"]}, 2, True),
    ],
)
def test_lists_must_fit_the_prompts(fields: dict[str, Any], prompts: int, batch: bool) -> None:
    with pytest.raises(SglangError) as caught:
        desk().places(call(**fields), prompts, batch=batch)
    assert caught.value.status == 500


def test_samples_of_a_prompt_are_stuck_but_not_in_a_health_check() -> None:
    (place,) = desk().places(call(bootstrap_host="h", bootstrap_room=7, n=2), 1, batch=False)
    (fake,) = desk().places(call(bootstrap_host="2.2.2.2", bootstrap_room=7, n=2), 1, batch=False)
    assert (place and place.stuck, fake and fake.stuck) == (True, False)
