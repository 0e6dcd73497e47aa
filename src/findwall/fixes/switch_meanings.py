"""What options of training scripts are called and say of themselves where they do what a fix of ours does.

A name alone says nothing: `--precision` is a metric as well, `--workers` are those of a server. An option
fits where its name does, its form can say what is wanted, and its help or the values that it takes speak of
the same. Where its help says no more than its name, that must mean nothing else in a program that takes
batches, or be the usual one of a plain yes or no in a program that trains. What a fix
really did is shown by the trial, as for our own way.
"""

from __future__ import annotations

import re
from typing import Literal

import msgspec

Wanted = Literal["on", "off", "word", "number", "fused-name"]


class Meaning(msgspec.Struct, frozen=True):
    """Options that make one fix. Patterns of names and of help; names have underscores, and no prefix."""

    fix: str
    wanted: Wanted
    names: str
    says: str
    never: str = r"(?!)"
    clear: str = r"(?!)"  # names that need no help
    usual: str = r"(?!)"  # of a plain yes or no: names that need none in a program that trains
    words: tuple[str, ...] = ()  # values that mean it, the best first
    after: dict[str, str] = {}  # a value that is not it, and the one beside it, where nothing lists values
    beside: str = r"(?!)"  # names of what has to be switched on for it to count

    def is_called(self, names: set[str]) -> bool:
        return any(re.fullmatch(self.names, name) for name in names)

    def is_clear(self, names: set[str], learns: bool) -> bool:
        """`learns`: whether a program trains, and the option is a plain yes or no."""
        clear = f"{self.clear}|{self.usual}" if learns else self.clear
        return any(re.fullmatch(clear, name) for name in names)


# What a program has that takes batches of samples, and what changes the work of a step: never switched.
BATCHES = (
    r"(micro_|mini_|per_device_|device_|per_gpu_|train_|training_|global_|max_)*(batch_?size|bs|bsz|batch|b|"
    r"batch_size_per_gpu)(_train)?"
)
WORK = (
    r"(.*_)?(batch_?size|bs|bsz|batch|seq(uence)?_?len(gth)?|block_size|context_length|max_tokens)(_.*)?|"
    r"(.*_)?(accum(ulat\w*)?|update_freq)(_.*)?|max_length|img_?size|resolution|crop_?size"
)
# And one that trains: there an option of inference or evaluation alone makes no step shorter.
LEARNS = (
    r"((max_|base_|optim_|peak_)?(lr|learning_rate)|"
    r"(num_|n_|max_|train_)*(epochs?|train_steps?|iters?|steps?))"
)
ON, OFF = ("true", "1", "yes", "on", "y", "t"), ("false", "0", "no", "off", "n", "f")
# Formats as options have them, in lower case.
BF16 = ("bf16-mixed", "bf16_mixed", "amp_bf16", "amp_bfloat16", "bfloat16", "bf16")
FP16 = ("16-mixed", "fp16-mixed", "amp_fp16", "amp_float16", "float16", "fp16", "half")
BESIDE_BF16 = {
    "float32": "bfloat16",
    "fp32": "bf16",
    "f32": "bf16",
    "32-true": "bf16-mixed",
    "32": "bf16-mixed",
    "torch.float32": "torch.bfloat16",
    "float16": "bfloat16",
    "fp16": "bf16",
    "16-mixed": "bf16-mixed",
}

_IF = r"(use|using|enable|with|do|is|torch|allow|set|train|training)_"
_FILES = (
    r"\b(outputs?|sav(e|ed|ing)|export\w*|writ(e|ten|ing)|dump\w*|files?|disk|arrays?|storage|stored|metrics?"
)
_NOT_NUMBERS = (
    _FILES + r"|recall|f1|decimals?|digits|display|print(ed|ing)?|report(s|ed|ing)?|amplitude|amplif\w*|"
    r"waveforms?|signal|loudness|datasets?|evaluat\w+ only)\b"
)
_NARROW = (
    r"mixed|half.?precision|lower.?precision|autocast|\bamp\b|bfloat16|\bbf16\b|\bfp16\b|float16|16.?bit|apex"
)
_NOT_WORKERS = (
    r"\b(servers?|serving|http\w*|web|requests?|rpc|api|gunicorn|uvicorn|downloads?|downloading|uploads?|"
    r"tokeni\w+|preprocess\w*|ray|actors?|environments?|envs?|rollouts?|nodes?|machines?|hosts?|cluster|"
    r"elastic|parameter.servers?|mapping|exports?|decod\w+ threads)\b"
)
_LOADS = (
    r"(data|batch|dataset|image|sample)\w*[ -]*(load|read|worker)|load(er|ing)|sub-?process|training process"
)
_OF_MODEL = (
    r"torch\.?compile|torch 2|pytorch 2|inductor|dynamo|jit.?compil|compil\w* (of )?(the |your |our )?"
    r"(\w+ )?(model|network|net|unet|module|transformer|forward)|(model|network|unet) .*compil"
)
_NOT_MODEL = (
    r"\b(tokeni\w+|regex\w*|patterns?|extensions?|c\+\+|cython|latex|docs?|documentation|datasets?|"
    r"only and exit|config\w* files?|shaders?|bytecode|grammars?|report|tensorrt|onnx|then exit)\b"
)
_NOT_ATTENTION = (
    r"\b(leds?|light\w*|lamps?|cameras?|photos?|firmware|flash (memory|drive|chip)|screen|microcontroller)\b"
)
_CHECKPOINTS = (
    r"(gradient|activation)s?.{0,30}checkpoint|checkpoint.{0,40}(activation|gradient|memory)|recompute|"
    r"save (gpu )?memory"
)

MEANINGS = (
    Meaning(
        "bf16-autocast",
        "on",
        rf"({_IF})?(bf16|bfloat16)(_mixed|_amp|_autocast)?|amp_bf16",
        rf"{_NARROW}|precision",
        _NOT_NUMBERS,
        clear=rf"({_IF})?(bf16|bfloat16)",
    ),
    Meaning(
        "bf16-autocast",
        "word",
        rf"({_IF})?(amp_|autocast_|compute_|mixed_|float_|model_)?(dtype|precision|data_type)|amp|autocast|"
        r"amp_(mode|type|level|precision)",
        rf"{_NARROW}|\bdtype\b|floating.?point|numeric(al)? precision|training precision",
        _NOT_NUMBERS,
        words=(*BF16, *FP16),
        after=BESIDE_BF16,
        beside=rf"({_IF})?(native_)?(amp|autocast|mixed_precision)(_enabled)?",
    ),
    Meaning(
        "bf16-autocast",
        "on",
        rf"({_IF})?(native_)?(amp|autocast|mixed_precision)(_enabled)?",
        _NARROW,
        _NOT_NUMBERS,
        clear=rf"({_IF}|native_)amp|({_IF})?(autocast|mixed_precision)",
        usual=r"amp",
    ),
    Meaning(
        "bf16-autocast",
        "on",
        rf"({_IF})?(fp16|float16|half)(_mixed|_precision)?",
        rf"{_NARROW}|\bfp16\b",
        _NOT_NUMBERS,
        clear=rf"({_IF})?fp16",
    ),
    Meaning(
        "tf32",
        "on",
        rf"({_IF})?(tf32|tensor_?cores?|tensorfloat_?32)(_matmul)?",
        r"tf32|tensor.?cores?|tensorfloat|ampere",
        r"\b(benchmark only|profil\w+)\b",
        clear=rf"({_IF})?tf32",
    ),
    Meaning(
        "tf32",
        "word",
        rf"({_IF})?(float32_)?(matmul|mat_mul)_precision",
        r"matmul|matrix mult|tf32|tensor.?cores?",
        _FILES + r")\b",
        words=("high",),
        after={"highest": "high"},
        clear=rf"({_IF})?(float32_)?matmul_precision",
    ),
    Meaning(
        "torch-compile",
        "on",
        rf"({_IF})?(torch_?)?(compile|compiled|dynamo)(_model|_net|_unet)?|torchcompile",
        _OF_MODEL,
        _NOT_MODEL,
        clear=r"(use_)?torch_?compile|compile_model",
        usual=r"compile",
    ),
    Meaning(
        "sdpa",
        "on",
        rf"({_IF})?(flash|sdpa|sdp|flash_?attn|flash_?attention|fused|fused_attn|fused_attention|flash_?attention_?2)"
        r"(_2)?",
        r"attention|\battn\b|sdpa|scaled.dot",
        _NOT_ATTENTION,
        clear=rf"({_IF})?(sdpa|flash_?attn|flash_?attention)",
        usual=r"flash",
    ),
    Meaning(
        "sdpa",
        "word",
        r"_?(attn|attention)(_implementation|_impl|_backend|_type|_mode|_kernel)?",
        r"attention|sdpa",
        _NOT_ATTENTION,
        clear=r"_?(attn|attention)_(implementation|impl|backend)",
        words=("sdpa", "torch_sdpa", "torch", "flash", "flash_attention", "flash_attn", "flash_attention_2"),
        after={"eager": "sdpa"},
    ),
    Meaning(
        "fused-optimizer",
        "on",
        rf"({_IF})?fused(_adamw?|_optim(izer)?|_opt|_sgd)?|(adamw?|optim(izer)?|opt)_fused",
        r"fused.{0,40}(adam|optimi[sz]er|sgd)|(adam|optimi[sz]er|sgd)\w*.{0,40}fused",
        r"\b(layer ?norm|rms ?norm|attention|loss|softmax|rope|mlp|kernels? of)\b",
        clear=rf"({_IF})?fused_(adamw?|optim(izer)?)",
    ),
    Meaning("fused-optimizer", "fused-name", r"(opt|optim|optimizer)(_name|_type)?", r"optimi[sz]er"),
    Meaning(
        "loader-workers",
        "number",
        r"(num_|n_|n|nb_|number_of_)?((data_?)?loader_|dataset_|data_|train_)?(workers|num_workers|worker|jobs?)"
        r"(_per_gpu|_per_rank|_per_device)?|(num_)?(data|loader|loading)_(processes|procs)",
        _LOADS,
        _NOT_WORKERS,
        clear=r"(num_|n_|n)?((data_?)?loader_|data_)?(num_)?workers",
    ),
    Meaning(
        "pin-memory",
        "on",
        rf"({_IF})?((data_?)?loader_)?pin(ned)?_?mem(ory)?",
        r"\bpin(ned|ning)?\b",
        r"\b(process|cores?|threads?|certificate|code)\b.{0,20}pin",
        clear=rf"({_IF})?((data_?)?loader_)?pin_mem(ory)?",
    ),
    Meaning(
        "persistent-workers",
        "on",
        rf"({_IF})?((data_?)?loader_)?(persistent|keep)_workers",
        r"worker|loader",
        _NOT_WORKERS,
        clear=rf"({_IF})?((data_?)?loader_)?persistent_workers",
    ),
    Meaning(
        "channels-last",
        "on",
        rf"({_IF})?(channels?_last|nhwc)(_memory_format)?",
        r"channels.last|memory (format|layout)|nhwc",
        r"\b(audio|wav|waveforms?|files?|arrays?|numpy|microphones?|csv|recordings?|inputs? (is|are)|"
        r"convert)\b",
        clear=rf"({_IF})?channels_last",
    ),
    Meaning(
        "channels-last",
        "word",
        r"(memory|data|model)_(format|layout)",
        r"memory (format|layout)|channels.last",
        _FILES + r")\b",
        words=("channels_last", "nhwc"),
    ),
    Meaning(
        "cudnn-benchmark",
        "on",
        rf"({_IF})?cudnn_?(benchmark|bench|autotune)|benchmark",
        r"cudnn",
        r"\b(instead of training|and exit)\b",
        clear=rf"({_IF})?cudnn_?benchmark",
    ),
    Meaning(
        "less-recompute",
        "off",
        rf"({_IF})?((gradient|grad|activation|act)_)(checkpoint(ing|s)?|ckpt|recompute)|"
        r"(checkpoint|recompute)_(activations|gradients|granularity)|recompute",
        _CHECKPOINTS,
        r"\b(every|resume|disk|files?)\b",
        clear=rf"({_IF})?(gradient|grad|activation)_checkpoint(ing)?",
    ),
)
# More of what a loader with workers has: batches that each makes ahead.
AHEAD_OF_STEP = Meaning(
    "loader-workers",
    "number",
    r"((data_?)?loader_)?prefetch(_factor|_batches)?",
    r"(batch|sample|load|worker).{0,60}(ahead|advance|prefetch)|prefetch.{0,60}(batch|sample|load|worker)",
    r"\b(cache|http|download|shard|cuda stream|gpu)\w*\b",
    clear=r"((data_?)?loader_)?prefetch_factor",
)
