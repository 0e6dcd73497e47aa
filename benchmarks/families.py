"""Families of jobs: what kind of model each is.

What a fix gives hangs on the kind of model: its shapes, its kernels, how its host issues them. Two GPTs err
alike, and a figure that was learned from one holds for the other sooner than for a detector. So whoever asks
whether a figure holds for a job that nobody knows leaves out the job's whole family, not only the job.
"""

from __future__ import annotations

_FAMILIES = {
    "language models": (
        "gpt2_small_batch8 gpt2_fp32_batch16 gpt2_naive_attention gpt2_item_every_param llama_1b lm_generate "
        "accumulate_and_log large_vocabulary decode_graph checkpointed_blocks moe_lm lm_pretrain"
    ),
    "transformers on other data": (
        "bias_attention vit_checkpoint_io distill_vit double_buffer patch_forecast tabular_folds"
    ),
    "images": (
        "conv_fp32 layout_flips resnet50_default resnet_default resnet_starved dcgan pageable_both_ways "
        "edm_unet slow_loader loader_just_short answer_requests detect_service video_tagger ocr_lines"
    ),
    "graphs and points": "graph_messages citation_gnn dgcnn_cls",
    "stacks of linear layers": (
        "accelerate_fp32 mlp_compute odd_widths upcast_tower gradient_norms plain_adamw empty_cache "
        "collect_garbage json_logging pageable_batches handwritten_gelu own_profiler h2d_pageable "
        "pointwise_chain"
    ),
    "retrieval and ranking": "ctr_ranker dense_retriever two_threads",
    "reinforcement learning": "rl_policy_infer impala_learner market_agent",
    "solvers": "neural_ode fno_darcy sparse_gp",
    "sound and sequences": "rvq_codec asr_ctc promoter_cnn changing_lengths",
    "teachers and denoisers": "graph_and_eager compiled_eager_loss",
    "media pipelines": "decode_stage",
}
FAMILY_OF = {job: family for family, jobs in _FAMILIES.items() for job in jobs.split()}


def family_of(job: str) -> str:
    """A job that is in no family is one by itself."""
    return FAMILY_OF.get(job, job)
