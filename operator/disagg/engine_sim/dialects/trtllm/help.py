"""Help on those options of `trtllm-serve` that change what the stand-in does."""

from __future__ import annotations

HELP = {
    "host": "where HTTP listens (localhost)",
    "port": "port of HTTP (8000)",
    "backend": "pytorch, or one of the others that are not simulated (pytorch)",
    "max_beam_width": "answers that a beam search may keep (1)",
    "max_batch_size": "requests that run at once (2048)",
    "max_num_tokens": "tokens that a step computes (8192)",
    "max_seq_len": "longest context (the profile's)",
    "enable_chunked_prefill": "compute long prompts in several steps",
    "tensor_parallel_size": "GPUs of the engine; takes no part in time (1)",
    "free_gpu_memory_fraction": "part of the profile's memory that is KV cache (0.9)",
    "config": "YAML file with what has no option, such as cache_transceiver_config; it wins over options",
    "served_model_name": "name under which the model answers",
    "kv_cache_dtype": "of KV (auto)",
}
