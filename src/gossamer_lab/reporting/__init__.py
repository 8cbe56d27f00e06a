"""Figures and pages, made from the files of runs alone, so that they can be made again."""

from gossamer_lab.reporting.figures import summary_figure

__all__ = ["summary_figure"]
