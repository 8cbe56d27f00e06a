"""Reproduction of the paper: its tables and figures from stored result files, and the trainings behind them."""

__all__ = ["EXPERIMENTS"]

# The experiments by name: the module of each, and its attribute in it. Modules are imported on demand, because figures
# need matplotlib, trainings need torch, and `gossamer --help` needs only the names.
EXPERIMENTS: dict[str, tuple[str, str]] = {
    "table": ("comparison", "TABLE_EXPERIMENT"),
    "plain": ("comparison", "PLAIN_EXPERIMENT"),
    "boxplots": ("boxplots", "EXPERIMENT"),
    "tradeoff": ("tradeoff", "EXPERIMENT"),
    "convergence": ("convergence", "EXPERIMENT"),
    "filters": ("filters", "EXPERIMENT"),
    "effect-of-a": ("effect_of_a", "EXPERIMENT"),
    "interpretation": ("interpretation", "EXPERIMENT"),
    "contours": ("contours", "EXPERIMENT"),
    "ablation": ("ablation", "EXPERIMENT"),
    "references": ("references", "EXPERIMENT"),
}
