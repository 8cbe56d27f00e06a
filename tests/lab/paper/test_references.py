from __future__ import annotations

from gossamer_lab.paper.criteria import MostAccurateWithinSize
from gossamer_lab.paper.outcomes import Job, Outcome
from gossamer_lab.paper.published import REFERENCES
from gossamer_lab.paper.references import reference_searches, references_table
from gossamer_lab.training import RunResult, TrainingConfig


def outcome(key: str, seed: int, accuracy: float, network: str | None = None) -> Outcome:
    units = {"conv1.weight": 5, "hidden.weight": 16, "output.weight": 10}
    small = {"weights": 2_000, "macs": 30_000, "units": units}
    total = {"weights": 400_000, "nonzeros": 1_600, "macs": 2_000_000, "macs_nonzero": 40_000}
    measurement = {"total": total}
    result = RunResult("mnist", "integrated-tl1", 1e-4, seed, 1, accuracy, 0.004, 0.02, 1.0, measurement, small)
    return Outcome(Job(key, TrainingConfig("mnist", seed=seed, network=network)), result, ())


def markdown(outcomes: list[Outcome]) -> list[str]:
    return references_table(outcomes).markdown().splitlines()


def test_ours_stand_below_the_published() -> None:
    lines = markdown([outcome("ours, whole units", 1, 0.988), outcome("ours, whole units", 0, 0.99)])
    assert len(lines) == 2 + len(REFERENCES) + 1
    assert lines[2].startswith("| LeNet-5-Caffe | BC-GHS, published | 5-10-76-16 | 1.00 |")
    assert lines[-1] == (
        "| LeNet-5-Caffe | ours, structured | 5-16, 5-16 | 1.10 ± 0.14 | 0.400 ± 0.000 | 0.500 ± 0.000 "
        "| 1.50 ± 0.00 | 2 |"
    )
    perceptron = outcome("ours, single weights of the perceptron", 0, 0.99, "lenet-300-100")
    assert markdown([perceptron])[-1].startswith("| LeNet-300-100 | ours, unstructured |")


def test_the_size_of_the_reference_is_what_is_asked_for() -> None:
    searches = list(reference_searches().values())
    criteria = [one.criterion for one in searches]
    asked = [(0.067, 0.0064), (1.0, 0.0036), (1.0, 0.015)]
    for criterion, (flops, params) in zip(criteria, asked, strict=True):
        assert isinstance(criterion, MostAccurateWithinSize)
        assert 0.95 * flops <= criterion.flops_kept <= flops
        assert 0.95 * params <= criterion.params_kept <= params
    assert [one.configuration({"strength": 1e-3}).network for one in searches] == [None, None, "lenet-300-100"]
    assert all(len(one.strengths) == one.trials for one in searches)  # each strength is tried
