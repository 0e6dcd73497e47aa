"""Arguments of a loader, set in the call that makes it."""

from __future__ import annotations

import inspect
from pathlib import Path

from findwall.apply.live_threads import one_thread_each
from findwall.model.applied import Place
from findwall.patches import NoPatch
from findwall.patches.editor import Editor

INIT = "worker_init_fn"
SHUFFLES = "shuffles"  # a place: its loader draws the order of its samples
THREADED = "threaded"  # a place: several threads would make a batch in each of its loader's workers


def set_in_loader(editor: Editor, place: Place, **values: str) -> None:
    """In the job's call, or by the same names in what transformers takes."""
    if not place.library:
        _refuse_shared(editor, place, values)
    trainer = {f"dataloader_{name}": value for name, value in values.items()}
    changes_order = "persistent_workers" in values and any(
        one.spots == place.spots for one in editor.some(SHUFFLES)
    )
    if changes_order and editor.written(place, "persistent_workers") is not True:
        editor.remark(
            "With persistent_workers=True the shuffled order is another one from the second epoch on: torch "
            "draws one number less an epoch."
        )
    editor.set_arguments(place, {"transformers": trainer}, **values)


def _refuse_shared(editor: Editor, place: Place, values: dict[str, str]) -> None:
    """The trial left the other loaders that this call makes as they were."""
    here = place.spots[0]
    if any(one.spots[0] == here for one in editor.some("beside")):
        listed = ", ".join(f"{name}={value}" for name, value in values.items())
        raise NoPatch(
            f"Pass `{listed}` only for the loader that feeds the steps: line {here.line} of "
            f"{Path(here.file).name} makes others too."
        )


def use_one_thread(editor: Editor, place: Place) -> None:
    """In each worker, by the same code that did it in the trial, where that changed anything."""
    if not any(one.spots == place.spots for one in editor.some(THREADED)):
        return
    if place.library:
        editor.remark(
            "Set OMP_NUM_THREADS=1 and OPENBLAS_NUM_THREADS=1 before the start if NumPy makes the samples: "
            "the workers of the trial used one thread each."
        )
    elif INIT in place.given or any(one.arg == INIT for one in editor.call(place.spots[0]).keywords):
        editor.remark(
            f"In {INIT}, limit the libraries that make samples to one thread "
            "(`threadpoolctl.threadpool_limits(1)`): the workers of the trial used one each."
        )
    else:
        editor.set_arguments(place, worker_init_fn=one_thread_each.__name__)
        edits = editor.file(place.spots[0].file)
        edits.at_start("\n" + inspect.getsource(one_thread_each).rstrip())
        if (opencv := edits.source.name_of("cv2")) is not None:
            editor.remark(f"Call `{opencv}.setNumThreads(0)` in one_thread_each, as the trial did.")
