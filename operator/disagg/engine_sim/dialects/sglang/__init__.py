"""SGLang 0.5.23: `python -m sglang.launch_server`, alone or as prefill or decode.

A request goes to both sides at once, with a room that they meet by (`places`). Prefill holds it (`prefill`) until decode
has room for it; decode (`decode`) learns from prefill's bootstrap server (`bootstrap`, `peers`) where its ranks are, says
where it wants the pages (`wire`), and says on what prefill began (`relay`). `desk` is what the API (`generate`, `health`,
`routes`) hands calls to.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Mapping, Sequence

from disagg.engine_sim.api.serving import Models, Serving
from disagg.engine_sim.blocks import BlockPool
from disagg.engine_sim.clock import Clock
from disagg.engine_sim.dialects import Instance, StartError
from disagg.engine_sim.dialects.sglang import settings
from disagg.engine_sim.dialects.sglang.arguments import Arguments, parse
from disagg.engine_sim.dialects.sglang.bootstrap import BootstrapServer
from disagg.engine_sim.dialects.sglang.decode import DecodeConnector
from disagg.engine_sim.dialects.sglang.desk import Desk
from disagg.engine_sim.dialects.sglang.events import PageEvents
from disagg.engine_sim.dialects.sglang.metrics import RankMetrics, Registry
from disagg.engine_sim.dialects.sglang.peers import Own, Peers
from disagg.engine_sim.dialects.sglang.prefill import PrefillConnector, RankSettings
from disagg.engine_sim.dialects.sglang.routes import routes
from disagg.engine_sim.dialects.sglang.settings import Environment
from disagg.engine_sim.dialects.sglang.wire import Port
from disagg.engine_sim.engine import Engine
from disagg.engine_sim.faults import Faults
from disagg.engine_sim.scheduler import Limits, Scheduler
from disagg.engine_sim.server import ProcessSettings
from disagg.engine_sim.sim_flags import SimFlags
from disagg.engine_sim.timing import Link, Profile, profile


def build(arguments: Sequence[str], environment: Mapping[str, str], sim: SimFlags) -> Instance:
    """See `disagg.engine_sim.dialects.Dialect`."""
    env = settings.read(environment)
    args = parse(arguments, env, sim.engine_version)
    shape = profile(sim.profile, bandwidth=sim.bandwidth, load_seconds=sim.load_seconds)
    clock, faults = Clock(sim.time_scale), Faults()
    longest = args.context_length or shape.max_model_len
    registry = Registry(args)
    bootstrap = None
    if args.mode == "prefill":
        bootstrap = BootstrapServer(args.host, args.bootstrap_port, env.entry_cleanup, faults)
    ranks = _Ranks(args, env, sim, shape, clock, faults, registry, bootstrap)
    engines = [ranks.engine(rank) for rank in range(args.dp_size)]
    serving = Serving(
        engines,
        Models((args.served_model_name,), args.model_path, longest, dict(args.loras), args.enable_lora),
        clock,
        faults,
        seed=args.random_seed,
    )
    desk = Desk(serving, args, env, bootstrap, streaming=ranks.streaming)
    app = routes(desk, registry)
    if bootstrap is not None:
        # It is up while the engine loads: decode gets 503 from it until all ranks are there.
        desk.opening = asyncio.ensure_future(bootstrap.start())
    return Instance(
        serving,
        app,
        ProcessSettings(
            host=args.host,
            port=args.port,
            load_seconds=shape.load_seconds,
            frozen=sim.frozen,
            shutdown_timeout=None,
            keep_alive=env.keep_alive,
            drain=desk.drain,
        ),
    )


class _Ranks:
    """Makes the data-parallel ranks of a process."""

    def __init__(  # noqa: PLR0913, PLR0917 - the parts they are made of
        self,
        args: Arguments,
        env: Environment,
        sim: SimFlags,
        shape: Profile,
        clock: Clock,
        faults: Faults,
        registry: Registry,
        bootstrap: BootstrapServer | None,
    ) -> None:
        self._args, self._env, self._sim, self._shape = args, env, sim, shape
        self._clock, self._faults, self._registry, self._bootstrap = clock, faults, registry, bootstrap
        self._token_bytes = _token_bytes(args, shape)
        # One network card for all ranks of the process.
        self._link = Link(shape.bandwidth)
        self._peers: Peers | None = None
        self.streaming: set[str] = set()

    def engine(self, rank: int) -> Engine:
        """One rank."""
        args = self._args
        metrics = RankMetrics(self._registry, args, rank, self.streaming)
        pool = BlockPool(self._pages(), args.page_size, args.radix_cache)
        scheduler = Scheduler(pool, self._shape, _limits(args, self._sim))
        connector = self._connector(rank, scheduler, metrics)
        events = None
        if args.kv_events.enable_kv_cache_events:
            events = PageEvents(args.kv_events, rank, args.page_size)
        engine = Engine(
            rank,
            scheduler,
            self._clock,
            self._faults,
            metrics,
            connector,
            events=events,
            is_prefill=lambda _request: args.mode == "prefill",
        )
        if isinstance(connector, PrefillConnector):
            metrics.after_step = connector.stepped
        metrics.watch(engine)
        return engine

    def _connector(
        self, rank: int, scheduler: Scheduler, metrics: RankMetrics
    ) -> PrefillConnector | DecodeConnector | None:
        args, env = self._args, self._env
        if args.mode == "null":
            return None
        prefill = args.mode == "prefill"
        port = self._sim.data_port + rank if self._sim.data_port else 0
        own = RankSettings(
            ip=env.host_ip,
            port=port,
            page_size=args.page_size,
            token_bytes=self._token_bytes,
            timeout=env.bootstrap_timeout if prefill else env.waiting_timeout,
        )
        if prefill:
            return PrefillConnector(
                own,
                scheduler,
                self._clock,
                self._link,
                metrics,
                self._faults,
                lambda at: self._register(rank, at),
            )
        if self._peers is None:
            fit = Own(
                args.page_size,
                args.kv_cache_dtype,
                args.attn_tp_size,
                args.pp_size,
                self._shape.shape.latent,
                env.staging,
                env.query_rank,
            )
            self._peers = Peers(fit, self._clock, self._faults, env.heartbeat, env.heartbeat_failures)
        return DecodeConnector(own, scheduler, self._clock, self._peers, metrics, self._faults)

    def _register(self, rank: int, port: Port) -> None:
        """Tell the bootstrap server of all GPUs of a rank."""
        args, bootstrap = self._args, self._bootstrap
        if bootstrap is None:
            raise AssertionError("a prefill without a bootstrap server")
        shared = args.attention_dp or args.dp_size == 1
        for tp_rank in range(args.attn_tp_size):
            for pp_rank in range(args.pp_size):
                bootstrap.registry.register(
                    {
                        "attn_tp_size": args.attn_tp_size,
                        "attn_tp_rank": tp_rank,
                        "attn_cp_size": 1,
                        "attn_cp_rank": 0,
                        "attn_dp_size": args.dp_size if shared else 1,
                        "attn_dp_rank": rank if shared else 0,
                        "pp_size": args.pp_size,
                        "pp_rank": pp_rank,
                        "system_dp_size": 1 if shared else args.dp_size,
                        "system_dp_rank": 0 if shared else rank,
                        "rank_ip": self._env.host_ip,
                        "rank_port": port.number,
                        "page_size": args.page_size,
                        "kv_cache_dtype": args.kv_cache_dtype,
                        "load_balance_method": "follow_bootstrap_room" if args.follow_room else "round_robin",
                        "prefill_http_port": args.port,
                    }
                )

    def _pages(self) -> int:
        args = self._args
        tokens = int(self._shape.kv_bytes // self._token_bytes)
        if args.max_total_tokens is not None:
            tokens = min(tokens, args.max_total_tokens)
        pages = tokens // args.page_size
        if pages < 1:
            raise StartError("RuntimeError: Not enough memory. Please try to increase --mem-fraction-static.")
        # One page is never given out.
        return pages + 1


def _token_bytes(args: Arguments, shape: Profile) -> int:
    kept = args.kv_cache_dtype
    value = 1 if "fp8" in kept else 0.5 if "fp4" in kept else 4 if kept in {"float", "float32"} else 2
    return shape.shape.token_bytes(value)


def _limits(args: Arguments, sim: SimFlags) -> Limits:
    return Limits(
        max_num_seqs=args.max_running_requests,
        max_num_batched_tokens=args.chunked_prefill_size,
        max_loras=args.max_loras_per_batch if args.enable_lora else math.inf,  # type: ignore[arg-type]  # no limit
        by_priority=args.by_priority,
        mean_length=sim.mean_tokens,
        identity=f"{args.model_path}/{args.dtype}/{args.kv_cache_dtype}".encode(),
    )
