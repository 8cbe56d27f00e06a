import math

import pytest

from gossamer import GossamerError, Reached, Target


@pytest.mark.parametrize("kind", ["params", "flops", "dense_params", "dense_flops"])
@pytest.mark.parametrize("value", [0, -0.1, 1.5, 5, math.nan, math.inf, True, "5%"])
def test_fractions_outside_of_0_to_1_are_refused(kind, value):
    with pytest.raises(GossamerError, match=rf"Target\({kind}=...\)` is a fraction above 0 and at most 1; received"):
        Target(**{kind: value})


@pytest.mark.parametrize("value", [0, -5, 0.5, math.nan, True, "64kB"])
def test_bytes_that_are_no_number_of_bytes_are_refused(value):
    with pytest.raises(GossamerError, match=r"Target\(bytes=...\)` must be a number of bytes"):
        Target(bytes=value)


@pytest.mark.parametrize("sizes", [{}, {"params": 0.1, "flops": 0.2}, {"params": 0.1, "bytes": 100}])
def test_exactly_one_size(sizes):
    with pytest.raises(GossamerError, match="takes one of params, flops, dense_params, dense_flops, bytes; received"):
        Target(**sizes)


def test_sizes_in_words():
    assert str(Target(params=0.05)) == "5.0000% of the weights"
    assert str(Target(bytes=65536)) == "65,536 bytes"
    assert Target(flops=0.2).asked(1000) == 200
    assert Target(bytes=500).asked(1000) == 500


def test_the_report_has_both_figures():
    reached = Reached(Target(params=0.1), full=1000, before=110, after=100, step=900, strength=1e-3)
    assert reached.cut == pytest.approx(1 / 11)
    assert "11.0000% of the weights" in str(reached)
    assert "removed 9.1% of that and left 10.0000%" in str(reached)
    assert Reached.from_dict(reached.to_dict()) == reached
    grown = Reached(Target(params=0.1), full=1000, before=80, after=100, step=900, strength=1e-3)
    assert "gave back 25.0% and left 10.0000%" in str(grown)
