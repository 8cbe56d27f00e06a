"""The paper, end to end: its data sets, networks, methods, tables and figures, from result files that are kept."""

from gossamer_lab.paper.experiments import EXPERIMENTS, SEEDS, Report, Request, Watcher
from gossamer_lab.paper.page import fill_page, filled
from gossamer_lab.paper.runner import LackingError, Place

__all__ = ["EXPERIMENTS", "SEEDS", "LackingError", "Place", "Report", "Request", "Watcher", "fill_page", "filled"]
