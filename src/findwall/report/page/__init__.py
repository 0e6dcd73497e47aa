"""The page that a person opens: one file that needs nothing else and asks nobody for anything."""

from __future__ import annotations

from findwall.report.page.assemble import framed, to_page
from findwall.report.page.compared import compared_page

__all__ = ["compared_page", "framed", "to_page"]
