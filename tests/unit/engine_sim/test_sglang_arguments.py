from __future__ import annotations

import pytest

from disagg.engine_sim.dialects import StartError
from disagg.engine_sim.dialects.sglang.arguments import Arguments, parse, parser
from disagg.engine_sim.dialects.sglang.settings import read
from tests.unit.engine_flags import flags as released


def parsed(*arguments: str, **environment: str) -> Arguments:
    return parse(["--model-path=m", *arguments], read(environment))


def test_defaults_are_sglangs() -> None:
    args = parsed()
    assert (args.mode, args.host, args.port, args.bootstrap_port) == ("null", "127.0.0.1", 30000, 8998)
    assert (args.page_size, args.transfer_backend, args.enable_metrics) == (1, "mooncake", False)
    assert (args.served_model_name, args.kv_cache_dtype) == ("m", "bfloat16")


@pytest.mark.parametrize(
    ("arguments", "dp", "attention_tp"),
    [
        ((), 1, 1),
        (("--tp-size=8",), 1, 8),
        (("--tp-size=8", "--attn-dp-size=8"), 8, 1),
        (("--tp-size=8", "--dp-size=4", "--enable-dp-attention"), 4, 2),
        (("--tp-size=2", "--dp-size=4"), 4, 2),
    ],
)
def test_heads_are_spread_over_what_data_parallelism_leaves(
    arguments: tuple[str, ...], dp: int, attention_tp: int
) -> None:
    args = parsed(*arguments)
    assert (args.dp_size, args.attn_tp_size) == (dp, attention_tp)


@pytest.mark.parametrize(
    ("arguments", "follows"),
    [
        (("--disaggregation-mode=prefill",), True),
        (("--disaggregation-mode=decode",), False),
        (("--disaggregation-mode=prefill", "--load-balance-method=round_robin"), False),
        (("--disaggregation-mode=decode", "--load-balance-method=follow_bootstrap_room"), True),
    ],
)
def test_ranks_of_prefill_follow_from_rooms(arguments: tuple[str, ...], follows: bool) -> None:
    assert parsed(*arguments).follow_room is follows


@pytest.mark.parametrize(
    ("arguments", "cached"),
    [
        ((), True),
        (("--disable-radix-cache",), False),
        (("--disaggregation-mode=prefill",), True),
        (("--disaggregation-mode=decode",), False),
        (("--disaggregation-mode=decode", "--disaggregation-decode-enable-radix-cache"), True),
    ],
)
def test_decode_has_no_radix_cache_unless_told(arguments: tuple[str, ...], cached: bool) -> None:
    assert parsed(*arguments).radix_cache is cached


@pytest.mark.parametrize(
    ("given", "found"),
    [
        (["a=/a", "b=/b"], {"a": "/a", "b": "/b"}),
        (["/a"], {"/a": "/a"}),
        (['{"lora_name": "a", "lora_path": "/a"}'], {"a": "/a"}),
    ],
)
def test_adapters_have_three_forms(given: list[str], found: dict[str, str]) -> None:
    assert parsed("--lora-paths", *given).loras == found


@pytest.mark.parametrize("given", ["{", '{"lora_name": "a"}'])
def test_an_adapter_in_no_form_is_refused(given: str) -> None:
    with pytest.raises(StartError):
        parsed("--lora-paths", given)


def test_names_of_number_formats_that_mean_the_same_are_equal() -> None:
    assert {parsed(f"--kv-cache-dtype={name}").kv_cache_dtype for name in ("auto", "bf16", "bfloat16")} == {
        "bfloat16"
    }


def test_events_are_on_when_they_are_configured() -> None:
    assert not parsed().kv_events.enable_kv_cache_events
    assert parsed('--kv-events-config={"publisher":"zmq"}').kv_events.enable_kv_cache_events
    with pytest.raises(StartError):
        parsed('--kv-events-config={"publishers":"zmq"}')


def test_variables_that_can_not_be_read_have_their_default() -> None:
    found = read({"SGLANG_DISAGGREGATION_WAITING_TIMEOUT": "long", "SGLANG_DISAGG_STAGING_BUFFER": "maybe"})
    assert (found.waiting_timeout, found.staging) == (300, False)


def test_heartbeats_are_at_least_two_seconds_apart() -> None:
    found = read(
        {
            "SGLANG_DISAGGREGATION_HEARTBEAT_INTERVAL": "0.1",
            "SGLANG_DISAGGREGATION_HEARTBEAT_MAX_FAILURE": "0",
        }
    )
    assert (found.heartbeat, found.heartbeat_failures) == (2.0, 1)


def test_flags_are_those_of_the_release() -> None:
    known = {name: flag for flag in released("sglang", "0.5.23").flags.values() for name in flag.names}
    ours = {name: action for action in parser()._actions for name in action.option_strings}  # noqa: SLF001 - argparse tells it nowhere else
    del ours["-h"], ours["--help"]
    assert ours.keys() == known.keys()
    for name, flag in known.items():
        choices = ours[name].choices
        assert (None if choices is None else list(choices)) == (
            None if flag.choices is None else [str(each) for each in flag.choices]
        )
