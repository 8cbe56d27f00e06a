"""The estimators are scikit-learn's, their networks are sparse, and a selection reads exactly the features it names."""

import numpy as np
import pytest
import torch
from sklearn.datasets import load_diabetes, load_digits, make_regression
from sklearn.feature_selection import SelectFromModel
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import check_estimator
from torch import nn

import gossamer
from gossamer import GossamerError
from gossamer.adapters.sklearn import SparseClassifier, SparseRegressor

BOTH = pytest.mark.parametrize("estimator", [SparseClassifier, SparseRegressor])


@BOTH
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.SkipTestWarning")
def test_the_checks_of_scikit_learn(estimator):
    results = check_estimator(estimator(epochs=20), on_skip=None)
    assert sum(result["status"] == "passed" for result in results) > 45


def digits():
    images, labels = load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(labels))
    images, labels = images[order] / 16, labels[order]
    return images[:1200], labels[:1200], images[1200:], labels[1200:]


def test_a_sparse_classifier():
    images, labels, test_images, test_labels = digits()
    estimator = SparseClassifier(strength=2e-3, random_state=0).fit(images, labels)
    weights = [parameter for parameter in estimator.network_.parameters() if parameter.dim() > 1]
    zeros = sum(int((weight == 0).sum()) for weight in weights) / sum(weight.numel() for weight in weights)
    assert estimator.sparsity_ == pytest.approx(zeros)
    assert 0.6 < estimator.sparsity_ < 0.95
    assert estimator.score(test_images, test_labels) > 0.95
    probabilities = estimator.predict_proba(test_images)
    assert np.array_equal(estimator.classes_[probabilities.argmax(1)], estimator.predict(test_images))

    small = estimator.shrink()
    x = torch.tensor(test_images)
    assert gossamer.measure(small, x[:1]).total.units < 110
    torch.testing.assert_close(small(x), estimator.network_(x))


@pytest.mark.parametrize(
    "target", [0.05, gossamer.Target(params=0.05), gossamer.Target(dense_flops=0.2)], ids=["share", "params", "flops"]
)
def test_a_target_is_reached(target):
    images, labels, test_images, test_labels = digits()
    estimator = SparseClassifier(target=target, epochs=20, random_state=0).fit(images, labels)
    size = 7400 * 0.05 if target != gossamer.Target(dense_flops=0.2) else 7400 * 0.2
    assert estimator.reached_.after <= size
    assert estimator.reached_.after > 0.95 * size
    if size == 7400 * 0.05:
        assert estimator.sparsity_ == pytest.approx(0.95, abs=2e-4)
    assert estimator.score(test_images, test_labels) > 0.85
    assert SparseClassifier(epochs=1).fit(images, labels).reached_ is None


def test_classes_can_have_names():
    images, labels, *_ = digits()
    names = np.array([f"digit {label}" for label in labels])
    estimator = SparseClassifier(epochs=5, random_state=0).fit(images, names)
    assert set(estimator.predict(images)) <= set(names)


def test_a_sparse_regressor():
    X, y = load_diabetes(return_X_y=True)
    estimator = make_pipeline(StandardScaler(), SparseRegressor(strength=5e-3, epochs=50, random_state=0)).fit(X, y)
    assert estimator.score(X, y) > 0.4
    assert estimator[-1].sparsity_ > 0.2
    # the unit of the target does not matter
    again = make_pipeline(StandardScaler(), SparseRegressor(strength=5e-3, epochs=50, random_state=0)).fit(X, 1000 * y)
    np.testing.assert_allclose(again.predict(X), 1000 * estimator.predict(X), rtol=1e-6)


def test_the_random_state_determines_everything():
    images, labels, *_ = digits()
    before = torch.random.get_rng_state()
    first, second, other = (
        SparseClassifier(epochs=2, random_state=seed).fit(images, labels).network_ for seed in (0, 0, 1)
    )
    assert torch.equal(torch.random.get_rng_state(), before)
    assert torch.equal(first[0].weight, second[0].weight)
    assert not torch.equal(first[0].weight, other[0].weight)


def test_in_a_grid_search():
    images, labels, *_ = digits()
    pipeline = make_pipeline(StandardScaler(), SparseClassifier(epochs=3, random_state=0))
    grid = {
        "sparseclassifier__strength": [1e-4, 1e-3],
        "sparseclassifier__regularizer": [gossamer.l1, gossamer.group_lasso],
    }
    search = GridSearchCV(pipeline, grid, cv=2).fit(images[:300], labels[:300])
    assert search.best_params_["sparseclassifier__regularizer"] in (gossamer.l1, gossamer.group_lasso)


class Convolutional(nn.Sequential):
    def __init__(self, features, outputs):
        assert (features, outputs) == (64, 10)
        super().__init__(
            nn.Unflatten(1, (1, 8, 8)), nn.Conv2d(1, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(288, outputs)
        )


@pytest.mark.parametrize("network", [Convolutional, Convolutional(64, 10)], ids=["class", "instance"])
def test_any_module_is_a_network(network):
    images, labels, *_ = digits()
    given = network.state_dict() if isinstance(network, nn.Module) else {}
    estimator = SparseClassifier(network, strength=1e-2, epochs=3, random_state=0).fit(images, labels)
    assert isinstance(estimator.network_, Convolutional)
    assert estimator.network_ is not network
    assert all(torch.equal(value, given[name]) for name, value in given.items())
    assert estimator.predict_proba(images).shape == (1200, 10)
    with pytest.raises(GossamerError, match=r"`1\.weight` has 1 of them, and the data have 64 features"):
        estimator.feature_importances_  # noqa: B018


WANTED = [3, 11, 12, 20, 29]


def informative():
    """Thirty features, five of which make the sign of a curved function; the others are noise."""
    X = np.random.default_rng(0).normal(size=(400, 30)).astype(np.float32)
    read = X[:, WANTED]
    return X, read @ [1.0, -1.0, 1.0, -1.0, 1.0] + np.abs(read[:, 0])


@pytest.mark.parametrize("estimator", [SparseClassifier, SparseRegressor])
def test_the_selected_features_are_those_that_matter(estimator):
    X, y = informative()
    y = y > 0.5 if estimator is SparseClassifier else y
    fitted = estimator(n_features=5, epochs=20, random_state=0).fit(X, y)
    assert list(fitted.selected_features_) == WANTED
    assert set(np.flatnonzero(fitted.feature_importances_)) <= set(WANTED)
    assert fitted.score(X, y) > 0.9
    # No other feature is read; the order of the sums may differ with the place of the data in memory.
    noise = np.random.default_rng(1).normal(size=X.shape).astype(np.float32)
    noise[:, WANTED] = X[:, WANTED]
    predict = "predict_proba" if estimator is SparseClassifier else "predict"
    np.testing.assert_allclose(getattr(fitted, predict)(noise), getattr(fitted, predict)(X), rtol=1e-9)

    selector = SelectFromModel(fitted, prefit=True, threshold=1e-10)
    assert set(np.flatnonzero(selector.get_support())) <= set(WANTED)


@pytest.mark.parametrize("count", [1, 7, 30])
def test_a_selection_has_exactly_the_wanted_size(count):
    X, y = informative()
    fitted = SparseRegressor(n_features=count, strength=0.0, epochs=2, random_state=0).fit(X, y)
    assert len(fitted.selected_features_) == count
    assert (fitted.feature_importances_ > 0).sum() == count


def test_a_path_has_the_estimators_that_fit_gives():
    X, y = informative()
    estimator = SparseRegressor(epochs=3, random_state=0)
    path = estimator.path(X, y, [3, 5, 30])
    assert [step.n_features for step in path] == [3, 5, 30]
    assert not hasattr(estimator, "network_")
    alone = SparseRegressor(n_features=5, epochs=3, random_state=0).fit(X, y)
    assert list(path[1].selected_features_) == list(alone.selected_features_)
    assert torch.equal(path[1].network_[0].weight, alone.network_[0].weight)
    assert estimator.path(X, y, []) == []
    with pytest.raises(GossamerError, match=r"`n_features=31` is more than the 30 features"):
        estimator.path(X, y, [5, 31])
    with pytest.raises(GossamerError, match="`n_features` must be a whole number"):
        estimator.path(X, y, [0])


class Normalized(nn.Sequential):
    """The features pass a norm with a shift, which gives even a feature of zeros a gradient."""

    def __init__(self, features, outputs):
        super().__init__(nn.BatchNorm1d(features), nn.Linear(features, 20), nn.ReLU(), nn.Linear(20, outputs))


def test_a_norm_in_front_of_the_first_layer():
    X, y = informative()
    fitted = SparseRegressor(Normalized, n_features=5, epochs=5, random_state=0).fit(X, y)
    assert set(np.flatnonzero(fitted.feature_importances_)) <= set(fitted.selected_features_)
    assert len(fitted.selected_features_) == 5


class Skip(nn.Module):
    def __init__(self, features, outputs):
        super().__init__()
        self.deep = nn.Linear(features, outputs)
        self.direct = nn.Linear(features, outputs)

    def forward(self, x):
        return torch.relu(self.deep(x)) + self.direct(x)


def test_what_a_selection_refuses():
    X, y = informative()
    with pytest.raises(GossamerError, match=r"`deep\.weight`: the network reads them elsewhere too"):
        SparseRegressor(Skip, n_features=5).fit(X, y)
    with pytest.raises(GossamerError, match=r"`n_features=31` is more than the 30 features"):
        SparseRegressor(n_features=31).fit(X, y)


@BOTH
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"epochs": 0}, r"`epochs` must be a whole number, 1 or more; received 0"),
        ({"batch_size": 1.5}, "`batch_size`"),
        ({"n_features": 0}, "`n_features`"),
        ({"lr": 0}, "`lr`"),
        ({"hold_at": 2}, "`hold_at`"),
        ({"strength": -1.0}, "`strength`"),
        ({"target": 2.0}, "fraction above 0 and at most 1"),
        ({"target": 0.5, "epochs": 3}, "needs at least 50 optimizer steps"),
        ({"network": lambda features, outputs: None}, "gave a NoneType"),
    ],
)
def test_bad_parameters(estimator, options, message):
    with pytest.raises(GossamerError, match=message):
        estimator(**options).fit(np.zeros((4, 2)), [0, 1, 0, 1])


def test_a_training_that_diverges():
    X, y = make_regression(50, 3, random_state=0)
    with pytest.raises(GossamerError, match=r"diverged. Scale the features, or lower `lr=1e\+30`"):
        SparseRegressor(lambda features, outputs: nn.Linear(features, outputs), lr=1e30).fit(X, y)
