"""Options of `trtllm-serve MODEL`. Their names have underscores, and dashes do not stand for them."""

from __future__ import annotations

from disagg.engine_sim.dialects.trtllm.options import names

SWITCHES = ("trust_remote_code", "enable_chunked_prefill", "fail_fast_on_attention_window_too_large")

VALUES: dict[str, tuple[str, ...]] = {
    "tokenizer": (),
    "custom_tokenizer": (),
    "host": (),
    "port": (),
    "backend": (),
    "custom_module_dirs": (),
    "log_level": (),
    "max_beam_width": (),
    "max_batch_size": (),
    "max_num_tokens": (),
    "max_seq_len": (),
    "tensor_parallel_size": ("tp_size",),
    "pipeline_parallel_size": ("pp_size",),
    "context_parallel_size": ("cp_size",),
    "moe_expert_parallel_size": ("ep_size",),
    "moe_cluster_parallel_size": ("cluster_size",),
    "gpus_per_node": (),
    "free_gpu_memory_fraction": ("kv_cache_free_gpu_memory_fraction",),
    "num_postprocess_workers": (),
    "revision": (),
    "config": ("extra_llm_api_options",),
    "reasoning_parser": (),
    "tool_parser": (),
    "metadata_server_config_file": (),
    "server_role": (),
    "otlp_traces_endpoint": (),
    "disagg_cluster_uri": (),
    "media_io_kwargs": (),
    "chat_template": (),
    "served_model_name": (),
    "kv_cache_dtype": (),
}
"""Name -> other names of the same option."""

INTEGERS = names(
    """
    port max_beam_width max_batch_size max_num_tokens max_seq_len tensor_parallel_size pipeline_parallel_size
    context_parallel_size moe_expert_parallel_size moe_cluster_parallel_size gpus_per_node num_postprocess_workers
    """
)

CHOICES: dict[str, tuple[str, ...]] = {
    "backend": ("pytorch", "tensorrt", "_autodeploy", "trt"),
    "log_level": ("internal_error", "error", "warning", "info", "verbose", "debug", "trace"),
    "server_role": ("CONTEXT", "GENERATION", "MM_ENCODER"),
}

SINCE: dict[str, tuple[int, int]] = {"served_model_name": (1, 3), "kv_cache_dtype": (1, 3)}

CONFIG_SINCE = (1, 2)
"""Before, there is --extra_llm_api_options only."""
