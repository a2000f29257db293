"""TensorRT-LLM: `trtllm-serve MODEL` with the PyTorch backend, by default as release 1.2, and its orchestrator.

- `arguments`, `flags`, `config` and `options` read the command line and the file that it names.
- `protocol` reads requests, `worker` makes the engine's of them, `generate` and `answers` answer.
- `transceiver` and `opaque` move KV; `stats` and `metrics` tell of it; `routes` are the routes.
- `orchestrator` and `orchestrator_config` are `trtllm-serve disaggregated`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from disagg.engine_sim.api.serving import Models, Serving
from disagg.engine_sim.blocks import BlockPool
from disagg.engine_sim.clock import Clock
from disagg.engine_sim.dialects import Instance, StartError
from disagg.engine_sim.dialects.trtllm.arguments import Arguments, parse
from disagg.engine_sim.dialects.trtllm.metrics import Registry, WorkerObserver
from disagg.engine_sim.dialects.trtllm.opaque import CacheState
from disagg.engine_sim.dialects.trtllm.orchestrator import orchestrator
from disagg.engine_sim.dialects.trtllm.protocol import CONTEXT
from disagg.engine_sim.dialects.trtllm.routes import Told, routes
from disagg.engine_sim.dialects.trtllm.stats import CacheEvents, IterationStats, RequestStats
from disagg.engine_sim.dialects.trtllm.transceiver import CacheTransceiver, TransceiverSettings
from disagg.engine_sim.dialects.trtllm.worker import Worker
from disagg.engine_sim.engine import Engine
from disagg.engine_sim.faults import Faults
from disagg.engine_sim.request import Request
from disagg.engine_sim.scheduler import Limits, Scheduler
from disagg.engine_sim.server import ProcessSettings
from disagg.engine_sim.sim_flags import SimFlags
from disagg.engine_sim.timing import Link, Profile, profile

_VALUE_BYTES = {"auto": 2.0, "fp8": 1.0, "nvfp4": 0.5}
_USUAL_FRACTION = 0.9
"""Of the free memory, for KV. That is what profiles count with."""


def build(arguments: Sequence[str], environment: Mapping[str, str], sim: SimFlags) -> Instance:
    """See `disagg.engine_sim.dialects.Dialect`."""
    if arguments[:1] == ["disaggregated"]:
        return orchestrator(arguments[1:], environment, sim)
    args = parse(arguments, environment, sim.engine_version)
    shape = profile(sim.profile, bandwidth=sim.bandwidth, load_seconds=sim.load_seconds)
    heads, tp = shape.shape.kv_heads, args.tensor_parallel_size
    if not shape.shape.latent and max(tp, heads) % min(tp, heads):
        raise StartError(f"AssertionError: {heads} KV heads can't be divided over {tp} ranks")
    clock, faults, link = Clock(sim.time_scale), Faults(), Link(shape.bandwidth)
    ranks = tp if args.enable_attention_dp else 1
    count = _blocks(args, shape)
    iterations = [IterationStats(args.stats, args.max_batch_size) for _rank in range(ranks)]
    ended = RequestStats(args.perf_metrics_max_requests if args.return_perf_metrics else 0)
    events = [CacheEvents(args.events, count - 1) for _rank in range(ranks)]
    registry = Registry(args.release, iterations, gauges=args.stats > 0)
    engines = []
    for rank in range(ranks):
        observer = WorkerObserver(registry, iterations[rank], ended)
        pool = BlockPool(count, args.tokens_per_block, args.enable_block_reuse)
        pool.on_event = events[rank].record
        scheduler = Scheduler(pool, shape, _limits(args, sim))
        transceiver = None
        if args.transfer is not None:
            transceiver = CacheTransceiver(
                _settings(args, shape, sim, rank), scheduler, clock, link, observer, faults
            )
        engine = Engine(rank, scheduler, clock, faults, observer, transceiver, is_prefill=_is_context)
        observer.watch(engine)
        engines.append(engine)
    longest = min(args.max_seq_len or shape.max_model_len, (count - 1) * args.tokens_per_block)
    serving = Serving(engines, Models([args.name], args.model, longest), clock, faults)
    settings = ProcessSettings(
        host=args.host,
        port=args.port,
        load_seconds=shape.load_seconds,
        frozen=sim.frozen,
        calls_only=True,
    )
    app = routes(Worker(serving, args, sim.seed or 0), Told(registry, iterations, ended, events))
    return Instance(serving, app, settings)


def _is_context(request: Request) -> bool:
    return (request.transfer or {}).get("request_type") == CONTEXT


def _token_bytes(args: Arguments, shape: Profile) -> float:
    return shape.shape.token_bytes(_VALUE_BYTES[args.dtype])


def _blocks(args: Arguments, shape: Profile) -> int:
    memory = shape.kv_bytes * args.free_gpu_memory_fraction / _USUAL_FRACTION
    tokens = memory / _token_bytes(args, shape)
    if args.tokens is not None:
        tokens = min(tokens, args.tokens)
    # The first is never given out.
    return max(2, int(tokens // args.tokens_per_block) + 1)


def _limits(args: Arguments, sim: SimFlags) -> Limits:
    return Limits(
        max_num_seqs=args.max_batch_size,
        max_num_batched_tokens=args.max_num_tokens,
        mean_length=sim.mean_tokens,
        identity=f"{args.model}/{args.dtype}".encode(),
    )


def _settings(args: Arguments, shape: Profile, sim: SimFlags, rank: int) -> TransceiverSettings:
    backend = args.transfer or ""
    return TransceiverSettings(
        cache=CacheState(
            dtype=args.dtype,
            tokens_per_block=args.tokens_per_block,
            layers=shape.shape.layers,
            kv_heads=shape.shape.kv_heads,
            head_size=shape.shape.head_size,
            tensor_parallel=args.tensor_parallel_size,
        ),
        backend=f"NIXL/{args.nixl_backend}" if backend == "NIXL" else backend,
        timeout=args.transfer_timeout,
        data_port=sim.data_port + rank if sim.data_port else 0,
        token_bytes=_token_bytes(args, shape),
        rank=rank,
    )
