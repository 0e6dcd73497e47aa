"""Whether a job evaluates just now, by the modes that its models are in.

A model as a whole is in training mode while it trains, and in evaluation mode while it is evaluated; parts of
it may be in evaluation mode all the time (frozen norms), and some jobs train in evaluation mode, or never
leave training mode. So what counts are models that were seen to train in training mode, and all of what the
job's optimizers change.
"""

from __future__ import annotations

import contextlib
import weakref
from typing import Any

from findwall.apply.new_objects import after_made
from findwall.apply.roots import roots


class Modes:
    """Looks at a job's optimizers as they are made and at its models as they are first called; after that it
    looks only when it is asked."""

    def __init__(self, torch: Any) -> None:
        self._torch = torch
        self._optimizers: weakref.WeakSet[Any] = weakref.WeakSet()
        self._models: weakref.WeakSet[Any] = weakref.WeakSet()  # that train in training mode
        self.has_optimizer = False

    def watch(self) -> None:
        after_made("optimizers and modes", self._torch.optim.Optimizer, self._note_optimizer)
        roots(self._torch).tell(self._note_model)

    def _note_optimizer(self, optimizer: Any) -> None:
        self.has_optimizer = True
        with contextlib.suppress(Exception):  # a look: it may not break the job
            self._optimizers.add(optimizer)

    def _note_model(self, model: Any, _args: tuple[Any, ...]) -> None:
        """One that is called without gradients first says nothing of how it is trained."""
        if self._torch.is_grad_enabled() and model.training:
            self._models.add(model)

    @property
    def evaluates(self) -> bool:
        """Whether all that the job trains is in evaluation mode, though it was trained in training mode."""
        with contextlib.suppress(Exception):  # optimizers and models of the job's own classes: a look
            groups = [group for optimizer in self._optimizers for group in optimizer.param_groups]
            trained = {id(one) for group in groups for one in group["params"] if one.requires_grad}
            parts = [part for model in self._models for part in model.modules() if not part.training]
            return bool(trained) and trained <= {id(one) for part in parts for one in part.parameters(False)}
        return False
