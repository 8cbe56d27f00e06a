"""Fifty pixels of MNIST and Fashion-MNIST: `SparseClassifier(n_features=50)` beside LassoNet, in the same run.

    pip install lassonet==0.0.21
    OMP_NUM_THREADS=1 GOSSAMER_DATA=... python experiments/feature_selection/run.py [SEED ...] [--method gossamer]

Each seed draws 10,000 of the training images; all test images are used. What results.jsonl has already is not made
again, so the run can be stopped at any moment. The table in README.md is made from it.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path
from statistics import mean, stdev

import lassonet
import numpy as np
import torch
from torch import nn

from gossamer.adapters.sklearn import SparseClassifier
from gossamer_lab.data import load
from gossamer_lab.reporting.page import fill_page

FILE = Path(__file__).with_name("results.jsonl")
DATASETS = ("mnist", "fashion-mnist")
FEATURES, IMAGES, HIDDEN, EPOCHS = 50, 10_000, 100, 50
OURS, THEIRS, REFITTED = "gossamer", "LassoNet", "LassoNet's features, our training"
START = 20.0  # of the path; LassoNet finds a much smaller one, from which no feature leaves for hundreds of steps
PUBLISHED = {"mnist": 0.873, "fashion-mnist": 0.800}


def perceptron(features, outputs):
    return nn.Sequential(nn.Linear(features, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, outputs))


def images(dataset, seed):
    data = load(dataset)
    chosen = torch.randperm(len(data.train_labels), generator=torch.Generator().manual_seed(seed))[:IMAGES]
    return (
        data.train_images[chosen].flatten(1).numpy(),
        data.train_labels[chosen].numpy(),
        data.test_images.flatten(1).numpy(),
        data.test_labels.numpy(),
    )


def ours(train, labels, test, test_labels, seed, name):
    """No penalty on other weights after the selection: LassoNet has none either."""
    del name
    started = time.process_time()
    estimator = SparseClassifier(perceptron, n_features=FEATURES, strength=0.0, epochs=EPOCHS, random_state=seed).fit(
        train, labels
    )
    used = int((estimator.feature_importances_ > 0).sum())
    return [(OURS, used, estimator.score(test, test_labels), time.process_time() - started)]


class FewFeaturesError(Exception):
    """LassoNet's path has come down to the wanted number of features."""


class Path50(lassonet.LassoNetClassifier):
    """LassoNet whose path ends at FEATURES features, and goes on from a file after it was stopped at any moment."""

    def follow(self, train, labels, file):
        """Train along the path; returns the norms of the skip layer before its last step, and the CPU seconds."""
        self.saved = torch.load(file) if file.exists() else {"seconds": 0.0, "norms": torch.zeros(train.shape[1])}
        if "state" in self.saved:
            self.n_iters_init = 0
            self.lambda_start = self.saved["lambda"] * self.path_multiplier
        started = time.process_time() - self.saved["seconds"]

        def look(_, history):
            if not history:
                return
            if int(history[-1].selected.sum()) <= FEATURES:
                raise FewFeaturesError
            norms = self.model.skip.weight.detach().norm(dim=0)
            seconds = time.process_time() - started
            self.saved = {
                "state": self.model.state_dict(), "lambda": history[-1].lambda_ or self.lambda_start, "norms": norms,
                "seconds": seconds,
            }  # fmt: skip
            torch.save(self.saved, file)
            print(f"lambda {history[-1].lambda_:.3g}: {int((norms > 0).sum())} features, {seconds:.0f} s", flush=True)

        with warnings.catch_warnings(), suppress(FewFeaturesError):
            warnings.simplefilter("ignore")
            self.path(train, labels, callback=look)
        return self.saved["norms"], time.process_time() - started

    def _init_model(self, *data):
        super()._init_model(*data)
        if "state" in self.saved:
            self.model.load_state_dict(self.saved["state"])


def theirs(train, labels, test, test_labels, seed, name):
    """LassoNet where its path first has at most FEATURES features.

    Its selection, filled up to FEATURES by the largest of those that left in the last step, is trained by us as well.
    """
    model = Path50(hidden_dims=(HIDDEN,), lambda_start=START, random_state=seed, verbose=0)
    norms, seconds = model.follow(train, labels, FILE.with_name(f"lassonet-{name}.pt"))
    left = model.model.input_mask()
    accuracy = float(np.mean(model.predict(test) == test_labels))
    filled = torch.argsort(left * (norms.max() + 1) + norms, descending=True)[:FEATURES].numpy()
    started = time.process_time()
    refitted = SparseClassifier(perceptron, strength=0.0, epochs=EPOCHS, random_state=seed)
    refitted.fit(train[:, filled], labels)
    return [
        (THEIRS, int(left.sum()), accuracy, seconds),
        (REFITTED, FEATURES, refitted.score(test[:, filled], test_labels), seconds + time.process_time() - started),
    ]


def results():
    return [json.loads(line) for line in FILE.read_text().splitlines()] if FILE.exists() else []


def add(dataset, seed, rows):
    versions = {name: version(name) for name in ("gossamer", "lassonet", "torch")}
    shared = {"dataset": dataset, "seed": seed, "images": IMAGES, "hidden": HIDDEN, "versions": versions}
    with FILE.open("a") as file:
        for method, features, accuracy, seconds in rows:
            found = {"method": method, "features": features, "accuracy": accuracy, "cpu_seconds": round(seconds, 1)}
            print(dataset, seed, found, flush=True)
            file.write(json.dumps(shared | found) + "\n")


def table():
    """The result file as a Markdown table."""
    lines = ["| data | method | seeds | features | test accuracy | CPU seconds | published |", "|" + " --- |" * 7]
    for dataset in DATASETS:
        for method in (OURS, THEIRS, REFITTED):
            rows = [row for row in results() if (row["dataset"], row["method"]) == (dataset, method)]
            if not rows:
                continue
            accuracies = [row["accuracy"] for row in rows]
            spread = f" ± {stdev(accuracies):.4f}" if len(rows) > 1 else ""
            features = " / ".join(sorted({str(row["features"]) for row in rows}))
            published = f"{PUBLISHED[dataset]:.3f}" if method == THEIRS else ""
            figures = f"{mean(accuracies):.4f}{spread} | {mean(row['cpu_seconds'] for row in rows):.0f}"
            lines.append(f"| {dataset} | {method} | {len(rows)} | {features} | {figures} | {published} |")
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("seeds", nargs="*", type=int, default=[0, 1, 2])
    parser.add_argument("--method", choices=(OURS, THEIRS), help="this one alone")
    options = parser.parse_args()
    for seed in options.seeds:
        for dataset in DATASETS:
            done = {row["method"] for row in results() if (row["dataset"], row["seed"]) == (dataset, seed)}
            for method, run in ((OURS, ours), (THEIRS, theirs)):
                if method not in done and options.method in (None, method):
                    add(dataset, seed, run(*images(dataset, seed), seed, f"{dataset}-{seed}"))
    fill_page(FILE.with_name("README.md"), lambda name: table())
    print(table())


if __name__ == "__main__":
    main()
