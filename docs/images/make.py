"""Draw the figures of docs/regularization.md (what strength, a and s do), docs/units.md and docs/native.md.

    python docs/images/make.py [FOLDER]      # writes the PNG files beside this file, or into FOLDER

`strength.png` is drawn from the committed result files in experiments/tradeoff, `density.png` from those in
benchmarks/results, the others from the library.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import torch
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter

import gossamer
from gossamer.penalties import TransformedL1
from gossamer_lab.bench.result import read_result
from gossamer_lab.reporting.style import METHODS, SHAPES, add_caption, log_percent, new_figure, save, tidy

HERE = Path(__file__).parent
RESULTS = HERE.parents[1] / "experiments" / "tradeoff"
DENSITY = HERE.parents[1] / "benchmarks" / "results" / "density.json"
COLOURS = ("#e69f00", "#3a87c8", "#006b4e", "#0b2545")
DASHES = (":", "--", "-.", "-")
_STEPS, _HELD = 600, 450  # of the training in unit.png


def draw_strength(path: Path) -> None:
    with new_figure(10.5, 6.4) as figure:
        panels = figure.subplots(2, 2, sharex="col")
        for column, (dataset, label) in enumerate((("mnist", "MNIST"), ("pendigits", "PENDIGITS"))):
            lines = (RESULTS / f"{dataset}.jsonl").read_text().splitlines()
            for method in ("l1", "itl"):
                runs = sorted(
                    (run["config"]["strength"], run["result"]["params_kept"], run["result"]["accuracy"])
                    for run in map(json.loads, lines)
                    if run["key"] == method
                )
                style = METHODS[method]
                strengths = [run[0] for run in runs]
                for row, values in enumerate(([100 * run[1] for run in runs], [100 * run[2] for run in runs])):
                    panels[row, column].plot(
                        strengths, values, color=style.colour, linestyle=style.line, marker=style.marker,
                        label={"l1": "l1", "itl": "integrated transformed l1"}[method],
                    )  # fmt: skip
            weights, accuracy = panels[:, column]
            weights.set(title=label, yscale="log", xscale="log", ylabel="weights kept (%), log scale")
            accuracy.set(xlabel="strength, log scale", ylabel="test accuracy (%)")
            log_percent(weights.yaxis)
            log_percent(accuracy.xaxis)
            accuracy.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:.0e}"))
            for axes in (weights, accuracy):
                tidy(axes)
        panels[0, 0].legend(frameon=False)
        add_caption(figure, "One training for each point. The accuracy axes do not begin at 0.")
        save(figure, path)


def draw_a(path: Path) -> None:
    weights = torch.linspace(0, 2, 2001, dtype=torch.float64)
    step = 0.1
    with new_figure(10.5, 4.2) as figure:
        value, prox = figure.subplots(1, 2)
        for a, colour, dash in zip((0.01, 0.1, 1.0, 100.0), COLOURS, DASHES, strict=True):
            penalty = TransformedL1(a)
            value.plot(weights, penalty.phi(weights), color=colour, linestyle=dash, label=f"a = {a:g}")
            prox.plot(weights, penalty.prox(weights, step), color=colour, linestyle=dash, label=f"a = {a:g}")
        prox.plot(weights, weights, color="#999999", linewidth=0.8, label="unchanged")
        value.set(title="Penalty", xlabel="|w|", ylabel="ρₐ(w)")
        prox.set(title=f"Weight after one proximal step of size {step:g}", xlabel="|w| before", ylabel="|w| after")
        for axes in (value, prox):
            tidy(axes)
            axes.legend(frameon=False)
        save(figure, path)


def draw_unit(path: Path) -> None:
    """The norms of the groups of a hidden layer while it trains, and how many of them are not zero."""
    torch.manual_seed(0)
    inputs = torch.randn(512, 16)
    labels = (inputs[:, 0] * inputs[:, 1] > 0).long() + (inputs[:, 2] > 0)
    model = torch.nn.Sequential(torch.nn.Linear(16, 24), torch.nn.ReLU(), torch.nn.Linear(24, 3))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    regularizer = gossamer.unit_tl1(model, strength=3e-3, balance=0.0, example=inputs[:1])
    handle = gossamer.attach(optimizer, regularizer, schedule=gossamer.warm_up(100))
    norms = []
    for step in range(_STEPS):
        if step == _HELD:
            handle.hold()
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(inputs), labels).backward()
        optimizer.step()
        incoming, outgoing = model[0].weight.detach(), model[2].weight.detach()
        norms.append((incoming.square().sum(1) + outgoing.square().sum(0)).sqrt())
    alive = (torch.stack(norms) > 0).sum(1)
    with new_figure(10.5, 4.2) as figure:
        units, counts = figure.subplots(1, 2)
        last = norms[-1]
        for unit, norm in enumerate(torch.stack(norms).T):
            units.plot(norm, color=COLOURS[1] if last[unit] > 0 else COLOURS[0], linewidth=1)
        units.plot([], color=COLOURS[1], label="stays")
        units.plot([], color=COLOURS[0], label="leaves")
        units.set(title="Norm of each unit's weights", xlabel="step", ylabel="norm", ylim=(0, None))
        counts.plot(alive, color=COLOURS[2], label="units alive")
        counts.set(title="Units that are not zero", xlabel="step", ylabel="of 24 units", ylim=(0, 25))
        for axes in (units, counts):
            axes.axvspan(_HELD, _STEPS, color="#999999", alpha=0.15, linewidth=0, label="zeros are held")
            tidy(axes)
            axes.legend(frameon=False)
        save(figure, path)


def draw_s(path: Path) -> None:
    depth = 6
    model = torch.nn.Sequential(*(torch.nn.Linear(4, 4) for _ in range(depth)))
    with new_figure(6.4, 4.0) as figure:
        axes: Axes = figure.subplots()
        for s, colour, dash in zip((0.0, 0.1, 0.3, 0.5), COLOURS, DASHES, strict=True):
            rules = gossamer.integrated_tl1(model, strength=1e-3, s=s).rules
            share = [rule.terms[0].coefficient for rule in rules]
            axes.plot(range(1, depth + 1), share, color=colour, linestyle=dash, marker="o", label=f"s = {s:g}")
        axes.set(
            xlabel="layer l, in order of execution", ylabel="μ, share of the element-wise term", ylim=(-0.05, 1.05)
        )
        tidy(axes)
        axes.legend(frameon=False)
        save(figure, path)


def draw_density(path: Path) -> None:
    rows = [row for row in read_result(DENSITY).rows if row["against"] == "ONNX Runtime"]
    layers = list(dict.fromkeys(row["layer"] for row in rows))
    densities = [column for column in rows[0] if column.endswith(" %")]
    percents = [float(column.removesuffix(" %")) for column in densities]
    with new_figure(10.5, 5.2) as figure:
        panels = figure.subplots(1, 2, sharey=True)
        for axes, batch in zip(panels, (1, 64), strict=True):
            for layer, style in zip(layers, SHAPES, strict=True):
                (row,) = [row for row in rows if (row["layer"], row["batch"]) == (layer, batch)]
                speedups = [row[column] for column in densities]
                axes.plot(
                    percents, speedups, color=style.colour, linestyle=style.line, marker=style.marker,
                    markersize=4, label=layer,
                )  # fmt: skip
            axes.plot(percents, [100 / percent for percent in percents], color="#999999", label="1 / density")
            axes.axhline(1, color="#999999", linewidth=0.8)
            axes.set(xscale="log", yscale="log", title=f"Batch of {batch}", xlabel="weights that are not zero (%)")
            log_percent(axes.xaxis)
            log_percent(axes.yaxis)
            tidy(axes)
        panels[0].set_ylabel("times faster than ONNX Runtime")
        panels[1].legend(frameon=False, fontsize=8.5)
        add_caption(figure, "Zeros at random places, one thread, the call from Python included.")
        save(figure, path)


def main() -> None:
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else HERE
    drawn = {
        "strength": draw_strength, "a": draw_a, "s": draw_s, "unit": draw_unit, "density": draw_density,
    }  # fmt: skip
    for name, draw in drawn.items():
        draw(folder / f"{name}.png")


if __name__ == "__main__":
    main()
