"""The paper, end to end: its data sets, networks, methods, tables and figures, from result files that are kept."""

from gossamer.paper.experiments import EXPERIMENTS, Report, Request, Watcher
from gossamer.paper.page import fill_page, filled
from gossamer.paper.runner import Place

__all__ = ["EXPERIMENTS", "Place", "Report", "Request", "Watcher", "fill_page", "filled"]
