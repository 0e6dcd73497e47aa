"""The words of fixes that make batches faster, or elsewhere."""

from __future__ import annotations

from findwall.model.claims import Claim
from findwall.report.words import Words, fill, number
from findwall.report.words.amounts import at, count_of


def _with_workers(claim: Claim) -> str:
    """ "num_workers=8, persistent_workers=True, prefetch_factor=4"; as many as cores without a number."""
    return fill(
        "num_workers={number}, persistent_workers=True, prefetch_factor={prefetch}",
        claim,
        number=claim.figures.get("workers", "os.cpu_count()"),
    )


def _if_threads(claim: Claim) -> str:
    """What workers must not do to each other, where nobody knows how samples are made."""
    unknown = "threads" in claim.figures and claim.figures.get("busy_cores") is None
    return " Where NumPy makes the samples, keep it on one thread in each worker." if unknown else ""


def _none_yet(claim: Claim) -> str:
    if claim.figures.get("busy_cores") is not None:
        return fill(
            "Use `DataLoader(…, {given})`, each worker on one thread (`threadpoolctl.threadpool_limits(1)` "
            "in `worker_init_fn`): without workers, {busy_cores:.1f} busy cores make each batch between two "
            "steps ({waits_ms:per_step}).",
            claim,
            given=_with_workers(claim),
        )
    return fill(
        "Use `DataLoader(…, {given})`: without workers, each batch is made between two steps "
        "({waits_ms:per_step}).{if_threads}",
        claim,
        given=_with_workers(claim),
        if_threads=_if_threads(claim),
    )


def _who(claim: Claim) -> tuple[str, str]:
    have = claim.figures["have"]
    if have == 1:
        return "the one worker", "is"
    return (f"the {have} workers" if have else "the workers"), "are"


def _more(claim: Claim) -> str:
    who, are = _who(claim)
    return fill(
        "Give the loader more workers ({given}): the device still waits {waits_ms:per_step} for {who} there "
        "{are}.{if_threads}",
        claim,
        if_threads=_if_threads(claim),
        given=_with_workers(claim),
        who=who,
        are=are,
    )


def _hardly_ahead(claim: Claim) -> str:
    who, are = _who(claim)
    return f"Give the loader more workers ({_with_workers(claim)}): {who} {are} hardly ahead of the step."


def _cheaper(claim: Claim) -> str:
    return fill(
        "Make the samples cheaper{where}: {waits_ms:per_step} goes by waiting for the loader. Do once what "
        "every epoch repeats (decode, tokenise), on whole arrays, and read shards (WebDataset, FFCV).",
        claim,
        where=at(claim, ", first at ", ", where the host was most often"),
    )


def _keep(claim: Claim) -> str:
    every = claim.figures["every"]
    return fill(
        "Use `DataLoader(…, persistent_workers=True)`: the workers restart in {often}, which takes "
        "{restart_ms:ms}, and the device waits {waits_ms:per_step} for them.",
        claim,
        often=f"1 step in {every}" if every else f"{100 * number(claim, 'steps_share'):.2g} % of the steps",
    )


def _in_loop(claim: Claim) -> str:
    return fill(
        "Send raw bytes and augment or normalise whole batches on the device (torchvision v2, Kornia): the "
        "device waits {waits_ms:per_step} while the host works{where}, most of it right before a batch is "
        "sent.",
        claim,
        where=at(claim),
    )


def _omp(claim: Claim) -> str:
    workers = int(number(claim, "workers"))
    return fill(
        "Set OMP_NUM_THREADS={threads} before the start ({who} on {cores} cores): the job's own threads keep "
        "{busy_cores:.1f} of them busy, its training thread waited for one for {in_line_share:share} of the "
        "time, and the device waits {waits_ms:per_step} for the host.",
        claim,
        who=f"{workers} workers" if workers > 1 else "one worker",
    )


def _few_threads(claim: Claim) -> str:
    threads = int(number(claim, "threads"))
    have = "one thread" if threads == 1 else count_of(threads, "thread")
    return f"torch's ops have {have} as it is, which leaves the others their cores"


WORDS: dict[str, Words] = {
    "loader/unseen": "the recording does not show whether the host waits for the loader",
    "loader/by-hand": "no DataLoader makes the batches, which could have workers",
    "loader/waits-little": "the device waits only {waits_ms:per_step} for the loader",
    "loader/computes": "tensor ops take {ops_share:share} of its time",
    "loader/workers-busy": "its {workers} workers keep {busy_cores:.1f} of {cores} cores busy",
    "device-side-preprocessing/on-cores": ("the job runs on the CPU, which prepares the batches as well"),
    "device-side-preprocessing/unknown-work": "the trace does not show whether the loader computes or reads",
    "device-side-preprocessing/uncounted": (
        "nobody counted the cores that the workers keep busy: `findwall run` does"
    ),
    "device-side-preprocessing/storage": (
        "its {workers} workers keep only {busy_cores:.1f} cores busy: they wait for storage"
    ),
    "device-side-preprocessing/in-loader": (
        "Decode, augment and normalise on the device (torchvision v2, Kornia, DALI), and send raw bytes: the "
        "device waits {waits_ms:per_step} for the loader, and {parts[0]}."
    ),
    "device-side-preprocessing/hidden": "the device hardly waits for batches that the host prepares",
    "device-side-preprocessing/no-batch": (
        "the host's own work does not end with a batch that is sent to the device"
    ),
    "device-side-preprocessing/in-loop": _in_loop,
    "lighter-samples/whole-batches": (
        "Fetch whole batches (`__getitems__` in the dataset, or a `BatchSampler` as sampler with "
        "batch_size=None): a sample takes {sample_us:.0f} us, most of it Python's own call and collation, "
        "and {waits_ms:per_step} goes by waiting for the loader."
    ),
    "lighter-samples/cheaper": _cheaper,
    "lighter-samples/by-hand": (
        "Do once, before the loop, what every epoch repeats for its samples (decode, resize, tokenise)"
        "[[, first at {places[0]}]], on whole arrays, or let a DataLoader's workers do it: "
        "{waits_ms:per_step} goes by making batches between two steps."
    ),
    "loader-workers/only-start": (
        "the workers keep up once they run: the device waits only while they start again"
    ),
    "loader-workers/none-yet": _none_yet,
    "loader-workers/as-many-as-cores": "there are {have} workers for {cores} cores already",
    "loader-workers/no-core-left": (
        "a step and its batches share {cores} cores, which with workers takes {likely_ms:ms} or so for both, "
        "and {least_ms:ms} at best"
    ),
    "loader-workers/more": _more,
    "loader-workers/hardly-ahead": _hardly_ahead,
    "loader-workers/some": (
        "Let workers make batches ahead of the step (num_workers, persistent_workers=True, "
        "prefetch_factor={prefetch}): the device waits {waits_ms:per_step}."
    ),
    "loader-workers/enough": "there are {have} workers already",
    "omp-threads/uncounted": "nobody counted who keeps the cores busy: `findwall run` does",
    "omp-threads/shared": "several ranks share the cores, and nobody counted which has them",
    "omp-threads/no-workers": (
        "no loader has workers that could fight with the training process for the cores"
    ),
    "omp-threads/hardly-waits": "the training thread hardly ever waits for a core",
    "omp-threads/others": "it is not the job's own threads that keep the cores busy",
    "omp-threads/hidden": "the device does not wait for the host",
    "omp-threads/few": _few_threads,
    "omp-threads/set": _omp,
    "keep-freed-memory/on-gpu": "the work is done on the GPU, whose memory torch keeps itself",
    "keep-freed-memory/uncounted": "nobody counted the pages that the process was given: `findwall run` does",
    "keep-freed-memory/few": "it is given {pages:,.0f} new pages of memory a step, {spent_ms:per_step}",
    "keep-freed-memory/found": (
        "Start with `MALLOC_TRIM_THRESHOLD_=4294967295 MALLOC_MMAP_MAX_=0`: large tensors go back to the "
        "system when they are freed, and {pages:,.0f} pages a step are cleared for new ones, which takes "
        "{spent_ms:per_step} of the cores."
    ),
    "more-threads/on-gpu": "the work is done on the GPU",
    "more-threads/uncounted": "nobody counted how many cores the job uses: `findwall run` does",
    "more-threads/may-already": "the ops may use {threads} threads already, for {cores} cores",
    "more-threads/none-idle": "no core is idle: the ops keep {used_cores:.1f} of {cores} busy",
    "more-threads/all-cores": (
        "Call `torch.set_num_threads({cores})`, or set OMP_NUM_THREADS={cores} before the start: the ops "
        "keep {used_cores:.1f} of {cores} cores busy."
    ),
    "persistent-workers/few-steps": (
        "a few traced steps do not show how an epoch begins: `findwall run` does"
    ),
    "persistent-workers/no-workers": "the loader has no workers that could restart",
    "persistent-workers/none-restart": "no step was seen to wait for workers that start again",
    "persistent-workers/keep": _keep,
}
