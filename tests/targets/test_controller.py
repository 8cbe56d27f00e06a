import math

import pytest

from gossamer.targets import Controller


def follow(controller, size, steps=500, first=1e-5):
    """Sizes and strengths of a plant: its size follows the strength with a lag of a fiftieth of the run."""
    sizes, strengths, now = [], [], 1000.0
    for step in range(1, steps + 1):
        progress = step / steps
        if progress < controller.start:
            continue
        if controller.strength == 0:
            controller.begin(first, progress, now)
        else:
            controller.update(progress, now)
        now += (size(controller.strength) - now) / (steps / 50)
        sizes.append(now)
        strengths.append(controller.strength)
    return sizes, strengths


@pytest.mark.parametrize("aim", [0.01, 0.05, 0.2])
@pytest.mark.parametrize("power", [0.7, 1.5])
@pytest.mark.parametrize("start", [1 / 30, 1, 10])
def test_the_size_settles_at_the_aim(aim, power, start):
    """Wherever the strength starts, within reason."""
    controller = Controller(aim=1000.0 * aim)
    needed = 1e-3 * (aim ** (-1 / power) - 1)
    sizes, strengths = follow(controller, lambda strength: 1000 / (1 + strength / 1e-3) ** power, first=start * needed)
    late = sizes[int(0.9 * len(sizes)) :]
    assert all(abs(size / controller.aim - 1) < 0.1 for size in late)
    assert strengths[-1] == pytest.approx(needed, rel=0.2)
    assert max(strengths[100:]) < 3 * needed  # the approach does not overshoot much


def test_the_plan_falls_fast_and_arrives_slowly():
    controller = Controller(aim=10.0, settled=0.5)
    controller.begin(1e-3, 0.1, 1000.0)
    assert math.exp(controller.planned(0.1)) == pytest.approx(1000)
    assert math.exp(controller.planned(0.3)) == pytest.approx(10 * 100**0.25)
    assert math.exp(controller.planned(0.5)) == math.exp(controller.planned(0.9)) == pytest.approx(10)


def test_an_empty_network_and_a_deaf_one_keep_the_strength_finite():
    for size in (0.0, 1000.0):
        controller = Controller(aim=10.0)
        _, strengths = follow(controller, lambda strength, size=size: size)
        assert all(0 < strength < math.inf for strength in strengths)


def test_the_strength_can_be_bounded():
    controller = Controller(aim=10.0)
    controller.begin(1e-3, 0.02, 1000.0, stronger=8.0)
    for step in range(100):
        controller.update(0.02 + step / 200, 1000.0)
    assert controller.strength == pytest.approx(8e-3)


def test_the_state_is_all_there_is():
    first, second = (Controller(aim=10.0) for _ in range(2))
    follow(first, lambda strength: 1000 / (1 + strength / 1e-3), steps=100)
    first.most = first.log_strength + 0.01
    second.load(first.state())
    for controller in (first, second):
        controller.update(1.1, 20.0)
    assert first == second
    assert first.bounded


def test_a_state_of_an_earlier_version_has_no_bound():
    old, new = Controller(aim=10.0), Controller(aim=10.0)
    new.begin(1e-3, 0.1, 100.0, stronger=8.0)
    new.load({name: value for name, value in old.state().items() if name != "most"})
    assert not new.bounded
