"""vLLM: `vllm serve` with the NIXL connector, by default as release 0.33."""

from __future__ import annotations

import math
import sys
import uuid
from collections.abc import Mapping, Sequence

from disagg.engine_sim.api.errors import ApiError
from disagg.engine_sim.api.protocol import Common
from disagg.engine_sim.api.serving import Models, Serving
from disagg.engine_sim.blocks import BlockPool
from disagg.engine_sim.clock import Clock
from disagg.engine_sim.dialects import Instance, StartError
from disagg.engine_sim.dialects.vllm.arguments import Arguments, parse
from disagg.engine_sim.dialects.vllm.kv_transfer import KVTransfer, nixl_config
from disagg.engine_sim.dialects.vllm.metrics import EngineMetrics, Registry
from disagg.engine_sim.dialects.vllm.routes import routes
from disagg.engine_sim.dialects.vllm.shape import shape_of
from disagg.engine_sim.engine import Engine, Queue
from disagg.engine_sim.faults import Faults
from disagg.engine_sim.kv_events import EventPublisher
from disagg.engine_sim.scheduler import Limits, Scheduler
from disagg.engine_sim.server import ProcessSettings
from disagg.engine_sim.sim_flags import SimFlags
from disagg.engine_sim.timing import Link, Profile, profile
from disagg.engine_sim.transfer.handshake import Compatibility, Local
from disagg.engine_sim.transfer.nixl import NixlConnector, NixlSettings

_GLOBAL_RANKS = (0, 25)
"""Release from which ids of engines have the rank among all, and not among those of the process."""
_CONNECTOR_VERSION = {(0, 11): 1, (0, 18): 6, (0, 32): 14, (0, 33): 15}


def build(arguments: Sequence[str], environment: Mapping[str, str], sim: SimFlags) -> Instance:
    """See `disagg.engine_sim.dialects.Dialect`."""
    args = parse(arguments, environment, sim.engine_version)
    shape = profile(sim.profile, bandwidth=sim.bandwidth, load_seconds=sim.load_seconds)
    token_bytes = _token_bytes(args, shape)
    count = _blocks(args, shape, token_bytes)
    longest = _longest(args, shape, count)
    _check_fits(args, shape, sim)
    nixl = nixl_config(args.kv_transfer, args.release)
    clock, faults = Clock(sim.time_scale), Faults()
    is_consumer = nixl is not None and nixl.kv_role != "kv_producer"
    registry = Registry(args.served_model_name[0], longest, is_consumer=is_consumer)
    engine_id = (nixl.engine_id if nixl else None) or str(uuid.uuid4())
    # One network card for all ranks of the process.
    link = Link(shape.bandwidth)
    engines = []
    for rank in args.ranks:
        metrics = EngineMetrics(registry, rank, connector=nixl is not None)
        scheduler = Scheduler(
            BlockPool(count, args.block_size, args.enable_prefix_caching), shape, _limits(args, sim)
        )
        connector = None
        if nixl is not None:
            connector = NixlConnector(
                _settings(args, sim, nixl, engine_id + _suffix(args, rank), rank, token_bytes),
                _local(args, sim, nixl, shape),
                scheduler,
                clock,
                link,
                metrics,
                faults,
            )
        events = None
        if args.kv_events.enable_kv_cache_events and args.kv_events.publisher == "zmq":
            events = EventPublisher(args.kv_events, rank, args.block_size, as_map=args.release > (0, 18))
        engine = Engine(
            rank,
            scheduler,
            clock,
            faults,
            metrics,
            connector,
            Queue(args.max_num_queued_reqs, args.max_num_queued_tokens),
            events,
        )
        metrics.watch(engine)
        registry.info(str(rank), _cache_info(args, count, longest))
        engines.append(engine)
    serving = Serving(
        engines,
        Models(
            args.served_model_name,
            args.model,
            longest,
            dict(args.loras),
            args.enable_lora,
            tells_names=args.release >= (0, 32),
        ),
        clock,
        faults,
        seed=args.seed,
        max_logprobs=args.max_logprobs,
        auto_tools=args.auto_tools,
        tool_parser=args.tool_parser,
        prompt_details=args.prompt_details,
        force_usage=args.force_usage,
        echo_ids=args.echo_ids,
        random_ids=args.release >= (0, 13),
        lenient=args.release >= (0, 32),
        tells_of_refusals=args.release >= (0, 22),
        stream_transfer=args.release >= (0, 33),
        shape=shape_of(args),
        admit=_no_pulled_logprobs if args.release < (0, 32) else lambda _call: None,
    )
    app = routes(serving, registry, args)
    settings = ProcessSettings(
        host=args.host,
        port=args.port,
        load_seconds=shape.load_seconds,
        frozen=sim.frozen,
        shutdown_timeout=args.shutdown_timeout,
        keep_alive=args.keep_alive,
    )
    if nixl is not None and args.release >= (0, 33) and nixl.kv_role == "kv_both":
        sys.stderr.write("WARNING: kv_role kv_both with NixlConnector is deprecated\n")
    return Instance(serving, app, settings)


def _suffix(args: Arguments, rank: int) -> str:
    """What tells the ids of a process's ranks apart, if it has several."""
    if args.data_parallel_size == 1 and rank == 0:
        return ""
    return f"_dp{rank if args.release >= _GLOBAL_RANKS else rank - args.ranks[0]}"


def _no_pulled_logprobs(call: Common) -> None:
    """Log probabilities of a prompt need its computation, which a peer has done: older releases break on them."""
    if (call.kv_transfer_params or {}).get("do_remote_prefill") and call.of_prompt is not None:
        raise ApiError("Internal server error", status=500, kind="InternalServerError")


def _token_bytes(args: Arguments, shape: Profile) -> int:
    kept = args.kv_cache_dtype if args.kv_cache_dtype != "auto" else args.dtype
    value = 1 if kept.startswith("fp8") else 4 if kept in {"float", "float32"} else 2
    return shape.shape.token_bytes(value)


def _blocks(args: Arguments, shape: Profile, token_bytes: int) -> int:
    if args.num_gpu_blocks_override is not None:
        return args.num_gpu_blocks_override
    memory = shape.kv_bytes
    if args.kv_cache_memory_bytes is not None:
        # By GPU, each of which has its share of the heads.
        memory = args.kv_cache_memory_bytes * args.tensor_parallel_size
    return max(2, int(memory // (token_bytes * args.block_size)))


def _longest(args: Arguments, shape: Profile, blocks: int) -> int:
    longest = args.max_model_len or shape.max_model_len
    room = (blocks - 1) * args.block_size
    if longest > room:
        if args.max_model_len is None:
            return room
        raise StartError(
            f"ValueError: To serve at least one request with the models's max seq len ({longest}), more KV cache is "
            f"needed, which is larger than the available KV cache memory. Based on the available memory, the estimated "
            f"maximum model length is {room}. Try increasing `gpu_memory_utilization` or decreasing `max_model_len` "
            "when initializing the engine."
        )
    return longest


def _check_fits(args: Arguments, shape: Profile, sim: SimFlags) -> None:
    if sim.attention_backend == "FLASH_ATTN" and args.block_size % 16:
        raise StartError(
            "ValueError: Selected backend AttentionBackendEnum.FLASH_ATTN is not valid for this configuration. Reason: "
            "['block_size not supported']"
        )
    tp, heads = args.tensor_parallel_size, shape.shape.kv_heads
    if not shape.shape.latent and max(tp, heads) % min(tp, heads):
        raise StartError(
            f"Value error, Total number of attention heads must be divisible by tensor parallel size ({tp})."
        )
    nixl = nixl_config(args.kv_transfer, args.release)
    if nixl is not None and args.pipeline_parallel_size > 1:
        raise StartError(
            "NotImplementedError: NixlConnector (pull) does not support pipeline_parallel_size > 1"
        )


def _limits(args: Arguments, sim: SimFlags) -> Limits:
    identity = f"{args.model}/{args.dtype}/{args.kv_cache_dtype}".encode()
    return Limits(
        max_num_seqs=args.max_num_seqs,
        max_num_batched_tokens=args.max_num_batched_tokens,
        max_loras=args.max_loras if args.enable_lora else math.inf,  # type: ignore[arg-type]  # no limit
        by_priority=args.by_priority,
        mean_length=sim.mean_tokens,
        identity=identity,
    )


def _settings(  # noqa: PLR0913, PLR0917 - the parts it is made of
    args: Arguments, sim: SimFlags, nixl: KVTransfer, engine_id: str, rank: int, token_bytes: int
) -> NixlSettings:
    lease = float(nixl.extra.get("kv_lease_duration", 30))
    if args.release < (0, 22):
        lease = 480.0 if args.release >= (0, 18) else 120.0
    return NixlSettings(
        engine_id=engine_id,
        host=args.side_host,
        port=args.side_port + rank,
        data_port=sim.data_port,
        lease=lease,
        recompute=nixl.kv_load_failure_policy == "recompute",
        token_bytes=token_bytes,
        release=args.release,
    )


def _local(args: Arguments, sim: SimFlags, nixl: KVTransfer, shape: Profile) -> Local:
    return Local(
        Compatibility(
            vllm_version=args.version,
            nixl_connector_version=_connector_version(args.release),
            model=args.model,
            dtype=args.dtype,
            num_kv_heads=shape.shape.kv_heads,
            head_size=shape.shape.head_size,
            num_hidden_layers=shape.shape.layers,
            attn_backend_name=sim.attention_backend,
            cache_dtype=args.kv_cache_dtype,
            is_hma_enabled=args.hybrid_kv_cache,
            speculative_config=args.speculative_config,
            transfer_mode="pull",
        ),
        enforce=bool(nixl.extra.get("enforce_handshake_compat", True)) and args.release >= (0, 13),
        tensor_parallel=args.tensor_parallel_size,
        block_size=args.block_size,
        latent=shape.shape.latent,
        host_buffer=nixl.kv_buffer_device == "cpu",
        same_block_size=args.release < (0, 20),
    )


def _connector_version(release: tuple[int, int]) -> int:
    return max(version for since, version in _CONNECTOR_VERSION.items() if since <= max(release, (0, 11)))


def _cache_info(args: Arguments, blocks: int, longest: int) -> dict[str, str]:
    """Labels of vllm:cache_config_info; most of them are what they are without being asked."""
    size = args.block_size
    values: dict[str, object] = {
        "_block_size_resolved": True,
        "block_size": size,
        "cache_dtype": args.kv_cache_dtype,
        "cache_hit_alignment_tokens": None,
        "effective_attention_block_size": size,
        "enable_mamba_shared_prefix_checkpoint": False,
        "enable_prefix_caching": args.enable_prefix_caching,
        "gpu_memory_utilization": 0.92,
        "hash_block_size": None,
        "is_attention_free": False,
        "kv_cache_dtype_skip_layers": [],
        "kv_cache_layout": None,
        "kv_cache_max_concurrency": (blocks - 1) * size / longest,
        "kv_cache_memory_bytes": args.kv_cache_memory_bytes,
        "kv_cache_size_tokens": blocks * size,
        "kv_offloading_backend": "native",
        "kv_offloading_size": None,
        "kv_sharing_fast_prefill": False,
        "mamba_block_size": None,
        "mamba_cache_dtype": "auto",
        "mamba_cache_mode": "none",
        "mamba_page_size_padded": None,
        "mamba_ssm_cache_dtype": "float32",
        "num_cpu_blocks": None,
        "num_gpu_blocks": blocks,
        "num_gpu_blocks_override": args.num_gpu_blocks_override,
        "prefix_cache_retention_interval": 0,
        "prefix_caching_hash_algo": "sha256",
        "prefix_match_unit": None,
        "replayssm_buffer_len": 16,
        "skip_page_size_padded": None,
        "sliding_window": None,
        "swa_bounded_replay": True,
        "use_kda_recoverssm": False,
        "use_replayssm": False,
        "user_specified_block_size": False,
    }
    return {key: str(value) for key, value in values.items()}
