"""The page that a person opens: one file that needs nothing else and asks nobody for anything."""

from __future__ import annotations

from findwall.report.page.comparison_page import compared_page
from findwall.report.page.whole_page import framed, to_page

__all__ = ["compared_page", "framed", "to_page"]
