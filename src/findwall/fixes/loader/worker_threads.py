"""The workers of a live loader on one thread each, and whether their batches would have used more."""

from __future__ import annotations

import functools
from time import process_time_ns, thread_time_ns
from typing import Any

from findwall.apply.live_threads import on_one_thread
from findwall.fixes.loader.live_loaders import set_on
from findwall.model.catalogue import FAIR_PART


class OneThreadEach:
    """The first worker makes its first batch as it would without this: that shows what its libraries do."""

    def __init__(self, torch: Any, loader: Any) -> None:
        # Workers are forked here, and share this with the training process.
        self._seen = torch.multiprocessing.get_context("fork").Value("b", 0, lock=False)
        self._collate, self._looks = loader.collate_fn, False
        if loader.worker_init_fn is None:
            set_on(loader, worker_init_fn=self._begin, collate_fn=self._made)
        else:  # it may have chosen a number itself, which stands
            set_on(loader, worker_init_fn=functools.partial(on_one_thread, loader.worker_init_fn))

    @property
    def would_use_more(self) -> bool:
        return bool(self._seen.value)

    def _begin(self, worker: int) -> None:
        self._looks = worker == 0
        if not self._looks:
            on_one_thread(None, worker)

    def _made(self, samples: Any) -> Any:
        batch = self._collate(samples)
        if self._looks:
            self._looks = False
            self._seen.value |= process_time_ns() > (1.0 + FAIR_PART) * thread_time_ns()
            on_one_thread(None, 0)
        return batch
