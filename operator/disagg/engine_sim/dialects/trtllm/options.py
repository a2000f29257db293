"""Keys of the configuration file, as release 1.2 knows them, and what their values may be."""

from __future__ import annotations


def names(text: str) -> frozenset[str]:
    """The words of a text."""
    return frozenset(text.split())


TOP = names(
    """
    allreduce_strategy attention_dp_config attn_backend backend batch_wait_max_tokens_ratio
    batch_wait_timeout_iters batch_wait_timeout_ms batched_logits_processor cache_transceiver_config
    checkpoint_format checkpoint_loader context_parallel_size cp_config cuda_graph_config
    custom_tokenizer decoding_config disable_flashinfer_sampling disable_overlap_scheduler
    disagg_cluster dtype enable_attention_dp enable_autotuner enable_chunked_prefill
    enable_iter_perf_stats enable_iter_req_stats enable_layerwise_nvtx_marker enable_lm_head_tp_in_adp
    enable_lora enable_min_latency enable_sleep env_overrides force_dynamic_quantization
    garbage_collection_gen0_threshold gather_generation_logits gpus_per_node guided_decoding_backend
    iter_stats_max_iterations kv_cache_config kv_connector_config layer_wise_benchmarks_config
    load_format lora_config max_batch_size max_beam_width max_input_len max_num_tokens max_seq_len
    max_stats_len mm_encoder_only model model_kwargs moe_cluster_parallel_size moe_config
    moe_expert_parallel_size moe_tensor_parallel_size num_postprocess_workers nvfp4_gemm_config
    orchestrator_type otlp_traces_endpoint peft_cache_config perf_metrics_max_requests
    pipeline_parallel_size postprocess_tokenizer_dir pp_partition print_iter_log ray_placement_config
    ray_worker_extension_cls reasoning_parser request_stats_max_iterations return_perf_metrics revision
    sampler_force_async_worker sampler_type scheduler_config skip_tokenizer_init sparse_attention_config
    speculative_config stream_interval tensor_parallel_size tokenizer tokenizer_mode tokenizer_revision
    torch_compile_config trust_remote_code use_cute_dsl_blockscaling_bmm use_cute_dsl_blockscaling_mm
    """
)

SECTIONS: dict[str, frozenset[str]] = {
    "cache_transceiver_config": names(
        """
        backend kv_transfer_sender_future_timeout_ms kv_transfer_timeout_ms max_tokens_in_buffer
        transceiver_runtime
        """
    ),
    "kv_cache_config": names(
        """
        attention_dp_events_gather_period_ms copy_on_partial_reuse cross_kv_cache_fraction dtype
        enable_block_reuse enable_partial_reuse event_buffer_max_size free_gpu_memory_fraction
        host_cache_size mamba_ssm_cache_dtype max_attention_window max_gpu_total_bytes max_tokens
        max_util_for_resume onboard_blocks secondary_offload_min_priority sink_token_length tokens_per_block
        use_kv_cache_manager_v2 use_uvm
        """
    ),
    "lora_config": names(
        """
        lora_ckpt_source lora_dir lora_target_modules max_cpu_loras max_lora_rank max_loras
        trtllm_modules_to_hf_modules
        """
    ),
}
"""Sections of which all keys are known. Others are taken as they are."""

OPEN = names(
    """
    attention_dp_config cp_config cuda_graph_config env_overrides kv_connector_config
    layer_wise_benchmarks_config model_kwargs moe_config nvfp4_gemm_config peft_cache_config
    ray_placement_config scheduler_config sparse_attention_config speculative_config
    torch_compile_config
    """
)
"""Sections whose keys are not checked here."""

CHOICES: dict[str, tuple[str, ...]] = {
    "allreduce_strategy": (
        "AUTO",
        "NCCL",
        "UB",
        "MINLATENCY",
        "ONESHOT",
        "TWOSHOT",
        "LOWPRECISION",
        "MNNVL",
        "NCCL_SYMMETRIC",
    ),
    "cache_transceiver_config.backend": ("DEFAULT", "UCX", "NIXL", "MOONCAKE", "MPI"),
    "cache_transceiver_config.transceiver_runtime": ("CPP", "PYTHON"),
    "kv_cache_config.mamba_ssm_cache_dtype": ("auto", "float16", "bfloat16", "float32"),
    "lora_config.lora_ckpt_source": ("hf", "nemo"),
    "orchestrator_type": ("rpc", "ray"),
    "tokenizer_mode": ("auto", "slow"),
}

BOOLEANS = names(
    """
    disable_flashinfer_sampling disable_overlap_scheduler enable_attention_dp enable_autotuner
    enable_chunked_prefill enable_iter_perf_stats enable_iter_req_stats enable_layerwise_nvtx_marker
    enable_lm_head_tp_in_adp enable_lora enable_min_latency enable_sleep force_dynamic_quantization
    gather_generation_logits kv_cache_config.copy_on_partial_reuse kv_cache_config.enable_block_reuse
    kv_cache_config.enable_partial_reuse kv_cache_config.onboard_blocks
    kv_cache_config.use_kv_cache_manager_v2 kv_cache_config.use_uvm mm_encoder_only print_iter_log
    return_perf_metrics sampler_force_async_worker skip_tokenizer_init trust_remote_code
    use_cute_dsl_blockscaling_bmm use_cute_dsl_blockscaling_mm
    """
)

INTEGERS = names(
    """
    max_batch_size max_num_tokens max_seq_len max_beam_width max_input_len tensor_parallel_size
    pipeline_parallel_size context_parallel_size moe_expert_parallel_size moe_tensor_parallel_size
    gpus_per_node cache_transceiver_config.max_tokens_in_buffer
    cache_transceiver_config.kv_transfer_timeout_ms
    cache_transceiver_config.kv_transfer_sender_future_timeout_ms kv_cache_config.max_tokens
    kv_cache_config.tokens_per_block
    """
)
"""Whole numbers of at least 1."""

COUNTS = names(
    """
    kv_cache_config.host_cache_size kv_cache_config.event_buffer_max_size perf_metrics_max_requests
    num_postprocess_workers iter_stats_max_iterations max_stats_len
    """
)
"""Whole numbers of at least 0."""

SINCE: dict[str, tuple[int, int]] = {
    "cache_transceiver_config.kv_transfer_timeout_ms": (1, 2),
    "cache_transceiver_config.kv_transfer_sender_future_timeout_ms": (1, 2),
    "cache_transceiver_config.transceiver_runtime": (1, 2),
    "cache_transceiver_config.kv_transfer_poll_interval_ms": (1, 3),
    "cache_transceiver_config.kv_cache_bounce_size_mb": (1, 3),
    "internal_request_auth_key": (1, 3),
    "kv_cache_config.tokens_per_block": (1, 1),
}
"""The first release that knows a key, if that is not one of long ago."""

_BACKENDS = "cache_transceiver_config.backend"


def choices(name: str, release: tuple[int, int]) -> tuple[str, ...] | None:
    """The values that an option may have in a release; None if any."""
    found = CHOICES.get(name)
    if found is None or name != _BACKENDS:
        return found
    if release < (1, 1):
        return ("default", "ucx", "nixl", "mpi")
    return found if release >= (1, 2) else tuple(each for each in found if each != "MOONCAKE")
