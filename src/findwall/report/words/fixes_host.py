"""The words of fixes of what the host does: waits, loops, Python, work that could be left out."""

from __future__ import annotations

from findwall.model.claims import Claim, listed
from findwall.report.words import MORE_THAN_ONCE, Words, fill, number, per_step, spoken
from findwall.report.words.amounts import NAMED, at
from findwall.units import format_bytes

LONGEST_CHARS = 230  # what a person reads; two waits that take more become one
_PLAN = "call `gc.freeze()` after set-up, then `gc.disable()` and `gc.collect()` every n steps"


def _bmm(claim: Claim) -> str:
    return fill(
        "Stack the operands and multiply them at once (`torch.bmm`): {products:,.0f} small products per step "
        "come in rows of {rounds} alike, {op} {shapes}{where}.",
        claim,
        where=at(claim),
    )


def _forward_work(claim: Claim) -> str:
    function = claim.names["function"]
    return fill(
        "{spent_ms:per_step} ({step_share:share}) is forward work without gradients{where}",
        claim,
        where=at(claim, ", at ", f" in {function}" if function else ""),
    )


def _with_place(template: str) -> Words:
    return lambda claim: fill(template, claim, where=at(claim))


def _moved(template: str) -> Words:
    def words(claim: Claim) -> str:
        saved, copied = number(claim, "saving_ms"), number(claim, "copied_bytes")
        also = f"; writing checkpoints takes {per_step(saved)}" if saved else ""
        if copied:
            also += f"; {format_bytes(copied)} per step is copied out, as for a checkpoint"
        waits = ": the device waits {waits_ms:per_step} while no op runs{where}{also}."
        return fill(template + waits, claim, where=at(claim), also=also)

    return words


def _instead(what: str) -> Words:
    def words(claim: Claim) -> str:
        within = claim.names["within"]
        times = " ({times:,.0f} times per step)" if number(claim, "times") >= MORE_THAN_ONCE else ""
        return fill(
            "{op}{within_text}{where}" + times + ": " + what,
            claim,
            within_text=f" under {within}" if within else "",
            where=at(claim),
        )

    return words


def _waits(claim: Claim) -> str:
    named = [spoken(part) for part in claim.parts[:NAMED]]
    both = "; ".join(named)
    return f"{both if len(both) <= LONGEST_CHARS else named[0]}."


def _one_call(claim: Claim) -> str:
    function = claim.names["function"]
    where = at(claim, ", likely at ", f" in {function}") if function else at(claim)
    rounds = ": no round needs another, and they issue"
    if not claim.figures.get("apart"):
        rounds = ", if no round needs the one before: such rounds issue"
    return fill(
        "Do in one call on a larger tensor what a Python loop does in {rounds} rounds of {body} small {ops} "
        f"({{first}}{{where}}){rounds} {{issued:,.0f}} {{pieces}} per step.",
        claim,
        ops="op" if claim.figures["body"] == 1 else "ops",
        first=claim.names["op"] or "the same op",
        where=where,
    )


def _all_rounds(claim: Claim) -> str:
    on_cores = claim.figures.get("on_cores")
    return fill(
        "Do all {rounds:,.0f} rounds of the loop at once{device}{where}, with a mask of what is left "
        "(boxes: the whole table of overlaps, or `torchvision.ops.nms`): each round {asks} {op} {how}, and "
        "they issue {issued:,.0f} {pieces} per step.",
        claim,
        device="" if on_cores else " on the device",
        asks="asks" if on_cores else "waits for",
        how="how much that is" if on_cores else "to say how much that is",
        where=at(claim),
    )


def _gradients(claim: Claim) -> str:
    return fill(
        "Take one gradient, of the sum, instead of {rounds} through one forward pass{where}: "
        "`torch.autograd.grad(y.sum(), x)` where each `y[i]` has its own part of `x`, else "
        "`is_grads_batched=True`. They issue {issued:,.0f} {pieces} per step.",
        claim,
        where=at(claim),
    )


def _seen_at(claim: Claim) -> str:
    return fill(
        "If the host loops at {lines}, do it with ops on whole arrays or tensors: it stood on such lines, "
        "with no library under them, in {samples_share:share} of the samples; the device waits "
        "{waits_ms:per_step}.",
        claim,
        lines=" and ".join(map(spoken, claim.parts[:NAMED])),
    )


def _shorter_calls(claim: Claim) -> str:
    lines = listed([spoken(part) for part in claim.parts[:NAMED]])
    each = "it" if len(claim.parts) == 1 else "each"
    return (
        f"Have the calls at {lines} do less: a step comes to {each} once, in no loop. Give them fewer "
        "numbers, keep what stays the same, or do it ahead of the step in a worker."
    )


def _more_hardware(claim: Claim) -> str:
    return fill(
        "Use a {device_word} with more {what}, or more of them: {roof_share:share} of the step is at the "
        "roof of {which}.",
        claim,
        what="FLOP/s" if claim.figures["more"] == "compute" else "memory bandwidth",
        which=claim.names["device"] or "this device",
    )


_COPY_LATER = "copy with non_blocking=True into pinned memory and read it a step later"
WORDS: dict[str, Words] = {
    "batch-small-ops/hidden": ("the device hardly waits for launches, nor are its kernels too small for it"),
    "batch-small-ops/bmm": _bmm,
    "batch-small-ops/one-model-call": (
        "Run the model once on a batch instead of {calls} times per step, if no call needs the result of the "
        "one before: the host issues about {issued:,.0f} {pieces} per step, and the device waits "
        "{waits_ms:per_step} for them."
    ),
    "batch-small-ops/one-model": (
        "Train the models of a step as one: stack their parameters (`torch.func.stack_module_state`), call "
        "them with `torch.vmap` or `bmm`, and give all to one optimizer. One steps {updates:,.0f} times per "
        "step, and the host issues {issued:,.0f} {pieces}, for which the device waits {waits_ms:ms}."
    ),
    "batch-small-ops/none-again": "no small op is called again and again on the same shapes",
    "better-hardware/more": _more_hardware,
    "smaller-model/less-work": (
        "Do fewer FLOPs or move fewer bytes (packed sequences, a smaller or sparser model, fewer tokens): "
        "{roof_share:share} of the step is at the roof."
    ),
    "larger-batch/loop-over-samples": (
        "a Python loop goes over the samples, so that a larger batch has more rounds"
    ),
    "larger-batch/same-launches": (
        "Raise the batch: the host issues about {issued:,.0f} {pieces} per step whatever its size, unless a "
        "loop goes over it, and the {device_word} is busy only {busy_share:share} of that time. Samples per "
        "second rise; the step gets no shorter."
    ),
    "larger-batch/shared-reads": (
        "Raise the batch: requests share each read of the weights. Requests per second rise; the step gets "
        "no shorter."
    ),
    "larger-batch/busy": (
        "the device is busy {busy_share:share} of the step, so a larger batch takes proportionally longer"
    ),
    "without-gradients/forward-work": _forward_work,
    "no-unused-gradients/none": "no gradient is worked out that nobody takes away",
    "no-unused-gradients/found": _with_place(
        "Leave out gradients that no optimizer uses: `.detach()` what a loss is given and does not train, "
        "`requires_grad_(False)` for what is never trained, or `torch.no_grad()` around its call{where}. "
        "[[{parameters:,} parameters get gradients that are only added up (if no optimizer steps them now "
        "and then). ]]Their backward pass takes {spent_ms:per_step}."
    ),
    "no-unread-results/none": "nothing is computed that nobody reads, as far as that was seen",
    "no-unread-results/found": _with_place(
        "Leave out what nobody reads{where}, or compute it only in the steps that use it: [[{ops:,} ops take "
        "||it takes ]]{spent_ms:per_step}."
    ),
    "convert-at-once/none": "no tensor is made of Python's numbers one by one",
    "convert-at-once/little": "making tensors of Python's numbers takes only {spent_ms:per_step}",
    "convert-at-once/one-by-one": _with_place(
        "Make the tensor of one array (`torch.from_numpy(np.stack(x))`){where}: `torch.tensor` converts "
        "[[{numbers:,.0f}||all]] numbers one by one, for which the device waits {waits_ms:per_step}."
    ),
    "reuse-results/none": "nothing is computed twice, as far as that was seen",
    "reuse-results/found": _with_place(
        "Keep what was computed before{where} instead of computing it again: [[{ops:,} ops "
        "take ||that takes ]]{spent_ms:per_step}."
    ),
    "one-backward/none": "no backward pass goes where an earlier one went, as far as that was seen",
    "one-backward/found": _with_place(
        "Add the losses up and call `backward()` once{where}: the gradients of several passes through one "
        "forward pass are only added up, and going through what they share again takes {spent_ms:per_step}."
    ),
    "compute-once/none": "nothing is computed alike in every step, as far as that was seen",
    "compute-once/found": _with_place(
        "Compute before the loop what is the same in every step{where}, and keep it: [[{ops:,} ops take "
        "||that takes ]]{spent_ms:per_step}."
    ),
    "kv-cache/none": "no pass works on what an earlier one has worked on, as far as that was seen",
    "kv-cache/found": _with_place(
        "Keep keys and values of earlier tokens, and call the model with the new ones alone[[ instead of all "
        "that {pick} puts together]]: [[{left_share:share} of {spent_ms:per_step} is for new tokens"
        "||it takes {spent_ms:per_step}]]{where}."
    ),
    "debug-off/none": "nothing that is there to find faults was seen to be on",
    "debug-off/anomaly": (
        "Switch autograd's anomaly mode off (`torch.autograd.set_detect_anomaly(False)`): it looks for NaN "
        "{checks:,.0f} times per step, and keeps a traceback of every op."
    ),
    "debug-off/blocking": (
        "Unset CUDA_LAUNCH_BLOCKING (HIP_LAUNCH_BLOCKING): with it the host waits for every kernel."
    ),
    "debug-off/deterministic": (
        "Allow other than deterministic algorithms (`torch.use_deterministic_algorithms(False)`, "
        "`torch.backends.cudnn.deterministic = False`) where the same bits from run to run are not needed."
    ),
    "less-padding/none": "no batch was seen to be filled up behind its longest sample",
    "less-padding/found": _with_place(
        "Fill a batch up to its longest sample, not to a fixed length[[ ({pick})]]: [[{left_share:share} of "
        "{spent_ms:per_step}{where} is for places that any sample uses||it takes {spent_ms:per_step}]]."
    ),
    "fewer-rows/none": "no rows are worked on that are thrown away or repeated, as far as that was seen",
    "fewer-rows/dropped": _with_place(
        "Pick what is needed[[ ({pick})]] before the work that is done for all of it{where}: "
        "[[{left_share:share} of its {spent_ms:per_step} is for rows that anybody reads"
        "||it takes {spent_ms:per_step}]]."
    ),
    "fewer-rows/repeated": _with_place(
        "Do the work on each row once{where}, and fetch or expand the results[[ instead of the rows "
        "({pick})]]: [[{left_share:share} of its {spent_ms:per_step} would be left"
        "||it takes {spent_ms:per_step}]]."
    ),
    "evaluate-less-often/none": "hardly any of the step is forward work without gradients",
    "evaluate-less-often/needed": "what runs without gradients flows into the loss",
    "evaluate-less-often/now-and-then": (
        "The model is evaluated[[ in 1 step in {every:,}]]: such a step takes {long_ms:ms}, and the "
        "evaluations take {spent_ms:ms} of the mean step ({step_share:share}). Evaluate every n steps, or on "
        "a part of the data."
    ),
    "evaluate-less-often/looked-at": _with_place(
        "Work out every n steps what is only looked at{where}: statistics of every step, which nothing that "
        "is trained needs, take {spent_ms:per_step}. Keep a number that the job decides by."
    ),
    "evaluate-less-often/evaluates": (
        "{parts[0]}: if it is an evaluation, run it every n steps; keep what training uses."
    ),
    "evaluate-less-often/may-evaluate": (
        "{parts[0]}: if it is an evaluation, run it every n steps; keep a teacher, a target network or a "
        "rollout."
    ),
    "freeze-gc/asked": (
        "Take `gc.collect()` at {places[0]} out of the loop, or call it every n steps: the device waits "
        "{waits_ms:per_step} for collections."
    ),
    "freeze-gc/plan": f"C{_PLAN[1:]}: the device waits {{waits_ms:per_step}} for collections.",
    "freeze-gc/may-be": (
        "If the garbage collector is to blame (`findwall run` shows it, a trace without stacks does not), "
        f"{_PLAN}."
    ),
    "freeze-gc/little": "the collector takes {spent_ms:per_step}",
    "freeze-gc/none-seen": "no collector pause was seen",
    "freeze-gc/saves-instead": (
        "the long host work comes with a large copy off the device, so it saves something"
    ),
    "move-io-off-step/none": "the host does no long work of its own in the step",
    "move-io-off-step/at-ops": (
        "the host was seen where ops run, not at work of its own that could be moved"
    ),
    "move-io-off-step/batches": "the host's Python makes batches, which the step needs",
    "move-io-off-step/launching-loop": "the Python in the step is that of a loop which launches its ops",
    "move-io-off-step/another-process": _moved(
        "Do it every n steps or in another process (a thread that runs Python holds the interpreter)"
    ),
    "move-io-off-step/thread": _moved(
        "Move logging, saving or other Python work to a thread, or do it every n steps (checkpoints: "
        "torch.distributed.checkpoint.async_save)"
    ),
    "raise-clocks/check": (
        "Run `nvidia-smi -q -d CLOCK,PERFORMANCE`, then check cooling, power limit (-pl) and locked clocks "
        "(-rgc): low clocks cost {lost_ms:per_step}."
    ),
    "raise-clocks/unread": "nobody read the clocks: `findwall run` samples them where the driver lets it",
    "raise-clocks/usual": "the card held its usual clocks under load",
    "remove-sync/never-dry": "the device never runs dry because of a synchronisation",
    "remove-sync/none": "there is no synchronisation in the step",
    "remove-sync/unnamed": (
        "Keep device values on the device: it waits {waits_ms:per_step} because of synchronisations."
    ),
    "remove-sync/named": _waits,
    "remove-sync/keep": _instead("keep the value on the device and read it every n steps"),
    "remove-sync/where": _instead("use torch.where instead of `if` on a device value, or test every n steps"),
    "remove-sync/mask": _instead("work with the mask (torch.where) instead of its indices"),
    "remove-sync/fixed-size": _instead("give it a fixed size, or do it outside the step"),
    "remove-sync/copy-later": _instead(_COPY_LATER),
    "remove-sync/synchronize": _instead("drop the explicit synchronize (CUDA events can do the timing)"),
    "remove-sync/in-anomaly-mode": (
        "the waits are those of autograd's anomaly mode, which asks {times:times} per step: switch it off"
    ),
    "remove-sync/in-routines": (
        "routines of linear algebra wait {times:,.0f} times per step themselves: another routine may not"
    ),
    "remove-sync/in-rounds": "the host goes by the sizes it waits for {times:,.0f} times per step: only the "
    "whole loop can be done on the device",
    "remove-sync/move": _instead("move it out of the step, or do it every n steps"),
    "loop-on-device/rounds": _all_rounds,
    "loop-on-device/none": "no loop asks the device for sizes round after round",
    "loop-on-device/multiplies": "each round of the loop multiplies matrices, which takes work of its own",
    "loop-on-device/few": "the rounds that ask for sizes launch little of the step",
    "shorter-host-calls/none": "the host does no long work of its own in the step",
    "shorter-host-calls/unseen": "no line was seen on which the host works long in one call per step",
    "shorter-host-calls/at": _shorter_calls,
    "call/of": "{places[0]} ({function}, about {ms:ms})",
    "vectorise-loop/one-call": _one_call,
    "vectorise-loop/gradients": _gradients,
    "vectorise-loop/none": "no loop of Python keeps the device waiting",
    "vectorise-loop/called-often": (
        "Replace the loop that calls {function} ({places[0]}) {times:,.0f} times per step by ops on whole "
        "arrays or tensors: the device waits {waits_ms:per_step} for Python."
    ),
    "vectorise-loop/unseen": "nobody saw which line the host stood on: `findwall run` or with_stack=True",
    "vectorise-loop/in-libraries": "the host was seen inside libraries, not in loops of its own",
    "vectorise-loop/no-loop": "the lines on which the host was seen stand in no loop within the step",
    "vectorise-loop/in-ops": "the host computes inside single ops, in no loop of Python",
    "vectorise-loop/seen-at": _seen_at,
}
