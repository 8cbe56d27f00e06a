"""Colours for light and dark, in one place: variables of the style sheet and templates of the charts.

Text has a contrast of at least 4.5 to its background, lines and bars at least 3. The colours of the series are told
apart with every common kind of colour vision; dashes and markers differ besides.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

__all__ = ["DARK", "GREY", "LIGHT", "NONZERO", "SHADE", "Theme"]

GREY = "#868e99"
"""For lines that belong to no series; readable on both backgrounds."""

SHADE = "rgba(134, 142, 153, 0.16)"
"""For areas behind the curves."""

NONZERO = "#2176c7"
"""For weights that are not zero, in histograms and patterns, on both backgrounds."""

_FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, sans-serif"


@dataclass(frozen=True)
class Theme:
    """The colours of the page: background, cards on it, text, secondary text, borders, links; and the series."""

    background: str
    surface: str
    text: str
    muted: str
    border: str
    accent: str
    warning: str
    series: tuple[str, ...]

    @property
    def variables(self) -> str:
        """Declarations for the style sheet."""
        single = [field.name for field in fields(self) if field.name != "series"]
        return " ".join(f"--{name}: {getattr(self, name)};" for name in single)

    @property
    def template(self) -> dict[str, Any]:
        """A Plotly template."""
        axis = {
            "gridcolor": self.border,
            "linecolor": self.border,
            "zeroline": False,
            "automargin": True,
            "title": {"font": {"size": 13, "color": self.muted}, "standoff": 10},
            "tickfont": {"color": self.muted},
        }
        return {
            "layout": {
                "font": {"family": _FONT, "size": 13, "color": self.text},
                "paper_bgcolor": "rgba(0, 0, 0, 0)",
                "plot_bgcolor": "rgba(0, 0, 0, 0)",
                "colorway": list(self.series),
                "hoverlabel": {
                    "bgcolor": self.surface,
                    "bordercolor": self.muted,
                    "font": {"family": _FONT, "color": self.text},
                    "align": "left",
                },
                "xaxis": axis,
                "yaxis": axis,
                "legend": {"orientation": "h", "x": 0, "y": 1.02, "yanchor": "bottom", "font": {"color": self.text}},
                "margin": {"l": 12, "r": 12, "t": 12, "b": 12},
                "dragmode": False,
            }
        }


LIGHT = Theme(
    background="#f6f7f9",
    surface="#ffffff",
    text="#1b2129",
    muted="#56606d",
    border="#dde1e7",
    accent="#0b5fa5",
    warning="#9a3c06",
    series=("#0b5fa5", "#c05a0a", "#6b7480", "#0b7d6b", "#8a4fae", "#a3820a"),
)
DARK = Theme(
    background="#0f1318",
    surface="#171c23",
    text="#e7ebf0",
    muted="#a5aeba",
    border="#2d3540",
    accent="#79bbf7",
    warning="#f5a15f",
    series=("#5fa8ee", "#ef9a4a", "#9aa4b1", "#3fbfa6", "#c493e6", "#d8bb4a"),
)
