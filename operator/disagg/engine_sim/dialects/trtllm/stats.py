"""What a worker tells of its iterations, its requests and its prefix cache: queues that are emptied by who reads them."""

from __future__ import annotations

import time
from collections import deque
from typing import Any

from disagg.engine_sim.blocks import CacheEvent, Removed, Stored
from disagg.engine_sim.engine import Engine
from disagg.engine_sim.request import Request
from disagg.engine_sim.scheduler import Step


class IterationStats:
    """What GET /metrics gives, which is JSON: an item for each iteration since the last call."""

    def __init__(self, most: int, batch: int) -> None:
        """Nothing yet.

        Args:
            most: Iterations that are kept; 0 for none.
            batch: Most requests of an iteration.
        """
        self._items: deque[dict[str, Any]] = deque(maxlen=most)
        self._batch = batch
        self._count = 0
        self.missed = 0
        self.reused = 0
        self.completed = 0

    def drain(self) -> list[dict[str, Any]]:
        """Iterations that nobody has asked for."""
        found = list(self._items)
        self._items.clear()
        return found

    @property
    def hit_rate(self) -> float:
        """Share of prompt blocks that were in the cache."""
        looked_up = self.reused + self.missed
        return self.reused / looked_up if looked_up else 0.0

    def admitted(self, request: Request, block_size: int) -> None:
        """The blocks of a prompt were looked up."""
        reused = request.cached_tokens // block_size
        self.reused += reused
        self.missed += -(-len(request.prompt) // block_size) - reused

    def stepped(self, engine: Engine, step: Step) -> None:
        """An iteration is over."""
        self._count += 1
        if self._items.maxlen == 0:
            return
        scheduler = engine.scheduler
        pool = scheduler.pool
        # The step is over: a context that has ended has said its first token.
        contexts = [
            amount
            for request, amount in step.scheduled
            if not request.pulled and (len(request.output) <= 1 or amount > 1)
        ]
        self._items.append(
            {
                "timestamp": time.strftime("%m-%d-%Y %H:%M:%S.000000"),
                "iter": self._count,
                "iterLatencyMS": step.seconds * 1000,
                "numNewActiveRequests": 0,
                "numActiveRequests": len(scheduler.running) + len(scheduler.remote),
                "numQueuedRequests": scheduler.num_waiting,
                "numCompletedRequests": self.completed,
                "maxNumActiveRequests": self._batch,
                "maxBatchSizeStatic": self._batch,
                "maxBatchSizeRuntime": self._batch,
                "gpuMemUsage": 0,
                "cpuMemUsage": 0,
                "pinnedMemUsage": 0,
                "kvCacheStats": {
                    "maxNumBlocks": pool.count - 1,
                    "freeNumBlocks": pool.free,
                    "usedNumBlocks": pool.count - 1 - pool.free,
                    "tokensPerBlock": pool.block_size,
                    "allocTotalBlocks": self.missed + self.reused,
                    "allocNewBlocks": self.missed,
                    "reusedBlocks": self.reused,
                    "missedBlocks": self.missed,
                    "cacheHitRate": self.hit_rate,
                },
                "inflightBatchingStats": {
                    "numScheduledRequests": len(step.scheduled),
                    "numContextRequests": len(contexts),
                    "numGenRequests": len(step.scheduled) - len(contexts),
                    "numPausedRequests": scheduler.preemptions,
                    "numCtxTokens": sum(contexts),
                    "microBatchId": 0,
                    "avgNumDecodedTokensPerIter": 1.0,
                },
            }
        )


class RequestStats:
    """What GET /perf_metrics gives: an item for each request that has ended since the last call."""

    def __init__(self, most: int) -> None:
        """Nothing yet.

        Args:
            most: Requests that are kept; 0 for none.
        """
        self._items: deque[dict[str, Any]] = deque(maxlen=most)

    def drain(self) -> list[dict[str, Any]]:
        """Requests that nobody has asked for."""
        found = list(self._items)
        self._items.clear()
        return found

    def add(self, request: Request, block_size: int) -> None:
        """A request has ended."""
        blocks = -(-request.total // block_size)
        reused = request.cached_tokens // block_size
        item: dict[str, Any] = {
            "request_id": request.id,
            "server_arrival_time": request.arrival,
            "server_first_token_time": request.first_token_at,
            "perf_metrics": {
                "first_iter": None,
                "last_iter": None,
                "timing_metrics": {
                    "server_arrival_time": request.arrival,
                    "arrival_time": request.arrival,
                    "first_scheduled_time": request.scheduled_at,
                    "first_token_time": request.first_token_at,
                    "server_first_token_time": request.first_token_at,
                    "last_token_time": request.last_token_at,
                },
                "kv_cache_metrics": {
                    "num_total_allocated_blocks": blocks,
                    "num_new_allocated_blocks": blocks - reused,
                    "num_reused_blocks": reused,
                    "num_missed_blocks": blocks - reused,
                },
            },
        }
        if request.transfer is not None:
            item["ctx_request_id"] = request.transfer.get("ctx_request_id")
        self._items.append(item)


class CacheEvents:
    """What POST /kv_cache_events gives, once: there can be one reader."""

    def __init__(self, most: int, blocks: int) -> None:
        """Nothing yet but the cache itself.

        Args:
            most: Events that are kept; 0 for none.
            blocks: Blocks of the cache.
        """
        self._items: deque[dict[str, Any]] = deque(maxlen=most)
        self._next = 0
        self._put({"type": "created", "num_blocks_per_cache_level": [blocks, 0]})

    def drain(self) -> list[dict[str, Any]]:
        """Events that nobody has asked for."""
        found = list(self._items)
        self._items.clear()
        return found

    def record(self, event: CacheEvent) -> None:
        """Something happened to the prefix cache."""
        if isinstance(event, Removed):
            self._put({"type": "removed", "block_hashes": event.hashes})
        elif isinstance(event, Stored):
            size = len(event.tokens) // len(event.hashes)
            self._put(
                {
                    "type": "stored",
                    "parent_hash": event.parent,
                    "blocks": [
                        _block(each, event.tokens[index * size : (index + 1) * size])
                        for index, each in enumerate(event.hashes)
                    ],
                }
            )

    def _put(self, data: dict[str, Any]) -> None:
        self._items.append({"event_id": self._next, "data": data})
        self._next += 1


def _block(each: int, tokens: list[int]) -> dict[str, Any]:
    return {
        "type": "stored_block",
        "block_hash": each,
        "tokens": [{"type": "unique_token", "token_id": token, "token_extra_id": 0} for token in tokens],
        "lora_id": None,
        "cache_level": 0,
        "priority": 35,
    }
