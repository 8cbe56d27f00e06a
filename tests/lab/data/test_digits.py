from __future__ import annotations

import hashlib
import sys

import pytest
import torch

from gossamer.errors import GossamerError
from gossamer_lab.data import digits, load


def test_sizes_and_range() -> None:
    dataset = load("digits")
    assert dataset.input_shape == (1, 8, 8)
    assert (len(dataset.train_images), len(dataset.test_images), dataset.classes) == (1437, 360, 10)
    assert dataset.train_images.dtype == torch.float32
    assert (dataset.train_images.min(), dataset.train_images.max()) == (0, 1)


def test_every_class_gives_a_fifth_to_the_test() -> None:
    dataset = digits()
    in_test, in_all = dataset.test_labels.bincount(), dataset.train_labels.bincount() + dataset.test_labels.bincount()
    assert ((in_test / in_all - 0.2).abs() < 0.01).all()


def test_the_split_is_the_one_that_the_results_in_this_repository_were_made_with() -> None:
    content = digits().test_images.numpy().tobytes()
    assert hashlib.sha256(content).hexdigest() == "53d6a8c3d406e86d40aad5acd3374f1eed5131e403fad9d446ab12bfde56ba18"


def test_images_and_split_are_those_of_scikit_learn() -> None:
    from sklearn.datasets import load_digits
    from sklearn.model_selection import train_test_split

    pixels, labels = load_digits(return_X_y=True)
    parts = train_test_split(pixels / 16, labels, test_size=0.2, stratify=labels, random_state=0)
    train_images, test_images, train_labels, test_labels = map(torch.tensor, parts)
    dataset = digits()
    assert torch.equal(dataset.train_images.double().flatten(1), train_images)
    assert torch.equal(dataset.test_images.double().flatten(1), test_images)
    assert torch.equal(dataset.train_labels, train_labels)
    assert torch.equal(dataset.test_labels, test_labels)


def test_without_scikit_learn_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules[digits.__module__], "find_spec", lambda name: None)
    with pytest.raises(GossamerError, match=r"comes with scikit-learn\. Install it"):
        digits()


def test_an_unknown_name_is_answered_with_the_known_ones() -> None:
    with pytest.raises(GossamerError, match=r"Unknown data set 'digit'. Available: .*digits"):
        load("digit")
