"""Flags of SGLang 0.5.23's `launch_server`, so that one that it does not know is refused."""

from __future__ import annotations

SWITCHES = """
 abort-on-priority-when-disabled allow-auto-truncate checkpoint-engine-wait-weights-before-ready
 constrained-json-disable-any-whitespace dcp-replicate-q-proj debug-cuda-graph delete-ckpt-after-loading
 disable-aiter-allreduce-fusion-in-decode disable-aiter-allreduce-fusion-in-prefill disable-attn-tp-gather
 disable-chunked-prefix-cache disable-cuda-graph disable-cuda-graph-padding disable-custom-all-reduce
 disable-decode-cuda-graph disable-fast-image-processor disable-flashinfer-autotune
 disable-flashinfer-cutlass-moe-fp4-allgather disable-hybrid-swa-memory disable-outlines-disk-cache
 disable-overlap-schedule disable-prefill-cuda-graph disable-priority-preemption disable-radix-cache
 disable-shared-experts-fusion disable-tokenizer-batch-decode disaggregation-decode-enable-offload-kvcache
 disaggregation-decode-enable-radix-cache disaggregation-enable-kv-checksum dllm-fdfo
 enable-adaptive-dispatch-to-encoder enable-aiter-allreduce-fusion enable-amd-monokernel
 enable-attn-tp-input-scattered enable-broadcast-mm-inputs-process enable-cache-report
 enable-cp-decode-attn-tp enable-cudagraph-gc enable-custom-logit-processor
 enable-decoder-swa-bounded-replay enable-deepseek-v4-fp4-indexer enable-dense-mlp-attn-tp
 enable-deterministic-inference enable-dp-attention enable-dp-attention-local-control-broadcast
 enable-dp-lm-head enable-draft-weights-cpu-backup enable-dsa-cache-layer-split enable-dsa-fused-indexer
 enable-dynamic-batch-tokenizer enable-dynamic-chunking enable-elastic-expert-backup
 enable-encoder-swa-bounded-replay enable-eplb enable-flashinfer-allreduce-fusion enable-flexkv
 enable-forward-pass-metrics enable-fp32-lm-head enable-fused-moe-sum-all-reduce enable-fused-qk-norm-rope
 enable-hierarchical-cache enable-hisparse enable-http-worker-reuseport enable-http2
 enable-int8-mamba-checkpoint enable-kv-cache-sharding enable-layernorm-sp enable-layerwise-nvtx-marker
 enable-lean-attention enable-linear-replayssm enable-linear-replayssm-spec enable-linker-mla-dedup
 enable-lmcache enable-lora enable-lora-overlap-loading enable-mamba-cache-stochastic-rounding
 enable-megamoe-for-layernorm-sp enable-memory-saver enable-metrics enable-metrics-for-all-schedulers
 enable-mfu-metrics enable-mis enable-mixed-chunk enable-mm-global-cache enable-mscclpp
 enable-multi-layer-eagle enable-multimodal enable-nccl-nvls enable-nvidia-megakernel enable-p2p-check
 enable-page-major-kv-layout enable-paged-experts enable-pd-role-switch enable-pdmux
 enable-precise-embedding-interpolation enable-prefill-cp enable-prefill-delayer enable-prefix-mm-cache
 enable-priority-scheduling enable-profile-cuda-graph enable-quant-communications
 enable-request-time-stats-logging enable-response-store enable-return-aux-hidden-states
 enable-return-hidden-states enable-return-indexer-topk enable-return-routed-experts enable-scattered-sconv
 enable-session-radix-cache enable-shared-experts-attn-tp enable-single-batch-overlap enable-ssl-refresh
 enable-streaming-session enable-strict-thinking enable-symm-mem enable-tf32-matmul
 enable-tokenizer-batch-encode enable-torch-compile enable-torch-compile-debug-mode enable-torch-symm-mem
 enable-tp-lm-head-all-to-all enable-trace enable-two-batch-overlap enable-unified-cache-external-linker
 enable-unified-memory enable-w4a4-mxfp4-megamoe enable-waterfill enable-watermark enable-weights-cpu-backup
 encoder-only enforce-disable-flashinfer-allreduce-fusion enforce-shared-experts-fusion
 experts-shared-outer-loras export-metrics-to-file flashinfer-mla-disable-ragged grpc-mode
 incremental-streaming-output is-embedding language-model-only language-only log-requests
 lora-strict-loading lora-use-virtual-experts mlx-enable-sampling mm-enable-dp-encoder ple-offload-embedding
 pre-warm-nccl prefill-only-disable-kv-cache quantize-and-serve
 remote-instance-weight-loader-start-seed-via-transfer-engine return-input-ids return-output-ids
 schedule-low-priority-values-first show-time-cost skip-server-warmup skip-tokenizer-init sleep-on-idle
 smg-grpc-mode speculative-adaptive speculative-dspark-align-verify-tokens-to-graph-tier
 speculative-enable-w4a4-mxfp4-megamoe speculative-use-block-verification speculative-use-rejection-sampling
 stream-response-default-include-usage strip-thinking-cache triton-attention-reduce-in-fp32
 trust-mm-content-hashes trust-remote-code trust-request-chat-template use-ray weight-loader-disable-mmap
 weight-loader-drop-cache-after-load weight-loader-prefetch-checkpoints
""".split()  # noqa: SIM905 - a list of strings is unreadable
"""Flags without a value."""

LISTS = """
 allowed-media-domains bucket-e2e-request-latency bucket-inter-token-latency bucket-time-to-first-token
 cuda-graph-bs-decode cuda-graph-bs-prefill custom-weight-loader debug-tensor-dump-layers
 encoder-register-urls encoder-urls flashinfer-autotune-skip-ops gc-threshold generation-tokens-buckets
 log-requests-target lora-paths lora-target-modules numa-node prefill-delayer-forward-passes-buckets
 prefill-delayer-wait-seconds-buckets prompt-tokens-buckets return-aux-hidden-state-layer-ids
 tokenizer-metrics-allowed-custom-labels uvicorn-access-log-exclude-prefixes
""".split()  # noqa: SIM905 - a list of strings is unreadable
"""Flags with one value or more."""

OPTIONAL = """
 model-checksum
""".split()  # noqa: SIM905 - a list of strings is unreadable
"""Flags with a value or without."""

VALUES = """
 admin-api-key api-key asr-max-buffer-seconds asr-max-concurrent-sessions attention-backend attn-cp-size
 attn-dp-size base-gpu-id batch-notify-size bf16-gemm-backend boundary-reduction c128-page-size
 chat-template chunked-prefill-size completion-template config constrained-json-max-whitespace-cnt
 constrained-json-whitespace-pattern context-length cp-strategy cpu-offload-gb crash-dump-folder
 cuda-graph-backend-decode cuda-graph-backend-prefill cuda-graph-config cuda-graph-max-bs-decode
 cuda-graph-max-bs-prefill cuda-graph-max-seq-len-prefill cuda-graph-prefill-max-context dcp-comm-backend
 dcp-size debug-tensor-dump-input-file debug-tensor-dump-output-folder decode-attention-backend
 decode-log-interval decoupled-spec-bind-endpoint decoupled-spec-connect-endpoints decoupled-spec-rank
 decoupled-spec-role decrypted-config-file decrypted-draft-config-file deepep-config
 deepep-dispatcher-output-dtype deepep-mode deepep-v2-mode default-chat-template-kwargs
 default-priority-value detokenizer-worker-num device disaggregation-bootstrap-port
 disaggregation-decode-allocation-policy disaggregation-decode-extra-slots
 disaggregation-decode-host-receive-threshold disaggregation-decode-polling-interval
 disaggregation-decode-retraction-backup disaggregation-ib-device disaggregation-mode
 disaggregation-transfer-backend dist-init-addr dist-timeout dllm-algorithm dllm-algorithm-config
 download-dir dp-size dsa-decode-backend dsa-paged-mqa-logits-backend dsa-prefill-backend dsa-topk-backend
 dsa-triton-union dsv4-attn-backend dsv4-prefill-backend dtype dwdp-size dynamic-batch-tokenizer-batch-size
 dynamic-batch-tokenizer-batch-timeout elastic-ep-backend elastic-ep-initial-size elastic-ep-join-mode
 elastic-ep-join-rank-offset elastic-ep-scale-timeout encoder-bootstrap-port encoder-transfer-backend
 engine-info-bootstrap-port ep-dispatch-algorithm ep-num-redundant-experts ep-size eplb-algorithm
 eplb-min-rebalancing-utilization-threshold eplb-rebalance-layers-per-chunk eplb-rebalance-num-iterations
 expert-balancedness-report-mode expert-distribution-recorder-buffer-size expert-distribution-recorder-mode
 export-metrics-to-file-dir extra-metric-labels fastapi-root-path file-storage-path
 flashinfer-a2a-dispatch-type flashinfer-allreduce-fusion-backend flashinfer-mxfp4-moe-precision
 flexkv-config-file forward-hooks forward-pass-metrics-ipc-name forward-pass-metrics-worker-id
 fp4-gemm-backend fp8-gemm-backend fuseep-mode gated-launch-port gc-warning-threshold-secs gpu-id-step
 grammar-backend grpc-port grpc-response-timeout-secs hf-chat-template-name hicache-host-memory-fraction
 hicache-host-memory-mode hicache-io-backend hicache-mem-layout hicache-ratio hicache-size
 hicache-storage-backend hicache-storage-backend-extra-config hicache-storage-prefetch-policy
 hicache-storage-prefetch-retry-max-attempts hicache-storage-prefetch-retry-poll-interval
 hicache-write-policy hisparse-config host http2-initial-connection-window-size http2-max-concurrent-streams
 image-processor-backend init-expert-location int8-mamba-ckpt-size json-model-override-args kt-cpuinfer
 kt-max-deferred-experts-per-token kt-method kt-num-gpu-experts kt-threadpool-count kt-weight-path
 kv-cache-dtype kv-canary kv-canary-real-data kv-canary-sweep-interval kv-events-config
 limit-mm-data-per-request linear-attn-backend linear-attn-decode-backend linear-attn-prefill-backend
 linear-attn-verify-backend linear-replayssm-cache-len lmcache-config-file load-balance-method load-format
 load-publish-endpoint load-snapshot-publish-interval log-level log-level-http log-requests-format
 log-requests-level lora-backend lora-drain-wait-threshold lora-eviction-policy mamba-backend
 mamba-cache-philox-rounds mamba-full-memory-ratio mamba-max-states-per-path mamba-radix-cache-strategy
 mamba-ssm-dtype mamba-track-interval max-ep-size max-loaded-loras max-lora-chunk-size max-lora-rank
 max-loras-per-batch max-mamba-cache-size max-prefill-tokens max-queued-requests max-running-requests
 max-total-tokens media-url-max-file-size-mb mem-fraction-static min-free-slots-delay mm-attention-backend
 mm-feature-transport mm-global-cache-backend mm-io-worker-num mm-preprocess-cache-size-mb mm-process-config
 mm-processor-worker-num model-config-parser model-impl model-loader-extra-config model-path
 modelexpress-config modelopt-checkpoint-restore-path modelopt-checkpoint-save-path modelopt-export-path
 modelopt-quant moe-a2a-backend moe-dense-tp-size moe-dp-size moe-runner-backend monokernel-backend
 mooncake-ib-device msprobe-dump-config nccl-port nnodes node-rank num-continuous-decode-steps
 num-reserved-decode-tokens offload-group-size offload-mode offload-num-in-group offload-prefetch-step
 optimistic-prefill-attempts otlp-service-name otlp-traces-endpoint page-size paged-experts-num-resident
 pdmux-config-path ple-offload-backend ple-offload-dir port pp-async-batch-depth pp-max-micro-batch-size
 pp-size preferred-sampling-params prefill-attention-backend prefill-decode-interval
 prefill-decode-interval-min-bs prefill-delayer-max-delay-ms prefill-delayer-max-delay-passes
 prefill-delayer-queue-min-ratio prefill-delayer-token-usage-low-watermark prefill-kv-cache-dequant-dtype
 prefill-max-requests priority-scheduling-preemption-threshold qsa-indexer-dtype quantization
 quantization-param-path radix-cache-backend radix-eviction-policy radix-eviction-policy-config random-seed
 reasoning-parser remote-instance-weight-loader-backend remote-instance-weight-loader-seed-instance-ip
 remote-instance-weight-loader-seed-instance-service-port
 remote-instance-weight-loader-send-weights-group-ports retraction-policy return-hidden-states-mode revision
 rl-on-policy-target rl-quant-profile sampling-backend sampling-defaults sampling-mask-max-tokens
 schedule-conservativeness schedule-policy scheduler-recv-interval served-model-name shared-experts-tp-size
 sidecar sidecar-args sm-group-num smg-http-sidecar-port soft-watchdog-timeout spec-trace-dir
 speculative-accept-threshold-acc speculative-accept-threshold-single speculative-adaptive-config
 speculative-algorithm speculative-attention-mode speculative-dflash-block-size
 speculative-domino-candidate-pool-size speculative-draft-attention-backend speculative-draft-kv-cache-dtype
 speculative-draft-load-format speculative-draft-model-path speculative-draft-model-quantization
 speculative-draft-model-revision speculative-draft-sink-size speculative-draft-window-size
 speculative-dsa-topk-backend speculative-dspark-block-size speculative-dspark-confidence-sts-path
 speculative-dspark-sps-table-path speculative-eagle-topk speculative-moe-a2a-backend
 speculative-moe-runner-backend speculative-ngram-capacity speculative-ngram-external-corpus-max-tokens
 speculative-ngram-external-corpus-path speculative-ngram-external-sam-budget speculative-ngram-match-type
 speculative-ngram-max-bfs-breadth speculative-ngram-max-trie-depth speculative-ngram-min-bfs-breadth
 speculative-num-draft-tokens speculative-num-steps speculative-token-map ssl-ca-certs ssl-certfile
 ssl-keyfile ssl-keyfile-password startup-weight-load-mode stream-interval swa-full-tokens-ratio
 swa-prefix-tails tbo-token-distribution-threshold tokenizer-backend tokenizer-metrics-custom-labels-header
 tokenizer-mode tokenizer-path tokenizer-worker-num tool-call-parser tool-server torch-compile-max-bs
 tp-size trace-modules triton-attention-num-kv-splits triton-attention-split-tile-size
 unified-cache-external-linker-backend unified-cache-external-linker-config uno-lora-path warmups
 watchdog-timeout watermark-config weight-cache-mode weight-cache-socket weight-cache-timeout
 weight-loader-prefetch-num-threads weight-version
""".split()  # noqa: SIM905 - a list of strings is unreadable
"""Flags with a value."""

ALIASES: dict[str, tuple[str, ...]] = {
    "attn-cp-size": ("attention-context-parallel-size",),
    "attn-dp-size": ("attention-data-parallel-size",),
    "cuda-graph-prefill-max-context": ("context-bucket",),
    "dcp-replicate-q-proj": ("no-dcp-replicate-q-proj",),
    "dcp-size": ("decode-context-parallel-size",),
    "dist-init-addr": ("nccl-init-addr",),
    "dllm-fdfo": ("no-dllm-fdfo",),
    "dp-size": ("data-parallel-size",),
    "enable-decoder-swa-bounded-replay": ("no-enable-decoder-swa-bounded-replay",),
    "enable-dsa-fused-indexer": ("no-enable-dsa-fused-indexer",),
    "enable-fused-qk-norm-rope": ("no-enable-fused-qk-norm-rope",),
    "enable-hierarchical-cache": ("enable-hicache",),
    "enable-tf32-matmul": ("no-enable-tf32-matmul",),
    "enable-tp-lm-head-all-to-all": ("no-enable-tp-lm-head-all-to-all",),
    "ep-size": (
        "expert-parallel-size",
        "ep",
    ),
    "experts-shared-outer-loras": ("no-experts-shared-outer-loras",),
    "hisparse-config": ("hierarchical-sparse-attention-extra-config",),
    "lora-strict-loading": ("no-lora-strict-loading",),
    "mm-enable-dp-encoder": ("no-mm-enable-dp-encoder",),
    "model-path": ("model",),
    "moe-dp-size": ("moe-data-parallel-size",),
    "ple-offload-embedding": ("no-ple-offload-embedding",),
    "pp-size": ("pipeline-parallel-size",),
    "smg-http-sidecar-port": ("grpc-http-sidecar-port",),
    "speculative-draft-model-path": ("speculative-draft-model",),
    "speculative-enable-w4a4-mxfp4-megamoe": ("no-speculative-enable-w4a4-mxfp4-megamoe",),
    "tp-size": ("tensor-parallel-size",),
}
"""Other names of flags, all with two dashes."""

_CHOICES = """
  attention-backend: triton torch_native flex_attention dsa nsa qsa dsv4 compressed fa3 fa4 flashinfer
  llada2_cfg_flashinfer flashmla trtllm_mla cutedsl_mla tokenspeed_mla trtllm_mha hpc_ops minicpm_flashattn
  minicpm_flashinfer aiter wave intel_amx ascend intel_xpu
  bf16-gemm-backend: auto cutedsl gemv torch
  boundary-reduction: auto ar rs rsv rs+rsv
  cp-strategy: zigzag interleave
  dcp-comm-backend: ag_rs a2a fi_a2a
  decode-attention-backend: triton torch_native flex_attention dsa nsa qsa dsv4 compressed fa3 fa4
  flashinfer llada2_cfg_flashinfer flashmla trtllm_mla cutedsl_mla tokenspeed_mla trtllm_mha hpc_ops
  minicpm_flashattn minicpm_flashinfer aiter wave intel_amx ascend intel_xpu
  decoupled-spec-role: null verifier drafter
  deepep-dispatcher-output-dtype: auto bf16 fp8 int8 nvfp4
  deepep-mode: auto normal low_latency
  deepep-v2-mode: direct hybrid
  disaggregation-decode-allocation-policy: early prefill_complete
  disaggregation-decode-retraction-backup: cpu_tensor host_pool none
  disaggregation-mode: null prefill decode
  disaggregation-transfer-backend: mooncake nixl ascend fake mori mooncake_tcp
  dsa-decode-backend: flashmla_sparse flashmla_sparse_q8 flashmla_kv flashmla_auto flashinfer_sparse_mla fa3
  tilelang triton aiter trtllm intel_xpu
  dsa-paged-mqa-logits-backend: auto deepgemm cutedsl aiter
  dsa-prefill-backend: flashmla_sparse flashmla_sparse_q8 flashmla_kv flashmla_auto flashinfer_sparse_mla
  triton_sparse_mla fa3 tilelang triton aiter trtllm intel_xpu
  dsa-topk-backend: sgl-kernel torch flashinfer
  dsa-triton-union: 0 2 4
  dsv4-attn-backend: auto flashmla flashmla_mega trtllm
  dsv4-prefill-backend: auto flashmla_sparse flashmla_sparse_q8
  dtype: auto half float16 bfloat16 float float32
  elastic-ep-backend: none mooncake nixl
  elastic-ep-join-mode: scale recover
  encoder-transfer-backend: auto zmq_to_scheduler zmq_to_tokenizer mooncake
  ep-dispatch-algorithm: static dynamic fake lp
  expert-balancedness-report-mode: off server_log prometheus both
  expert-distribution-recorder-mode: stat stat_approx per_pass per_token
  flashinfer-a2a-dispatch-type: auto bf16 nvfp4 mxfp8
  flashinfer-allreduce-fusion-backend: auto trtllm mnnvl cutedsl
  flashinfer-mxfp4-moe-precision: default bf16 fp8
  fp4-gemm-backend: auto flashinfer_cudnn flashinfer_cutedsl flashinfer_cutlass flashinfer_trtllm marlin
  fp8-gemm-backend: auto deep_gemm flashinfer_trtllm flashinfer_cutlass flashinfer_deepgemm
  flashinfer_cutedsl cutlass triton aiter
  fuseep-mode: 1 2
  grammar-backend: xgrammar outlines llguidance none
  hicache-host-memory-mode: cache buffer_only
  hicache-io-backend: direct kernel kernel_ascend
  hicache-mem-layout: layer_first page_first page_first_direct page_first_kv_split page_head
  hicache-storage-backend: file sim mooncake npu_memcache hf3fs nixl aibrix dynamic eic simm mori shm
  tensorcast seaweedfs
  hicache-storage-prefetch-policy: best_effort wait_complete timeout
  hicache-write-policy: write_back write_through write_through_selective
  image-processor-backend: auto torchvision pil
  kv-cache-dtype: auto fp8_e5m2 fp8_e4m3 mxfp8 bf16 bfloat16 nvfp4 fp4_mx_block16
  kv-canary: none log raise
  linear-attn-backend: triton cutedsl flashinfer flashkda nvidia_kda ptx_kda helion intel_xpu
  linear-attn-decode-backend: triton cutedsl flashinfer flashkda nvidia_kda ptx_kda helion intel_xpu
  linear-attn-prefill-backend: triton cutedsl flashinfer flashkda nvidia_kda ptx_kda helion intel_xpu
  linear-attn-verify-backend: triton cutedsl flashinfer flashkda nvidia_kda ptx_kda helion intel_xpu
  nv_cutedsl
  load-balance-method: auto round_robin follow_bootstrap_room total_requests total_tokens
  load-format: auto pt safetensors instanttensor npcache dummy sharded_state presharded gguf expert_pack
  bitsandbytes mistral layered flash_rl remote remote_instance fastsafetensors private runai_streamer
  log-requests-format: text json
  log-requests-level: 0 1 2 3
  lora-backend: triton csgmv ascend torch_native triton_v2
  lora-eviction-policy: lru fifo
  lora-target-modules: q_proj k_proj v_proj o_proj q_a_proj kv_a_proj_with_mqa q_b_proj kv_b_proj wq_b wk
  weights_proj gate_proj up_proj down_proj qkv_proj gate_up_proj embed_tokens lm_head qkvr wo_ud all
  mamba-backend: triton flashinfer
  mamba-radix-cache-strategy: auto no_buffer extra_buffer extra_buffer_lazy
  mamba-ssm-dtype: float32 bfloat16 float16
  max-lora-chunk-size: 16 32 64 128
  mm-attention-backend: sdpa fa3 fa4 triton_attn ascend_attn aiter_attn flashinfer_cudnn amx_attn xpu_attn
  mm-feature-transport: cpu cuda_ipc cuda_vmm
  mm-global-cache-backend: mooncake
  moe-a2a-backend: none deepep mooncake nixl mori ascend_fuseep flashinfer megamoe deepep_v2 pplx ascend_tp
  flashinfer_megamoe
  moe-runner-backend: auto deep_gemm triton triton_kernel flashinfer_trtllm experimental_sgl_trtllm
  flashinfer_trtllm_routed flashinfer_cutlass flashinfer_mxfp4 flashinfer_cutedsl flashinfer_megamoe cutlass
  aiter marlin humming experimental_sgl_marlin lora_cutedsl lora_triton lora_marlin hpc_ops megamoe
  intel_xpu
  monokernel-backend: amd
  ple-offload-backend: pinned file
  prefill-attention-backend: triton torch_native flex_attention dsa nsa qsa dsv4 compressed fa3 fa4
  flashinfer llada2_cfg_flashinfer flashmla trtllm_mla cutedsl_mla tokenspeed_mla trtllm_mha hpc_ops
  minicpm_flashattn minicpm_flashinfer aiter wave intel_amx ascend intel_xpu
  prefill-kv-cache-dequant-dtype: auto nvfp4 fp8_e4m3
  qsa-indexer-dtype: auto bfloat16 fp8_e4m3
  quantization: awq fp8 mxfp8 gptq gptq_marlin awq_marlin bitsandbytes gguf modelopt modelopt_fp8
  modelopt_fp4 nvfp4_online modelopt_mixed petit_nvfp4 w8a8_int8 w8a8_fp8 moe_wna16 w4afp8 mxfp4 auto-round
  auto-round-int8 compressed-tensors modelslim mxfp_w4a8 quark quark_int4fp8_moe quark_mxfp4 mlx_q4 mlx_q8
  unquant humming
  radix-eviction-policy: lru lfu slru priority tlru
  remote-instance-weight-loader-backend: transfer_engine nccl modelexpress
  retraction-policy: length priority
  return-hidden-states-mode: last full
  rl-on-policy-target: fsdp
  sampling-defaults: openai model
  schedule-policy: lpm random fcfs dfs-weight lof priority routing-key hrrn shortest-prefill-first
  speculative-attention-mode: prefill decode
  speculative-draft-kv-cache-dtype: auto fp8_e5m2 fp8_e4m3 bf16 bfloat16
  speculative-draft-load-format: auto pt safetensors instanttensor npcache dummy sharded_state presharded
  gguf expert_pack bitsandbytes mistral layered flash_rl remote remote_instance fastsafetensors private
  runai_streamer
  speculative-draft-model-quantization: awq fp8 mxfp8 gptq gptq_marlin awq_marlin bitsandbytes gguf modelopt
  modelopt_fp8 modelopt_fp4 nvfp4_online modelopt_mixed petit_nvfp4 w8a8_int8 w8a8_fp8 moe_wna16 w4afp8
  mxfp4 auto-round auto-round-int8 compressed-tensors modelslim mxfp_w4a8 quark quark_int4fp8_moe
  quark_mxfp4 mlx_q4 mlx_q8 unquant humming
  speculative-dsa-topk-backend: sgl-kernel torch flashinfer
  speculative-moe-a2a-backend: none deepep mooncake nixl mori ascend_fuseep flashinfer megamoe deepep_v2
  pplx ascend_tp
  speculative-moe-runner-backend: auto deep_gemm triton triton_kernel flashinfer_trtllm
  experimental_sgl_trtllm flashinfer_trtllm_routed flashinfer_cutlass flashinfer_mxfp4 flashinfer_cutedsl
  flashinfer_megamoe cutlass aiter marlin humming experimental_sgl_marlin lora_cutedsl lora_triton
  lora_marlin hpc_ops megamoe intel_xpu
  speculative-ngram-match-type: BFS PROB
  startup-weight-load-mode: serial overlap
  tokenizer-backend: huggingface fastokens
  tokenizer-mode: auto slow
  unified-cache-external-linker-backend: mooncake mori dynamic
  weight-cache-mode: off daemon client
"""


def _choices() -> dict[str, tuple[str, ...]]:
    found: dict[str, tuple[str, ...]] = {}
    name = ""
    for line in _CHOICES.strip("\n").splitlines():
        head, colon, rest = line.partition(":")
        if colon:
            name = head.strip()
        found[name] = (*found.get(name, ()), *(rest if colon else line).split())
    return found


CHOICES = _choices()
"""Flags whose value is one of these."""

INTEGERS = """
 attn-cp-size attn-dp-size chunked-prefill-size context-length disaggregation-bootstrap-port dp-size ep-size
 max-loaded-loras max-lora-rank max-loras-per-batch max-prefill-tokens max-queued-requests max-running-requests
 max-total-tokens nnodes node-rank num-reserved-decode-tokens page-size port pp-size random-seed stream-interval
 tp-size
""".split()  # noqa: SIM905 - a list of strings is unreadable
"""Flags whose value is a whole number."""

FLOATS = ["mem-fraction-static"]
"""Flags whose value is a number."""
