"""Names, texts and buckets of SGLang's metrics, those that something here moves."""

from __future__ import annotations

GAUGES = {
    "num_running_reqs": "The number of running requests.",
    "num_queue_reqs": "The number of requests in the waiting queue.",
    "num_grammar_queue_reqs": "The number of requests in the grammar waiting queue.",
    "gen_throughput": "The generation throughput (token/s).",
    "cache_hit_rate": "The prefix cache hit rate.",
    "token_usage": "The token usage.",
    "full_token_usage": "The token usage for full attention layers.",
    "num_used_tokens": "The number of used tokens.",
    "kv_available_tokens": "Number of free token slots in the KV cache pool.",
    "kv_evictable_tokens": "Number of evictable (radix-cached) token slots in the KV cache pool.",
    "kv_used_tokens": "Number of actively used token slots in the KV cache pool.",
    "num_retracted_reqs": "The number of retracted requests.",
    "num_paused_reqs": "The number of paused requests by async weight sync.",
    "num_prefill_bootstrap_queue_reqs": "The number of requests in the prefill bootstrap queue.",
    "num_prefill_inflight_queue_reqs": "The number of requests in the prefill inflight queue.",
    "num_decode_prealloc_queue_reqs": "The number of requests in the decode prealloc queue.",
    "num_decode_transfer_queue_reqs": "The number of requests in the decode transfer queue.",
    "num_decode_deferred_kv_release_reqs": (
        "The number of failed decode requests whose KV allocations are held pending transfer drain acknowledgement or timeout."
    ),
    "pending_prealloc_token_usage": "The token usage for pending preallocated tokens (not preallocated yet).",
    "lora_pool_slots_used": "Number of LoRA adapter slots currently occupied in GPU memory.",
    "lora_pool_slots_total": "Total number of LoRA adapter slots available (max_loras_per_batch).",
    "lora_pool_utilization": "LoRA pool utilization ratio (used/total). 1.0 means pool is full.",
    "max_total_num_tokens": "Maximum total number of tokens in the KV cache pool.",
    "page_size": "KV cache page size in tokens.",
    "num_pages": "Number of KV cache pages.",
    "context_len": "Maximum context length.",
}

COUNTERS = {
    "num_bootstrap_failed_reqs_total": "The number of bootstrap failed requests.",
    "num_transfer_failed_reqs_total": "The number of transfer failed requests.",
    "num_prefill_retries_total": "Total number of prefill retries.",
}

_QUEUE = (
    0.0, 0.001, 0.005, 0.01, 0.05, 0.1, 0.2, 0.5, 1, 2, 3, 4, 5, 10, 15, 20, 30, 40, 50, 60, 70, 80, 90, 100, 200, 300, 400, 500, 600, 700, 800,
    900, 1000, 1200, 1400, 1600, 1800, 2000, 2500, 3000,
)  # fmt: skip
_FIRST = (0.1, 0.2, 0.4, 0.6, 0.8, 1, 2, 4, 6, 8, 10, 20, 40, 60, 80, 100, 200, 400)
_TOKEN = (
    0.002, 0.004, 0.006, 0.008, 0.010, 0.015, 0.020, 0.025, 0.030, 0.035, 0.040, 0.060, 0.080, 0.100, 0.200, 0.400,
    0.600, 0.800, 1.000, 2.000, 4.000, 6.000, 8.000,
)  # fmt: skip

HISTOGRAMS: dict[str, tuple[str, tuple[float, ...]]] = {
    "queue_time_seconds": ("Histogram of queueing time in seconds.", _QUEUE),
    "per_stage_req_latency_seconds": (
        "The latency of each stage of requests.",
        tuple(0.001 * 1.62**power for power in range(30)),
    ),
    "kv_transfer_speed_gb_s": (
        "Histogram of KV cache transfer speed in GB/s.",
        (0.1, 0.5, 1, 5, 10, 25, 50, 100, 200, 400),
    ),
    "kv_transfer_latency_ms": (
        "Histogram of KV cache transfer latency in ms.",
        (1, 2, 5, 10, 25, 50, 100, 250, 500, 1000, 2500, 5000),
    ),
    "kv_transfer_bootstrap_ms": (
        "Histogram of KV transfer bootstrap time in ms.",
        (1, 2, 5, 10, 25, 50, 100, 250, 500, 1000, 2500),
    ),
    "kv_transfer_alloc_ms": (
        "Histogram of KV transfer allocation waiting time in ms.",
        (1, 2, 5, 10, 25, 50, 100, 250, 500, 1000, 2500),
    ),
    "kv_transfer_total_mb": (
        "Histogram of KV cache transfer size in MB.",
        (1, 5, 10, 50, 100, 500, 1000, 5000, 10000),
    ),
}

_STREAMING = ("is_streaming",)

API_COUNTERS: dict[str, tuple[str, tuple[str, ...]]] = {
    "prompt_tokens_total": ("Number of prefill tokens processed.", _STREAMING),
    "generation_tokens_total": ("Number of generation tokens processed.", _STREAMING),
    "cached_tokens_total": (
        "Number of cached prompt tokens by source (device/host/storage).",
        ("cache_source",),
    ),
    "num_requests_total": ("Number of requests processed.", _STREAMING),
    "num_aborted_requests_total": ("Number of requests aborted.", ()),
}

API_HISTOGRAMS: dict[str, tuple[str, tuple[str, ...], tuple[float, ...]]] = {
    "time_to_first_token_seconds": ("Histogram of time to first token in seconds.", _STREAMING, _FIRST),
    "inter_token_latency_seconds": ("Histogram of inter-token latency in seconds.", (), _TOKEN),
    "request_time_per_output_token_seconds": (
        "Per-request TPOT in seconds: (finished_time - first_token_time) / (completion_tokens - 1).",
        _STREAMING,
        _TOKEN,
    ),
    "e2e_request_latency_seconds": (
        "Histogram of End-to-end request latency in seconds",
        _STREAMING,
        (*_FIRST, 600, 1200, 1800, 2400),
    ),
}
