"""How a verdict is put together: what fills the step, in which steps, what to do, what that saves."""

from __future__ import annotations

from findwall.model.claims import Claim
from findwall.report.words import Words, capital, fill, number, spoken
from findwall.units import format_ms

# How shapes and ops are recorded, by who records.
SHAPES_OPTION = {"torch": "record_shapes=True", "nsys": "nsys profile --pytorch=autograd-shapes-nvtx"}
OPS_OPTION = {**SHAPES_OPTION, "torch": "ProfilerActivity.CPU"}


def shapes_option(claim: Claim) -> str:
    return SHAPES_OPTION[str(claim.figures["recorder"])]


def often(claim: Claim) -> str:
    """ "1 step in 16", or "4 % of the steps"."""
    every = claim.figures.get("every")
    return f"1 step in {every}" if every else f"{100 * number(claim, 'steps_share'):.2g} % of the steps"


def _told(claim: Claim) -> str:
    fact, *which, action, gain = (spoken(part) for part in claim.parts)
    steps = "".join(f" {one}." for one in which)
    return f"{fact}.{steps} {capital(action)}; {gain}."


def _longer_steps(claim: Claim) -> str:
    takes = "takes" if claim.figures.get("every") else "take"
    text = f"{often(claim)} {takes} {format_ms(number(claim, 'long_ms'))} instead of {{usual_ms:ms}}"
    return fill(text + "[[ ({parts[0]})]]", claim)


def _lacks_shapes(claim: Claim) -> str:
    return f"the trace has no shapes: {shapes_option(claim)}"


def _worth(claim: Claim) -> str:
    return f"no other cause recovers {100 * number(claim, 'worth_share'):.0f} %"


def _device(claim: Claim) -> str:
    return fill("this {gpu}'s ceilings are unknown: ", Claim("", claim.figures)) + claim.names.get(
        "device", "the trace does not name it"
    )


def _saves(claim: Claim) -> str:
    return fill(
        "that saves up to {saves_ms:ms}[[{behind:if}, counting what waits behind it]]"
        "[[, counting {blind_ms:ms} in kernels whose floor is not known]][[ (roughly, because {parts[0]})]]",
        claim,
    )


WORDS: dict[str, Words] = {
    "verdict/told": _told,
    "action/another-way": "look for another way to do the same",
    "gain/saves": _saves,
    "gain/alone": "that alone saves {saves_ms:ms} at most",
    "gain/nothing": "nothing is left to save",
    "gain/unknown": "how much that saves is unknown because {parts[0]}",
    "lacking/model": "these kernels have no model",
    "lacking/ceilings": _device,
    "lacking/shapes": _lacks_shapes,
    "beside/nothing": _worth,
    "beside/next-best": "the next best cause ({cause}) recovers {gain_share:share}",
    "forward/without-gradients": "{parts[0]}: if it is an evaluation, run it every n steps.",
    "steps/longer": _longer_steps,
    "steps/restart-workers": "restarting the loader's workers; persistent_workers=True keeps them",
    "steps/restart-loader": "restarting the loader",
    "steps/saving": "saving a checkpoint",
    "steps/evaluation": "evaluating the model",
    "steps/wait": "waiting for {cause}[[ at {places[0]}]][[ in {function}]]",
    "clocks/held-down": "{reason} held down the clocks of rank {rank} in {held_share:share} of the samples",
}
