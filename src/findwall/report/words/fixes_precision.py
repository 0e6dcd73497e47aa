"""The words of fixes that change number formats and the sizes that fit them."""

from __future__ import annotations

from findwall.model.claims import Claim, listed
from findwall.report.words import Words, fill, number, spoken
from findwall.report.words.amounts import NAMED, at

SIZES_NAMED, OPS_NAMED = 2 * NAMED, NAMED + 1
_LAYOUT = " Use channels-last with it: in NCHW, 16-bit images cost layout copies again."


def _runs(claim: Claim) -> str:
    return "forward pass and loss" if claim.figures["trains"] else "model"


def _layout(claim: Claim) -> str:
    return _LAYOUT if claim.figures["turns_images_back"] else ""


def _bf16(claim: Claim) -> str:
    said = claim.figures
    between = ", and pointwise kernels after them would move fewer bytes" if said["fewer_bytes"] else ""
    return fill(
        "Run the {runs} under `torch.autocast('{device}', dtype=torch.bfloat16)`: {wide_ms:per_step} of "
        "matmuls runs in {formats} today{between}{scaler}.{layout}",
        claim,
        runs=_runs(claim),
        device="cpu" if said["on_cores"] else "cuda",
        formats="fp32" if said["on_cores"] else "fp32 or TF32",
        between=between,
        scaler="; no GradScaler is needed" if said["trains"] else "",
        layout=_layout(claim),
    )


def _fp16(claim: Claim) -> str:
    return fill(
        "Run the {runs} under `torch.autocast('cuda', dtype=torch.float16)`{scaler}: {wide_ms:per_step} of "
        "matmuls runs in fp32 today, and this GPU has no bfloat16.{layout}",
        claim,
        runs=_runs(claim),
        scaler=", with a GradScaler" if claim.figures["trains"] else "",
        layout=_layout(claim),
    )


def _fp8(claim: Claim) -> str:
    trains = claim.figures["trains"]
    return fill(
        "Use fp8 for the large matmuls ({way}): this {device_word} does {times_as_many:.1f} times as many "
        "products in it as in {format}, and such matmuls take {matmuls_ms:per_step}.",
        claim,
        way="torchao.float8 or Transformer Engine" if trains else "torchao, with torch.compile",
    )


def _from_fp64(claim: Claim) -> str:
    times = {name: number(claim, f"{name}_times") for name in ("fp32", "tf32", "bf16")}
    faster = ", ".join(f"{often:.1f} times as fast in {name}" for name, often in times.items() if often)
    return fill(
        "Convert model and data to fp32 (`.float()`){switch}: work in fp64 takes {doubles_ms:per_step}"
        "{where}, twice the bytes{rates}. NumPy's arrays are fp64 unless told otherwise. Do so only if "
        "fp64's 16 digits are not needed: fp32 keeps 7.",
        claim,
        where=at(claim),
        switch=" and `torch.set_float32_matmul_precision('high')`" if times["tf32"] else "",
        rates=f", and this {claim.figures['device_word']} multiplies {faster}" if faster else "",
    )


def _float(claim: Claim) -> str:
    how = "Keep the model and what it is given in fp32 (`.float()`, and no `.to()` or `.half()` to {format})"
    spent = ["{moved_ms:per_step} goes to products in {format}{where}"]
    if claim.figures["moved_ms"] is None:
        spent = []
    if claim.figures["casts_ms"] is not None:
        how = "Take `torch.autocast` out on this CPU, so that the model runs in fp32"
        spent.append("{casts_ms:per_step} goes to casts")
    return fill(
        f"{how}: {listed(spent)}, and this CPU multiplies fp32 numbers {{times:.1f}} times as fast as "
        "{format}[[; bfloat16 is {bf16_times:.1f} times as fast as fp32 again]].",
        claim,
        where=at(claim),
    )


def _fewer_casts(claim: Claim) -> str:
    shape = claim.names["shape"]
    return fill(
        "Drop `.float()` and `.to(dtype)` between layers, and keep the weights in the format they are used "
        "in: casts take {casts_ms:per_step}{largest}{less}.",
        claim,
        largest=f"; the largest is of {shape}{at(claim)}" if shape else at(claim),
        less="; what works on wide results moves less then" if claim.figures["moves_less"] else "",
    )


def _pad(claim: Claim) -> str:
    spoken_parts = [spoken(part) for part in claim.parts]
    sizes = int(number(claim, "sizes"))
    return fill(
        "Pad {changes} in {ops}: {spent_ms:per_step} runs on fallback kernels today.",
        claim,
        changes=", ".join(spoken_parts[:sizes][:SIZES_NAMED]),
        ops=", ".join(spoken_parts[sizes:][:OPS_NAMED]) or "the matmuls",
    )


_MOVES = "` at the start: {moved_ms:per_step} of fp32 "
_MATMULS = "torch.set_float32_matmul_precision('high')"
_CONVOLUTIONS = "torch.backends.cudnn.allow_tf32 = True"
WORDS: dict[str, Words] = {
    "autocast/no-shapes": "what 16 bits would give is not known: the trace has no shapes ({option})",
    "autocast/cores-unmeasured": (
        "how fast this CPU multiplies 16-bit numbers is unknown: `findwall ceilings`"
    ),
    "autocast/unknown-device": (
        "this GPU is not in the table, so it is not known how fast its 16-bit matmuls are"
    ),
    "autocast/in-place": "autocast leaves products in place, and kernels of the job's own, as they are",
    "bf16-autocast/data": (
        "Keep the data in bfloat16 (`x.to(torch.bfloat16)`): pointwise kernels on fp32 data take "
        "{pointwise_ms:per_step}, and would move half the bytes."
    ),
    "bf16-autocast/fp64": "autocast leaves fp64 matmuls as they are; move to fp32 first",
    "bf16-autocast/fp16-only": "{device} has no bfloat16; float16 needs a GradScaler besides",
    "bf16-autocast/matmuls": _bf16,
    "fp16-autocast/none-wide": "no matmuls of 32-bit numbers take time in this step",
    "fp16-autocast/has-bf16": "this device multiplies bfloat16 numbers too, which need no scaler",
    "fp16-autocast/matmuls": _fp16,
    "fp8/no-faster": "{device} is no faster in fp8",
    "fp8/multiply": _fp8,
    "int8-weights/trains": "this job trains: its weights change in every step",
    "int8-weights/none": "no 16-bit matmul waits for its weights to be read",
    "int8-weights/store": (
        "Store the weights in int8 or in 4 bits (torchao `quantize_`, with torch.compile): 16-bit matmuls "
        "take {matmuls_ms:per_step}, as long as memory needs to hand over what they read, and would read "
        "half as much."
    ),
    "lower-precision/none": "there are no matmuls in this step",
    "lower-precision/wide": "the matmuls run in {format}; move to 16 bits first",
    "lower-precision/has-fp8": "this device has fp8 for products, which comes before other narrow formats",
    "lower-precision/trains": "{device} trains in nothing narrower than 16 bits",
    "lower-precision/no-faster": "{device} is no faster below 16 bits",
    "lower-precision/int8": (
        "Quantise activations and weights to int8 (torchao, TensorRT): this {device_word} does "
        "{times_as_many:.1f} times as many products in it as in {format}, and such matmuls take "
        "{matmuls_ms:per_step}."
    ),
    "lower-precision/from-fp64": _from_fp64,
    "lower-precision/from-whole": (
        "Multiply as floats (`a.float() @ b.float()`)[[ at {places[0]}]]: products of whole numbers take "
        "{spent_ms:per_step}, since no library has one for them. Sums below 2**24 stay exact, with "
        "`.double()` below 2**53."
    ),
    "tf32/on-cores": "the job runs on the CPU, which has no TF32",
    "tf32/unknown-device": "this GPU is not in the table, so it is not known whether it has TF32",
    "tf32/has-none": "{device} has no TF32",
    "tf32/no-faster": "TF32 is no faster than fp32 on {device}",
    "tf32/no-products": "there is no matmul or convolution in this step",
    "tf32/already": "TF32 is already on",
    "tf32/too-small": "the fp32 matmuls are too small for it to matter",
    "tf32/other-format": "the matmuls run in {format}",
    "tf32/matmuls": f"Put `{_MATMULS}{_MOVES}matmuls moves to the tensor cores.",
    "tf32/convolutions": f"Put `{_CONVOLUTIONS}{_MOVES}convolutions moves to the tensor cores.",
    "tf32/both": (
        f"Put `{_MATMULS}; {_CONVOLUTIONS}{_MOVES}matmuls and convolutions moves to the tensor cores."
    ),
    "full-precision/gpu": "the job runs on a GPU, which is fast in 16 bits",
    "full-precision/none": "no matmul or convolution of 16-bit numbers takes time in this step",
    "full-precision/as-fast": "this CPU multiplies {format} numbers about as fast as fp32 ones, or faster",
    "full-precision/no-arithmetic": "the {format} matmuls wait for memory, and fp32 is twice the bytes",
    "full-precision/unmeasured": (
        "how fast this CPU multiplies {format} numbers is unknown: `findwall ceilings --device cpu --refresh`"
    ),
    "full-precision/float": _float,
    "fewer-casts/none": "no tensor changes its number format in the step",
    "fewer-casts/drop": _fewer_casts,
    "size/pad": "{from} → {to} (next multiple of {multiple})",
    "pad-shapes/to": _pad,
    "pad-shapes/sixteen-bit": ("Pad the dimensions of the 16-bit matmuls to a multiple of 64 (at least 8)."),
    "pad-shapes/no-shapes": "the trace has no shapes (record_shapes=True)",
    "pad-shapes/wide": "the matmuls run in {format}, where odd dimensions cost nothing yet",
    "pad-shapes/none": "no 16-bit matmul has dimensions that keep it off the fast kernels",
}
