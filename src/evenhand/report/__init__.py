"""Pages of an audit, a comparison, a search: each one HTML file that needs nothing else.

Charts are SVG, drawn when the file is written, so the page needs no charting script; `render` makes further pages.
"""

from evenhand.report.audit_page import write_comparison_report, write_report
from evenhand.report.render import Origin, render
from evenhand.report.scoreboard_page import scoreboard_markdown, scoreboard_rows, write_scoreboard_page
from evenhand.report.search_page import write_search_page

__all__ = [
    "Origin",
    "render",
    "scoreboard_markdown",
    "scoreboard_rows",
    "write_comparison_report",
    "write_report",
    "write_scoreboard_page",
    "write_search_page",
]
