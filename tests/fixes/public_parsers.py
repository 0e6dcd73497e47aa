"""Command lines in the style of public training scripts, with decoys, and what must be found in each.

Written from what such scripts are like; names, types and help in their own style.
"""

from __future__ import annotations

import argparse
import enum
from argparse import ArgumentParser
from collections.abc import Callable
from typing import NamedTuple

HELP = argparse.ArgumentDefaultsHelpFormatter


class Style(NamedTuple):
    make: Callable[[], ArgumentParser]
    typed: str  # what a person typed
    found: dict[str, str]  # what must be found: by fix, what is typed for it


def str2bool(text: str) -> bool:
    return text.lower() in ("yes", "true", "t", "1")


def string_to_bool(text: str | bool) -> bool:
    return text if isinstance(text, bool) else str2bool(text)


def image_train() -> ArgumentParser:
    """As timm's train.py."""
    parser = ArgumentParser(description="PyTorch ImageNet Training")
    group = parser.add_argument_group("Dataset parameters")
    group.add_argument("--data-dir", metavar="DIR", help="path to dataset (root dir)")
    group.add_argument("--dataset-download", action="store_true", default=False, help="Allow download.")
    group = parser.add_argument_group("Model parameters")
    group.add_argument(
        "--model", default="resnet50", type=str, metavar="MODEL", help="Name of model to train"
    )
    group.add_argument(
        "--grad-checkpointing",
        action="store_true",
        default=False,
        help="Enable gradient checkpointing through model blocks/stages",
    )
    group.add_argument("-b", "--batch-size", type=int, default=128, metavar="N", help="Input batch size")
    group.add_argument("--grad-accum-steps", type=int, default=1, metavar="N", help="accumulate gradients")
    group.add_argument(
        "--channels-last", action="store_true", default=False, help="Use channels_last memory layout"
    )
    group.add_argument(
        "--amp",
        action="store_true",
        default=False,
        help="use NVIDIA Apex AMP or Native AMP for mixed precision training",
    )
    group.add_argument(
        "--amp-dtype", default="float16", type=str, help="lower precision AMP dtype (default: float16)"
    )
    group.add_argument("--amp-impl", default="native", type=str, help='AMP impl to use, "native" or "apex"')
    group.add_argument("--no-ddp-bb", action="store_true", default=False, help="Force broadcast buffers off")
    scripting = group.add_mutually_exclusive_group()
    scripting.add_argument(
        "--torchscript", dest="torchscript", action="store_true", help="torch.jit.script the full model"
    )
    scripting.add_argument(
        "--torchcompile",
        nargs="?",
        type=str,
        default=None,
        const="inductor",
        help="Enable compilation w/ specified backend (default: inductor).",
    )
    group = parser.add_argument_group("Optimizer parameters")
    group.add_argument(
        "--opt", default="sgd", type=str, metavar="OPTIMIZER", help='Optimizer (default: "sgd")'
    )
    group.add_argument("--aug-splits", type=int, default=0, help="Number of augmentation splits")
    group.add_argument("--train-interpolation", type=str, default="random", help="Training interpolation")
    group.add_argument(
        "-j",
        "--workers",
        type=int,
        default=4,
        metavar="N",
        help="how many training processes to use (default: 4)",
    )
    group.add_argument(
        "--pin-mem",
        action="store_true",
        default=False,
        help="Pin CPU memory in DataLoader for more efficient transfer to GPU.",
    )
    group.add_argument("--no-prefetcher", action="store_true", default=False, help="disable fast prefetcher")
    group.add_argument("--eval-metric", default="top1", type=str, help="Best metric (default: top1)")
    group.add_argument("--precision", action="store_true", help="report precision and recall per class")
    return parser


def gpt2_in_one_file() -> ArgumentParser:
    """As llm.c's train_gpt2.py."""
    parser = ArgumentParser()
    parser.add_argument("--input_bin", type=str, default="val.bin", help="input .bin to train on")
    parser.add_argument(
        "--output_dir", type=str, default="", help="output directory for logs and checkpoints"
    )
    parser.add_argument(
        "--model", type=str, default="gpt2", help="gpt2|gpt2-medium|gpt2-large|gpt2-xl|d12|d24"
    )
    parser.add_argument("--batch_size", type=int, default=4, help="batch size, in units of #batch dimensions")
    parser.add_argument("--sequence_length", type=int, default=64, help="sequence length")
    parser.add_argument("--total_batch_size", type=int, default=256, help="total desired batch size")
    parser.add_argument("--num_iterations", type=int, default=10, help="number of iterations to run")
    parser.add_argument("--inference_only", type=int, default=0, help="only run inference")
    parser.add_argument("--overfit_single_batch", type=int, default=1, help="overfit just one batch of data")
    parser.add_argument("--tensorcores", type=int, default=0, help="use tensorcores")
    parser.add_argument("--device", type=str, default="", help="by default we autodetect, or set it here")
    parser.add_argument("--compile", type=int, default=0, help="torch.compile the model")
    parser.add_argument("--flash", type=int, default=0, help="use flash attention")
    parser.add_argument("--dtype", type=str, default="float32", help="float32|float16|bfloat16")
    parser.add_argument("--zero_stage", type=int, default=0, help="zero redundancy optimizer stage (0/1/2/3)")
    parser.add_argument("--write_tensors", type=int, default=1, help="write tensors to disk")
    return parser


class Optim(str, enum.Enum):
    ADAMW = "adamw_torch"
    FUSED = "adamw_torch_fused"


def hugging_face() -> ArgumentParser:
    """As HfArgumentParser makes it of TrainingArguments for run_clm.py."""
    parser = ArgumentParser(formatter_class=HELP)

    def add(name: str, text: str, **how: object) -> None:
        parser.add_argument(f"--{name}", f"--{name.replace('_', '-')}", help=text, **how)  # type: ignore[arg-type]

    def flag(name: str, text: str, default: bool | None = False) -> None:
        bare = {} if default is None else {"nargs": "?", "const": True}
        add(name, text, type=string_to_bool, default=default, **bare)

    add("model_name_or_path", "The model checkpoint for weights initialization.", type=str, default=None)
    add(
        "torch_dtype",
        "Override the default `torch.dtype` and load the model under this dtype.",
        choices=["auto", "bfloat16", "float16", "float32"],
        default=None,
    )
    add("output_dir", "The output directory where the model predictions will be written.", default="out")
    add("per_device_train_batch_size", "Batch size per device for training.", type=int, default=8)
    add("gradient_accumulation_steps", "Number of updates steps to accumulate.", type=int, default=1)
    add("block_size", "Optional input sequence length after tokenization.", type=int, default=None)
    add("preprocessing_num_workers", "The number of processes for the preprocessing.", type=int, default=None)
    flag(
        "gradient_checkpointing",
        "If True, use gradient checkpointing to save memory at the expense of slower backward pass.",
    )
    flag("bf16", "Whether to use bf16 (mixed) precision instead of 32-bit. Requires Ampere or higher.")
    flag("fp16", "Whether to use fp16 (mixed) precision instead of 32-bit")
    flag("bf16_full_eval", "Whether to use full bfloat16 evaluation instead of 32-bit.")
    add(
        "half_precision_backend",
        "The backend to be used for half precision.",
        default="auto",
        choices=["auto", "apex", "cpu_amp"],
    )
    flag("tf32", "Whether to enable tf32 mode, available in Ampere and newer GPU architectures.", None)
    flag("torch_compile", "If set to `True`, the model will be wrapped in `torch.compile`.")
    add(
        "torch_compile_mode",
        "Which mode to use with `torch.compile`, passing one will trigger it.",
        default=None,
    )
    add("optim", "The optimizer to use.", choices=[one.value for one in Optim], default="adamw_torch")
    add(
        "dataloader_num_workers",
        "Number of subprocesses to use for data loading. 0 means that the data will be "
        "loaded in the main process.",
        type=int,
        default=0,
    )
    add(
        "dataloader_prefetch_factor",
        "Number of batches loaded in advance by each worker. 2 means there will be a "
        "total of 2 * num_workers batches prefetched.",
        type=int,
        default=None,
    )
    flag("dataloader_pin_memory", "Whether or not to pin memory for DataLoader.", True)
    flag("dataloader_persistent_workers", "If True, the data loader will not shut down the worker processes.")
    flag("fp16_backend", "Deprecated. Use half_precision_backend instead")
    flag("use_cpu", "Whether or not to use cpu.")
    return parser


def torchvision_references() -> ArgumentParser:
    """As references/classification/train.py."""
    parser = ArgumentParser(description="PyTorch Classification Training", add_help=True)
    parser.add_argument("--data-path", default="/datasets01/imagenet", type=str, help="dataset path")
    parser.add_argument("-b", "--batch-size", default=32, type=int, help="images per gpu")
    parser.add_argument("--epochs", default=90, type=int, metavar="N", help="number of total epochs to run")
    parser.add_argument(
        "-j",
        "--workers",
        default=16,
        type=int,
        metavar="N",
        help="number of data loading workers (default: 16)",
    )
    parser.add_argument("--opt", default="sgd", type=str, help="optimizer")
    parser.add_argument("--sync-bn", dest="sync_bn", help="Use sync batch norm", action="store_true")
    parser.add_argument("--amp", action="store_true", help="Use torch.cuda.amp for mixed precision training")
    parser.add_argument("--use-deterministic-algorithms", action="store_true", help="Forces deterministic.")
    parser.add_argument("--backend", default="PIL", type=str.lower, help="PIL or tensor - case insensitive")
    parser.add_argument("--compile-transforms", action="store_true", help="compile the transforms")
    parser.add_argument("--half-life", type=float, default=0.5, help="of the average, in epochs")
    return parser


def detector() -> ArgumentParser:
    """As YOLO's train.py."""
    parser = ArgumentParser()
    parser.add_argument("--weights", type=str, default="yolo.pt", help="initial weights path")
    parser.add_argument("--batch-size", type=int, default=16, help="total batch size for all GPUs")
    parser.add_argument("--imgsz", "--img", "--img-size", type=int, default=640, help="train, val image size")
    parser.add_argument("--rect", action="store_true", help="rectangular training")
    parser.add_argument("--cache", type=str, nargs="?", const="ram", help="image --cache ram/disk")
    parser.add_argument("--multi-scale", action="store_true", help="vary img-size +/- 50%%")
    parser.add_argument(
        "--optimizer", type=str, choices=["SGD", "Adam", "AdamW"], default="SGD", help="optimizer"
    )
    parser.add_argument(
        "--workers", type=int, default=2, help="max dataloader workers (per RANK in DDP mode)"
    )
    parser.add_argument("--half", action="store_true", help="use FP16 half-precision inference of the export")
    parser.add_argument("--flash", action="store_true", help="flash the status LED when an epoch ends")
    parser.add_argument("--seed", type=int, default=0, help="Global training seed")
    return parser


def sequence_to_sequence() -> ArgumentParser:
    """As fairseq's."""
    parser = ArgumentParser(allow_abbrev=False)
    parser.add_argument("--no-progress-bar", action="store_true", help="disable progress bar")
    parser.add_argument("--fp16", action="store_true", help="use FP16")
    parser.add_argument("--memory-efficient-fp16", action="store_true", help="use a memory-efficient FP16")
    parser.add_argument("--bf16", action="store_true", help="use bfloat16; implies --tpu")
    parser.add_argument("--fp16-init-scale", default=2**7, type=int, help="default FP16 loss scale")
    parser.add_argument(
        "--num-workers",
        default=1,
        type=int,
        metavar="N",
        help="how many subprocesses to use for data loading",
    )
    parser.add_argument("--max-tokens", "--batch-size-tokens", type=int, help="maximum number of tokens")
    parser.add_argument("--batch-size", "--max-sentences", type=int, metavar="N", help="sentences in a batch")
    parser.add_argument("--update-freq", default="1", help="update parameters every N_i batches")
    parser.add_argument(
        "--checkpoint-activations",
        action="store_true",
        help="checkpoint activations at each layer, which saves GPU memory",
    )
    parser.add_argument(
        "--dataset-impl", default="mmap", choices=["raw", "lazy", "mmap"], help="output dataset"
    )
    parser.add_argument("--workers", type=int, default=1, help="number of parallel workers of the tokenizer")
    return parser


def deepspeed_like() -> ArgumentParser:
    """As scripts for DeepSpeed have them, with numbers for flags and a type of their own."""
    parser = ArgumentParser()
    parser.add_argument("--local_rank", type=int, default=-1, help="local rank passed from the launcher")
    parser.add_argument("--deepspeed_config", type=str, default=None, help="json file of DeepSpeed")
    parser.add_argument("--per_device_train_batch_size", type=int, default=2, help="Batch size per device")
    parser.add_argument(
        "--dtype", type=str, default="fp32", choices=["fp16", "bf16", "fp32"], help="Training data type"
    )
    parser.add_argument("--kv_dtype", type=str, default="fp32", choices=["fp16", "fp32"], help="of the cache")
    parser.add_argument(
        "--gradient_checkpointing",
        type=str2bool,
        default=False,
        help="Enable gradient checkpointing to recompute activations",
    )
    parser.add_argument("--flash_attn", type=str2bool, default=False, help="Use flash attention kernels")
    parser.add_argument("--compile", type=str2bool, default=False, help="compile the tokenizer's patterns")
    parser.add_argument("--fused", type=str2bool, default=False, help="use the fused layer norm kernel")
    parser.add_argument("--num_nodes", type=int, default=1, help="number of nodes")
    parser.add_argument("--num_workers", type=int, default=4, help="number of workers of the rollout server")
    return parser


def lightning() -> ArgumentParser:
    """As Lightning's command line shows its Trainer."""
    parser = ArgumentParser()
    parser.add_argument("--seed_everything", default=True, help="Set to an int to run seed_everything")
    parser.add_argument("--trainer.accelerator", default="auto", help="Supports passing different types")
    parser.add_argument("--trainer.devices", default="auto", help="The devices to use.")
    parser.add_argument(
        "--trainer.precision",
        default="32-true",
        help="Double precision (64, '64-true'), full precision (32, '32-true'), 16bit mixed "
        "precision (16, '16-mixed') or bfloat16 mixed precision ('bf16', 'bf16-mixed').",
    )
    parser.add_argument(
        "--trainer.benchmark",
        type=str2bool,
        default=False,
        help="The value to which to set torch.backends.cudnn.benchmark to.",
    )
    parser.add_argument(
        "--trainer.accumulate_grad_batches", type=int, default=1, help="Accumulates gradients"
    )
    parser.add_argument("--data.batch_size", type=int, default=32, help="of a device")
    parser.add_argument("--data.num_workers", type=int, default=0, help="")
    parser.add_argument("--data.pin_memory", type=str2bool, default=False, help="")
    parser.add_argument("--data.prefetch", type=int, default=1, help="files downloaded ahead into the cache")
    parser.add_argument(
        "--model.compile", type=str2bool, default=False, help="Whether to torch.compile the net"
    )
    parser.add_argument("--metrics.precision", type=str2bool, default=True, help="log precision and recall")
    return parser


def diffusion() -> ArgumentParser:
    """As diffusers' train_text_to_image.py."""
    parser = ArgumentParser(description="Simple example of a training script.")
    parser.add_argument("--train_batch_size", type=int, default=16, help="Batch size for the dataloader.")
    parser.add_argument("--gradient_accumulation_steps", type=int, default=1, help="Number of updates steps")
    parser.add_argument(
        "--gradient_checkpointing",
        action="store_true",
        help="Whether or not to use gradient checkpointing to save memory at the expense of slower "
        "backward pass.",
    )
    parser.add_argument("--use_8bit_adam", action="store_true", help="Whether or not to use 8-bit Adam.")
    parser.add_argument(
        "--allow_tf32",
        action="store_true",
        help="Whether or not to allow TF32 on Ampere GPUs. Can be used to speed up training.",
    )
    parser.add_argument(
        "--dataloader_num_workers",
        type=int,
        default=0,
        help="Number of subprocesses to use for data loading.",
    )
    parser.add_argument(
        "--mixed_precision",
        type=str,
        default=None,
        choices=["no", "fp16", "bf16"],
        help="Whether to use mixed precision. Choose between fp16 and bf16 (bfloat16).",
    )
    parser.add_argument("--report_to", type=str, default="tensorboard", help="Where to report results.")
    parser.add_argument(
        "--enable_xformers_memory_efficient_attention",
        action="store_true",
        help="Whether or not to use xformers.",
    )
    parser.add_argument(
        "--prior_generation_precision",
        type=str,
        default=None,
        choices=["no", "fp32", "fp16", "bf16"],
        help="Choose prior generation precision.",
    )
    return parser


def speech() -> ArgumentParser:
    """As audio projects have it, full of words that mean something else there."""
    parser = ArgumentParser()
    parser.add_argument("--amp", type=float, default=0.8, help="peak amplitude of the signal after scaling")
    parser.add_argument(
        "--dtype",
        default="float32",
        choices=["float32", "int16", "float16"],
        help="dtype of the output wav files",
    )
    parser.add_argument("--channels-last", action="store_true", help="audio arrays have their channels last")
    parser.add_argument("--precision", type=int, default=4, help="digits of the word error rate")
    parser.add_argument("--threads", type=int, default=4, help="threads of ffmpeg")
    parser.add_argument("--n_workers", type=int, default=0, help="workers of the DataLoader")
    parser.add_argument("--batch_size", type=int, default=8)
    parser.add_argument("--use_amp", type=str2bool, default=False, help="use automatic mixed precision (amp)")
    parser.add_argument(
        "--cudnn_benchmark", type=str2bool, default=False, help="set torch.backends.cudnn.benchmark"
    )
    parser.add_argument(
        "--cudnn_deterministic", type=str2bool, default=False, help="cudnn deterministic mode"
    )
    parser.add_argument("--pin", type=int, default=4, help="GPIO pin of the recording lamp")
    return parser


def plain_script() -> ArgumentParser:
    """As people write them for themselves, without a word of help."""
    parser = ArgumentParser()
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--num-workers", type=int, default=0)
    parser.add_argument("--pin-memory", action=argparse.BooleanOptionalAction, default=False)
    parser.add_argument("--persistent-workers", action="store_true")
    parser.add_argument("--use-amp", action="store_true")
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--flash", action="store_true")
    parser.add_argument("--precision", type=float, default=0.5)
    parser.add_argument("--dtype", default="float32")
    return parser


def model_server() -> ArgumentParser:
    """No training at all."""
    parser = ArgumentParser()
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--workers", type=int, default=1, help="number of HTTP server workers")
    parser.add_argument("--num-workers", type=int, default=1)
    parser.add_argument("--threads", type=int, default=2, help="threads of each worker")
    parser.add_argument("--compile", action="store_true", help="compile the regex of the routes")
    parser.add_argument("--dtype", default="float32", help="dtype of the JSON output")
    parser.add_argument("--flash", action="store_true", help="write the firmware to flash memory")
    return parser


def research() -> ArgumentParser:
    """With choices and words of its own."""
    parser = ArgumentParser()
    parser.add_argument("--batch", type=int, default=4, help="sequences a step")
    parser.add_argument("--attn", default="eager", choices=["eager", "sdpa", "flex"], help="attention to use")
    parser.add_argument(
        "--matmul-precision", default="highest", choices=["highest", "high", "medium"], help="of fp32 matmuls"
    )
    parser.add_argument(
        "--autocast", default="none", choices=["none", "bf16", "fp16"], help="autocast format"
    )
    parser.add_argument("--fused-adam", choices=["yes", "no"], default="no", help="fused AdamW kernels")
    parser.add_argument(
        "--memory-format",
        choices=["contiguous", "channels_last"],
        default="contiguous",
        help="memory format of images",
    )
    parser.add_argument(
        "--no-pin-memory", dest="pin_memory", action="store_false", help="do not pin batches of the loader"
    )
    parser.add_argument(
        "--recompute",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="recompute activations in backward to save memory",
    )
    parser.add_argument("--no-amp", action="store_true", help="turn mixed precision off")
    return parser


STYLES: dict[str, Style] = {
    "timm": Style(
        image_train,
        "--data-dir d --grad-checkpointing",
        {
            "bf16-autocast": "--amp --amp-dtype bfloat16",
            "torch-compile": "--torchcompile",
            "loader-workers": "--workers 8",
            "pin-memory": "--pin-mem",
            "channels-last": "--channels-last",
            "less-recompute": "leaving out --grad-checkpointing",
        },
    ),
    "llm.c": Style(
        gpt2_in_one_file,
        "--batch_size 16",
        {
            "bf16-autocast": "--dtype bfloat16",
            "tf32": "--tensorcores 1",
            "torch-compile": "--compile 1",
            "sdpa": "--flash 1",
        },
    ),
    "run_clm": Style(
        hugging_face,
        "--gradient_checkpointing True",
        {
            "bf16-autocast": "--bf16",
            "tf32": "--tf32 True",
            "torch-compile": "--torch_compile",
            "fused-optimizer": "--optim adamw_torch_fused",
            "loader-workers": "--dataloader_num_workers 8 --dataloader_prefetch_factor 4",
            "persistent-workers": "--dataloader_persistent_workers",
            "less-recompute": "--gradient_checkpointing False",
        },
    ),
    "run_clm in fp16": Style(
        hugging_face,
        "--fp16 --dataloader_num_workers 8 --tf32 True --torch_compile --optim adamw_torch_fused",
        {"persistent-workers": "--dataloader_persistent_workers"},
    ),
    "torchvision": Style(
        torchvision_references, "--workers 2", {"bf16-autocast": "--amp", "loader-workers": "--workers 8"}
    ),
    "YOLO": Style(detector, "--cache", {"loader-workers": "--workers 8"}),
    "fairseq": Style(
        sequence_to_sequence,
        "--checkpoint-activations",
        {
            "bf16-autocast": "--bf16",
            "loader-workers": "--num-workers 8",
            "less-recompute": "leaving out --checkpoint-activations",
        },
    ),
    "DeepSpeed": Style(
        deepspeed_like,
        "--dtype fp32",
        {"bf16-autocast": "--dtype bf16", "sdpa": "--flash_attn True"},
    ),
    "Lightning": Style(
        lightning,
        "",
        {
            "bf16-autocast": "--trainer.precision bf16-mixed",
            "cudnn-benchmark": "--trainer.benchmark True",
            "loader-workers": "--data.num_workers 8",
            "pin-memory": "--data.pin_memory True",
            "torch-compile": "--model.compile True",
        },
    ),
    "diffusers": Style(
        diffusion,
        "",
        {
            "bf16-autocast": "--mixed_precision bf16",
            "tf32": "--allow_tf32",
            "loader-workers": "--dataloader_num_workers 8",
        },
    ),
    "audio": Style(
        speech,
        "--amp 0.5",
        {
            "bf16-autocast": "--use_amp True",
            "cudnn-benchmark": "--cudnn_benchmark True",
            "loader-workers": "--n_workers 8",
        },
    ),
    "plain": Style(
        plain_script,
        "",
        {
            "bf16-autocast": "--use-amp",
            "torch-compile": "--compile",
            "sdpa": "--flash",
            "loader-workers": "--num-workers 8",
            "pin-memory": "--pin-memory",
            "persistent-workers": "--persistent-workers",
        },
    ),
    "server": Style(model_server, "", {}),
    "research": Style(
        research,
        "--no-pin-memory",
        {
            "bf16-autocast": "--autocast bf16",
            "tf32": "--matmul-precision high",
            "sdpa": "--attn sdpa",
            "fused-optimizer": "--fused-adam yes",
            "channels-last": "--memory-format channels_last",
            "pin-memory": "leaving out --no-pin-memory",
            "less-recompute": "--no-recompute",
        },
    ),
}
