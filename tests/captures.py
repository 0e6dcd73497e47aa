"""Where recorded traces lie: a few in the project, more beside it (optional: tests that need those skip)."""

from __future__ import annotations

from pathlib import Path

FIXTURES = Path(__file__).parent / "fixtures"
SHARED = Path(__file__).resolve().parents[2] / "shared"
