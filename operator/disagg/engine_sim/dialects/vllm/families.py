"""vLLM's metrics as tables: names, texts, labels and buckets as a real pair has them."""

from __future__ import annotations

from collections.abc import Sequence

_COUNTS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000, 20000, 50000, 100000, 200000)
_LATENCY = (
    0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0, 120.0, 240.0, 480.0, 960.0,
    1920.0, 7680.0,
)  # fmt: skip
_FIRST_TOKEN = (
    0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0, 160.0,
    640.0, 2560.0,
)  # fmt: skip
_TOKEN = (
    0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0,
)  # fmt: skip
_ITERATION = (1, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384)
_TRANSFER = (0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.2, 0.3, 0.5, 0.75, 1.0, 5.0)
_BYTES = tuple(2.0 ** (10 + power) for power in range(1, 25, 2))
_DESCRIPTORS = (10, 20, 30, 50, 75, 100, 200, 400, 1000, 2000, 4000, 10000, 20000, 50000)
HTTP_BUCKETS = (
    0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1, 1.5, 2, 2.5, 3, 3.5, 4, 4.5, 5, 7.5, 10, 30, 60,
)  # fmt: skip

SOURCES = ("local_compute", "local_cache_hit", "external_kv_transfer")
TIERS = ("device", "host", "p2p", "disk", "external_unspecified")
REASONS = ("stop", "length", "abort", "error", "repetition")
STAGES = ("waiting_to_start", "in_progress", "completed_waiting")
SLEEP = ("awake", "weights_offloaded", "discard_all")


def token_buckets(max_model_len: int) -> list[int]:
    """Buckets for numbers of tokens: 1, 2, 5 and so on, up to the longest context."""
    return [each for each in _COUNTS if each <= max_model_len]


def histograms(counts: Sequence[int]) -> Sequence[tuple[str, str, Sequence[float]]]:
    """Names, texts and buckets of histograms that each engine has.

    Args:
        counts: Buckets for numbers of tokens.
    """
    return (
        (
            "nixl_xfer_time_seconds",
            "Histogram of transfer duration for NIXL KV Cache transfers.",
            _TRANSFER,
        ),
        (
            "nixl_post_time_seconds",
            "Histogram of transfer post time for NIXL KV Cache transfers.",
            (0.001, *_TRANSFER),
        ),
        ("nixl_bytes_transferred", "Histogram of bytes transferred per NIXL KV Cache transfers.", _BYTES),
        (
            "nixl_num_descriptors",
            "Histogram of number of descriptors per NIXL  KV Cache transfers.",
            _DESCRIPTORS,
        ),
        ("request_prompt_tokens", "Number of prefill tokens processed.", counts),
        ("request_generation_tokens", "Number of generation tokens processed.", counts),
        ("iteration_tokens_total", "Histogram of number of tokens per engine_step.", _ITERATION),
        (
            "request_max_num_generation_tokens",
            "Histogram of maximum number of requested generation tokens.",
            counts,
        ),
        ("request_params_n", "Histogram of the n request parameter.", (1, 2, 5, 10, 20)),
        ("request_params_max_tokens", "Histogram of the max_tokens request parameter.", counts),
        ("time_to_first_token_seconds", "Histogram of time to first token in seconds.", _FIRST_TOKEN),
        ("inter_token_latency_seconds", "Histogram of inter-token latency in seconds.", _TOKEN),
        (
            "request_time_per_output_token_seconds",
            "Histogram of time_per_output_token_seconds per request.",
            _TOKEN,
        ),
        ("e2e_request_latency_seconds", "Histogram of e2e request latency in seconds.", _LATENCY),
        (
            "request_queue_time_seconds",
            "Histogram of time spent in WAITING phase for request.",
            _LATENCY,
        ),
        (
            "request_inference_time_seconds",
            "Histogram of time spent in RUNNING phase for request.",
            _LATENCY,
        ),
        (
            "request_prefill_time_seconds",
            "Histogram of time spent in PREFILL phase for request.",
            _LATENCY,
        ),
        (
            "request_decode_time_seconds",
            "Histogram of time spent in DECODE phase for request.",
            _LATENCY,
        ),
        (
            "request_num_preemptions",
            "Histogram of the number of times a request was preempted.",
            (1, 2, 3, 4, 5, 10, 20),
        ),
        (
            "request_prefill_kv_computed_tokens",
            "Histogram of new KV tokens computed during prefill (excluding cached tokens).",
            counts,
        ),
    )


COUNTERS: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    (
        "nixl_num_failed_transfers",
        (
            "Number of failed NIXL KV Cache transfers, including handshake and notification failures. NOTE: KV expiry is "
            "tracked separately in vllm:nixl_num_kv_expired_reqs."
        ),
        (),
    ),
    (
        "nixl_num_failed_notifications",
        (
            "Number of failed NIXL KV Cache notifications. Retained for compatibility; these failures are also included in "
            "vllm:nixl_num_failed_transfers."
        ),
        (),
    ),
    (
        "nixl_num_kv_expired_reqs",
        "Number of requests that had their KV expire. NOTE: This metric is tracked on the P instance.",
        (),
    ),
    (
        "nixl_num_notifications_after_expiry",
        (
            "Number of completion notifications for requests that were no longer tracked, usually because their KV lease "
            "expired. The KV blocks may have been reused before the transfer finished. Counted per notification (one per "
            "remote rank), not per request."
        ),
        (),
    ),
    (
        "estimated_flops_per_gpu",
        "Estimated number of floating point operations per GPU (for Model Flops Utilization calculations).",
        (),
    ),
    (
        "estimated_read_bytes_per_gpu",
        "Estimated number of bytes read from memory per GPU (for Model Flops Utilization calculations).",
        (),
    ),
    (
        "estimated_write_bytes_per_gpu",
        "Estimated number of bytes written to memory per GPU (for Model Flops Utilization calculations).",
        (),
    ),
    ("prefix_cache_queries", "Prefix cache queries, in terms of number of queried tokens.", ()),
    ("prefix_cache_hits", "Prefix cache hits, in terms of number of cached tokens.", ()),
    (
        "external_prefix_cache_queries",
        (
            "External prefix cache queries from KV connector cross-instance cache sharing, in terms of number of queried "
            "tokens."
        ),
        (),
    ),
    (
        "external_prefix_cache_hits",
        (
            "External prefix cache hits from KV connector cross-instance cache sharing, in terms of number of cached "
            "tokens."
        ),
        (),
    ),
    ("mm_cache_queries", "Multi-modal cache queries, in terms of number of queried items.", ()),
    ("mm_cache_hits", "Multi-modal cache hits, in terms of number of cached items.", ()),
    ("num_preemptions", "Cumulative number of preemption from the engine.", ()),
    ("prompt_tokens", "Number of prefill tokens processed.", ()),
    ("prompt_tokens_by_source", "Number of prompt tokens by source.", ("source",)),
    ("prompt_tokens_cached", "Number of cached prompt tokens (local + external).", ()),
    (
        "prompt_tokens_cached_by_source",
        (
            "Prefix-cache hit tokens by the cache tier that supplied them: device (local HBM), host (offloaded to DRAM), "
            "disk, p2p (transferred from another vLLM instance) or external_unspecified. Counted at admission; sums to "
            "vllm:prefix_cache_hits + vllm:external_prefix_cache_hits."
        ),
        ("source",),
    ),
    ("generation_tokens", "Number of generation tokens processed.", ()),
    ("request_success", "Count of successfully processed requests.", ("finished_reason",)),
    (
        "admission_rejections",
        "Number of admission attempts rejected by a queue limit, by reason.",
        ("reason",),
    ),
)

GAUGES: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    ("num_requests_running", "Number of requests in model execution batches.", ()),
    ("num_requests_waiting", "Number of requests waiting to be processed.", ()),
    (
        "num_requests_waiting_by_reason",
        (
            "Number of waiting requests by reason. Reason labels: 'capacity' = waiting for scheduling capacity; 'deferred' = "
            "deferred by transient constraints (LoRA budget, KV transfer, blocked status). Sum of all reasons equals "
            "vllm:num_requests_waiting."
        ),
        ("reason",),
    ),
    (
        "num_requests_kv_fetch_by_stage",
        (
            "Number of waiting requests by async KV load stage. Stage labels: 'waiting_to_start' = needs an async KV load "
            "that has not started; 'in_progress' = load started and not yet reported finished; 'completed_waiting' = load "
            "finished, request not running yet."
        ),
        ("stage",),
    ),
    (
        "engine_sleep_state",
        (
            "Engine sleep state; awake = 0 means engine is sleeping; awake = 1 means engine is awake; weights_offloaded = 1 "
            "means sleep level 1; discard_all = 1 means sleep level 2."
        ),
        ("sleep_state",),
    ),
    ("kv_cache_usage_perc", "KV-cache usage. 1 means 100 percent usage.", ()),
)
