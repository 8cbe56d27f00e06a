"""Benchmarks: candidates are timed interleaved in one process, and results are ratios."""

__all__ = ["BENCHMARKS", "RESUMABLE"]

# The benchmarks by name: the module, and the function in it that returns a `Result`. Modules are imported on demand,
# because `gossamer --help` needs only the names.
BENCHMARKS: dict[str, tuple[str, str]] = {
    "proximal-step": ("proximal_step", "proximal_step"),
    "training-step": ("training_step", "training_step"),
    "adaptive-step": ("adaptive_step", "adaptive_step"),
    "unit-step": ("unit_step", "unit_step"),
    "inference": ("inference", "inference"),
    "native": ("native", "native_networks"),
    "threads": ("threads", "two_threads"),
    "density": ("density", "density_sweep"),
    "shrink": ("shrink", "shrink_cost"),
    "whole-training": ("whole_training", "whole_training"),
    "scaling": ("scaling", "scaling"),
    "training-loop": ("training_loop", "training_loop"),
    "torch-compile": ("torch_compile", "torch_compile"),
}

# Those that take minutes and many measurements: they take a `journal`, and go on where they were interrupted.
RESUMABLE = ("native", "threads", "density")
