from __future__ import annotations

from dataclasses import replace

import pytest

from gossamer.visualization import Network, Page, Run
from gossamer.visualization.summary import alerts, key_figures, sentences


def test_the_words_are_the_counts(page: Page, network: Network) -> None:
    text = " ".join(sentences(page))
    total, kept = network.deployed.total, network.deployed
    assert "Test accuracy is 96.00%. For comparison: dense has 97.00% with 100.00% of the weights; l1 has" in text
    assert f"Of {total.weights:,} weights, {total.nonzeros:,} are not zero" in text
    assert f"as trained {network.trained.total.nonzeros:,}" in text
    assert f"{kept.params_kept:.2%}" in text
    assert network.removal is not None
    assert f"removes {network.removal.units_removed} of {network.removal.units} units" in text
    assert alerts(page) == []


def test_the_key_figures_are_the_counts(page: Page, network: Network) -> None:
    found = {figure.name: figure for figure in key_figures(page)}
    assert list(found) == ["Test accuracy", "Weights kept", "MACs kept", "Compression"]
    assert found["Test accuracy"].note == "dense network: 97.00%"
    assert found["Weights kept"].value == f"{network.deployed.params_kept:.2%}"
    dense, shrunk = (variant.file_bytes for variant in network.variants)
    assert dense is not None
    assert shrunk is not None
    assert found["Compression"].value == f"{dense / shrunk:.2f}×"


@pytest.mark.parametrize(("seconds", "ratio"), [(0.001, "2.00×"), (0.004, "0.50×")])
def test_a_slower_network_is_called_so(network: Network, seconds: float, ratio: str) -> None:
    forms = zip(network.variants, (0.002, seconds), strict=True)
    timed = replace(network, variants=tuple(replace(form, seconds={"1 input": taken}) for form, taken in forms))
    page = Page("t", network=timed)
    assert key_figures(page)[-1].value == ratio
    assert f"takes {1000 * seconds:.2f} ms instead of 2.00 ms for 1 input." in sentences(page)[-1]


def test_a_native_form_sets_the_speed_and_leaves_the_compression(network: Network) -> None:
    dense, shrunk = (replace(form, seconds={"1 input": 0.002}) for form in network.variants)
    native = replace(dense, name="native", file_bytes=None, seconds={"1 input": 0.0005})
    page = Page("t", network=replace(network, variants=(dense, shrunk, native)))
    found = {figure.name: figure.value for figure in key_figures(page)}
    assert found["Compression"] == {f.name: f.value for f in key_figures(Page("t", network=network))}["Compression"]
    assert found["Speed-up, 1 input"] == "4.00×"
    assert sentences(page)[-1].endswith(
        "A forward pass of the native network takes 500 µs instead of 2.00 ms for 1 input."
    )


def test_many_runs_are_left_to_the_chart() -> None:
    page = Page("t", runs=tuple(Run(str(n), 0.9, 0.1) for n in range(9)))
    assert sentences(page) == ["Accuracy is 90.00%."]
    assert sentences(Page("t", runs=(Run("a", None, 0.1),))) == []


def test_what_must_not_be_overlooked(network: Network) -> None:
    layer = network.layers[1]
    empty = replace(layer, trained=replace(layer.trained, nonzeros=0))
    broken = replace(network.histogram, nonfinite=3)
    bad = replace(network, layers=(empty,), histogram=broken, shrunk=None, removal=None, problem="it branches.")
    assert alerts(Page("t", network=bad)) == [
        "All weights are zero in: hidden. Train with a smaller strength.",
        "Weights that are infinite or not a number: 3. They count as non-zero and are in no histogram; "
        "the training has diverged.",
        "Shrinking is not possible, so no unit is removed: it branches.",
    ]
