"""Copy batches from pinned memory, without blocking.

What it does:
Ordinary memory can be paged out, so a copy from it goes through a staging buffer at the host's pace
(about 9 GB/s) and blocks the call. From pinned memory the device fetches the data itself, several
times faster, while the host goes on:

    DataLoader(…, pin_memory=True)
    batch = batch.to(device, non_blocking=True)

When it does not help:
Copies already come from pinned memory, or they run beside kernels and nobody waits for them.

Risk:
The system cannot use pinned memory for anything else; a very large amount slows other programs. A buffer
must not be overwritten before its copy is done.
"""

from __future__ import annotations

import ast
import weakref
from collections.abc import Mapping
from typing import Any

from findwall.apply.applying import Effect
from findwall.facts.memory_copies import at_link_rate, uploads
from findwall.fixes import Claim, Facts, Fix, Outcome, surely, unless
from findwall.fixes.loader.live_loaders import loaders, show_first_batch
from findwall.fixes.loader.loader_notes import note_others
from findwall.fixes.loader.loader_patch import set_in_loader
from findwall.fixes.loader.loader_refusals import COPIES_HIDDEN, COPIES_ON_CORES, COPIES_UNTOLD
from findwall.fixes.loader.pinned_copies import pinned_copies
from findwall.model.applied import Place
from findwall.patches import NoPatch
from findwall.patches.editor import Editor
from findwall.work.work_facts import WorkFacts


def use(facts: Facts) -> Outcome:
    figures = {"copied_bytes": uploads(facts).nbytes, "waits_ms": facts.spent_ms("copy-exposed")}
    return surely(Claim("pin-memory/pin", figures), at_link_rate(facts))


def _no_copies(facts: Facts) -> bool:
    return uploads(facts).ms <= 0 and facts.spent_ms("copy-exposed") <= 0


def _pinned_already(facts: WorkFacts) -> bool:
    return uploads(facts).told and not uploads(facts).pageable


def apply(torch: Any, effect: Effect) -> None:
    """The loaders that feed the steps pin their batches, what the job copies from pageable memory is pinned
    on the way, and neither blocks."""
    if not torch.cuda.is_available():
        effect.cannot("there is no GPU here to pin memory for")
        return
    pinned: list[bool] = []
    changed: list[Any] = []

    def pin(loader: Any) -> None:
        if loader.pin_memory:
            effect.missed("a loader pins its batches already")
            return
        loader.pin_memory = True
        changed.append(weakref.ref(loader))
        effect.keep(all_loaders.made_at(loader))

    def look(loader: Any, iterator: Any) -> None:
        if not pinned and any(known() is loader for known in changed):
            show_first_batch(iterator, effect.safely(see))

    def see(batch: Any) -> None:
        if _is_pinned(torch, batch):
            pinned.append(True)

    copies, all_loaders = pinned_copies(torch), loaders(torch)
    copies.note(effect)
    copies.pins = True
    all_loaders.tell(effect.safely(pin), effect.safely(look))
    note_others(torch, effect, "pin-memory")

    def told() -> str:
        seen = ("batches are pinned" if pinned else "", copies.told() if pinned or copies.pinned else "")
        if not any(seen):
            effect.missed("no loader and no large copy from pageable memory was seen")
        return "; ".join(filter(None, seen))

    effect.at_end(told)


def shows(torch: Any, effect: Effect) -> None:
    """Batches that the job's own loader pins."""
    if not torch.cuda.is_available():
        effect.cannot("there is no GPU here to pin memory for")
        return
    effect.missed("no pinned batch of a loader was seen")

    def see(batch: Any) -> None:
        if _is_pinned(torch, batch):
            effect.saw("batches are pinned")

    def look(loader: Any, iterator: Any) -> None:
        if loader.pin_memory and not effect.seen:
            show_first_batch(iterator, effect.safely(see))

    loaders(torch).tell(lambda _loader: None, effect.safely(look))


def _is_pinned(torch: Any, batch: Any) -> bool:
    """Whether any tensor of a batch is."""
    if isinstance(batch, torch.Tensor):
        return bool(batch.is_pinned())
    parts = batch.values() if isinstance(batch, Mapping) else batch if isinstance(batch, list | tuple) else ()
    return any(_is_pinned(torch, part) for part in parts)


def patch(editor: Editor) -> None:
    pageable = editor.some("pageable")
    for place in editor.some("loader") if pageable else editor.places("loader"):
        set_in_loader(editor, place, pin_memory="True")
    for place in [*editor.some("copy"), *pageable]:
        if not place.library:  # a library that copies pinned batches has its own way
            editor.set_arguments(place, non_blocking="True")
    for place in pageable:
        _pin_on_the_way(editor, place)


def _pin_on_the_way(editor: Editor, place: Place) -> None:
    """`x.to(device)` becomes `x.pin_memory().to(device)`."""
    if place.library:
        raise NoPatch(f"{place.library} copies it, not the job's own code")
    copied = editor.call(place.spots[0]).func
    if not isinstance(copied, ast.Attribute):
        raise NoPatch("the call does not show what it copies")
    edits = editor.file(place.spots[0].file)
    if not isinstance(copied.value, (ast.Name, ast.Attribute, ast.Call, ast.Subscript)):
        edits.enclose(copied.value)
    edits.append(copied.value, ".pin_memory()")


FIX = Fix(
    ("copy-exposed",),
    "safe",
    use,
    (
        COPIES_ON_CORES,
        unless("copies/none", _no_copies),
        unless("pin-memory/already", _pinned_already),
        COPIES_HIDDEN,
        COPIES_UNTOLD,
    ),
    tried=7,
    apply=apply,
    shows=shows,
    patch=patch,
)
