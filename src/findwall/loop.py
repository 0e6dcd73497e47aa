"""A loop that is measured from inside, and has its verdict when that is there."""

from __future__ import annotations

import msgspec

from findwall.agent import measured_loop as loop
from findwall.model.claims import Claim
from findwall.model.measurement import DIAGNOSIS_FILE
from findwall.notebook import ShownDiagnosis


class measure(loop.measure):  # noqa: N801 - reads as a verb: `with findwall.measure() as m`
    __doc__ = loop.measure.__doc__

    @staticmethod
    def _speak(claim: Claim) -> str:
        from findwall.report.words import spoken  # a loop that ends well needs none of it

        return spoken(claim)

    @property
    def diagnosis(self) -> ShownDiagnosis | None:
        """The verdict, once it is there: at the latest when the loop has been left. None: there is none."""
        if self.folder is None:
            return None
        try:
            return msgspec.json.decode((self.folder / DIAGNOSIS_FILE).read_bytes(), type=ShownDiagnosis)
        except (OSError, msgspec.MsgspecError):
            return None
