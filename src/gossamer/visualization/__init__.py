"""The report of a network and its training as one HTML page; needs the extra `report`.

Data (`Page`, plain numbers) is separate from how it is drawn: `collect` makes it from a model, `write_page` writes it.
"""

from gossamer.visualization.collect import collect
from gossamer.visualization.data import Command, Epoch, Network, Page, Run, Series, Study
from gossamer.visualization.page import check_can_write, check_plotly, page_html, write_page
from gossamer.visualization.report import report

__all__ = [
    "Command",
    "Epoch",
    "Network",
    "Page",
    "Run",
    "Series",
    "Study",
    "check_can_write",
    "check_plotly",
    "collect",
    "page_html",
    "report",
    "write_page",
]
