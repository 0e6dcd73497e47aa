"""The page that a person opens: one file that needs nothing else and asks nobody for anything."""

from __future__ import annotations

from findwall.report.page.assemble import framed, to_page

__all__ = ["framed", "to_page"]
