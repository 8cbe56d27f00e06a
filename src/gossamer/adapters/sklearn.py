"""scikit-learn: a classifier and a regressor that train a sparse network, and select features if asked to.

estimator = SparseClassifier(strength=1e-3).fit(X, y)
estimator.score(X_test, y_test), estimator.sparsity_

SparseClassifier(target=0.05).fit(X, y)               # a twentieth of the weights, or any gossamer.Target

estimator = SparseClassifier(n_features=50).fit(X, y)
estimator.selected_features_                          # the network reads these 50 features and no other
SparseClassifier().path(X, y, [200, 100, 50])         # three fitted estimators, from one selection
"""

from __future__ import annotations

import copy
import inspect
import math
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from numbers import Integral, Real
from typing import Any, Self, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from gossamer.adapters.feature_selection import first_layer, importances, keep_features_, select_features
from gossamer.adapters.fitting import Problem, train
from gossamer.adapters.requirements import missing
from gossamer.adapters.target import SizeToReach, as_target
from gossamer.errors import GossamerError
from gossamer.measurement import measure
from gossamer.regularizers import Regularizer, integrated_tl1
from gossamer.shrinking import shrink

try:
    from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin, clone  # type: ignore[import-untyped]
    from sklearn.utils import check_random_state  # type: ignore[import-untyped]
    from sklearn.utils.multiclass import check_classification_targets  # type: ignore[import-untyped]
    from sklearn.utils.validation import check_is_fitted, validate_data  # type: ignore[import-untyped]
except ImportError as error:
    raise missing("scikit-learn", "sklearn") from error

__all__ = ["SparseClassifier", "SparseRegressor"]

Network = nn.Module | Callable[[int, int], nn.Module]
Array = NDArray[Any]
_Class = TypeVar("_Class", bound=type)

_HIDDEN = 100  # units of the default network


_PARAMETERS = """\
Args:
    network: A module, of which a copy is trained, or a function from the numbers of features and outputs to a
        module; by default a perceptron with one hidden layer of 100 units.
    regularizer: From a module and the strength to a regularizer, such as `gossamer.l1`; by default
        `gossamer.integrated_tl1`. With a target the strength is None, and for a target other than `params` the
        keyword `example` is given too.
    strength: The strength of the penalty; a target needs none.
    target: The size that the network has to have: a `gossamer.Target`, or the fraction of weights to keep, such
        as 0.05. It is reached after `hold_at` of the training, by a strength that is found on the way.
    n_features: How many features to select. The network then reads exactly so many, by its first layer; by
        default all.
    epochs: Passes over the data. The selection of features takes some more.
    lr: The learning rate of stochastic gradients with momentum; it falls to zero.
    batch_size: Samples in a batch.
    hold_at: The fraction of the epochs after which the penalty ends and the zeros stay.
    random_state: Determines the initial weights and the order of the samples.
"""

_ATTRIBUTES = {
    "sparsity_": "The fraction of its weights that are exactly zero.",
    "reached_": "How the target was reached; None without one.",
    "selected_features_": "The indices of the selected features, exactly `n_features` of them; without it, of the\n"
    "        features that the network uses.",
    "feature_importances_": "For each feature the norm of the weights that read it.",
    "n_features_in_": "The number of features of the data.",
    "n_iter_": "Epochs that were run.",
}


def _documented(**attributes: str) -> Callable[[_Class], _Class]:
    """Add the parameters and attributes that both estimators have to the docstring of a class."""

    def documented(estimator: _Class) -> _Class:
        found = "".join(f"    {name}: {text}\n" for name, text in (attributes | _ATTRIBUTES).items())
        estimator.__doc__ = f"{inspect.cleandoc(estimator.__doc__ or '')}\n\n{_PARAMETERS}\nAttributes:\n{found}"
        return estimator

    return documented


class _SparseEstimator(BaseEstimator):
    """What the two estimators share; `_documented` adds the parameters to their docstrings."""

    def __init__(
        self,
        network: Network | None = None,
        *,
        regularizer: Callable[..., Regularizer] | None = None,
        strength: float = 1e-3,
        target: SizeToReach | None = None,
        n_features: int | None = None,
        epochs: int = 100,
        lr: float = 0.05,
        batch_size: int = 64,
        hold_at: float = 0.75,
        random_state: int | np.random.RandomState | None = None,
    ) -> None:
        self.network = network
        self.regularizer = regularizer
        self.strength = strength
        self.target = target
        self.n_features = n_features
        self.epochs = epochs
        self.lr = lr
        self.batch_size = batch_size
        self.hold_at = hold_at
        self.random_state = random_state

    @abstractmethod
    def _targets(self, y: Array) -> tuple[Tensor, int]:
        """The targets as a tensor, and how many outputs the network needs; called once for each `fit`."""

    @abstractmethod
    def _loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """The mean loss of a batch."""

    def fit(self, X: Any, y: Any) -> Self:
        """Train the network, after the selection of features if `n_features` is given."""
        return self._fit(X, y, self._seed())

    def path(self, X: Any, y: Any, n_features: Iterable[int]) -> list[Self]:
        """Fitted estimators with so many features, from one selection: what `fit` gives for each of the numbers.

        Args:
            X: The samples.
            y: Their targets.
            n_features: Numbers of features, in any order.
        """
        counts = list(n_features)
        steps = [clone(self).set_params(n_features=count) for count in counts]
        seed = self._seed()
        selections: dict[int, Tensor] = {}
        for step in steps:
            with _seeded(seed):
                network, problem = step._problem(X, y)
                if step is steps[-1]:  # all of them have been checked
                    selections = select_features(network, problem, counts)
        return [step._fit(X, y, seed, selections[count]) for step, count in zip(steps, counts, strict=True)]

    def shrink(self) -> nn.Module:
        """The fitted network without the units that do nothing: the same outputs from a smaller module."""
        check_is_fitted(self)
        return shrink(self.network_, self._example)

    @property
    def feature_importances_(self) -> Array:
        """For each feature the norm of the weights that read it; 0.0 for a feature that is not used."""
        check_is_fitted(self)
        return importances(first_layer(self.network_, self.n_features_in_, self._example)).numpy()

    @property
    def selected_features_(self) -> Array:
        """The indices of the selected features, in ascending order; without `n_features`, of all that are used."""
        check_is_fitted(self)
        return np.flatnonzero(self.feature_importances_) if self._selected is None else self._selected

    def _seed(self) -> int:
        return int(check_random_state(self.random_state).randint(2**31))

    def _fit(self, X: Any, y: Any, seed: int, selected: Tensor | None = None) -> Self:
        with _seeded(seed):
            network, problem = self._problem(X, y)
            if self.n_features is not None and selected is None:
                selected = select_features(copy.deepcopy(network), problem, [self.n_features])[self.n_features]
        with _seeded(seed):  # so that the training does not depend on how long the selection went on
            self._train(network, problem, selected)
        self.network_ = network
        self.n_iter_ = self.epochs
        self._selected = None if selected is None else np.flatnonzero(selected.numpy())
        self._example = problem.inputs[:1].clone()
        self.sparsity_ = 1 - measure(network, self._example).params_kept
        return self

    def _problem(self, X: Any, y: Any) -> tuple[nn.Module, Problem]:
        """The network before its training, and what it is to be trained on; all parameters and data are checked."""
        self._require_sensible()
        X, y = self._validated(X, y)
        if self.n_features is not None and self.n_features > X.shape[1]:
            raise GossamerError(f"`n_features={self.n_features}` is more than the {X.shape[1]} features of the data.")
        targets, outputs = self._targets(y)
        network = self._made(X.shape[1], outputs)
        return network, Problem(_tensor(X, network), targets, self._loss, self.lr, self.batch_size)

    def _train(self, network: nn.Module, problem: Problem, selected: Tensor | None) -> None:
        regularizer, target = self._penalty(network, problem), as_target(self.target)
        kept = None
        if selected is not None:
            kept = keep_features_(first_layer(network, self.n_features_in_, problem.inputs[:2]), selected)
        self.reached_ = train(problem, network, regularizer, epochs=self.epochs, hold_at=self.hold_at, target=target)
        if kept is not None:
            kept.remove()

    def _penalty(self, network: nn.Module, problem: Problem) -> Regularizer:
        recipe: Callable[..., Regularizer] = self.regularizer or integrated_tl1
        target = as_target(self.target)
        if target is None:
            return recipe(network, self.strength)
        return recipe(network, None, **({} if target.kind == "params" else {"example": problem.inputs[:1]}))

    def _made(self, features: int, outputs: int) -> nn.Module:
        if self.network is None:
            # In float64 the outputs of a sample do not depend on the samples beside it, to the accuracy that users of
            # scikit-learn expect.
            return nn.Sequential(nn.Linear(features, _HIDDEN), nn.ReLU(), nn.Linear(_HIDDEN, outputs)).double()
        made = copy.deepcopy(self.network) if isinstance(self.network, nn.Module) else self.network(features, outputs)
        if not isinstance(made, nn.Module):
            raise GossamerError(
                "`network` must be a torch.nn.Module, or a function from the numbers of features and outputs to one; "
                f"received {self.network!r}, which gave a {type(made).__name__}."
            )
        return made

    def _validated(self, X: Any, y: Any) -> tuple[Array, Array]:
        X, y = validate_data(self, X, y, dtype=[np.float64, np.float32])
        return X, y

    def _require_sensible(self) -> None:
        for name, least in (("epochs", 1), ("batch_size", 1), ("n_features", 1)):
            value = getattr(self, name)
            if not (isinstance(value, Integral) and int(value) >= least) and not (
                name == "n_features" and value is None
            ):
                raise GossamerError(f"`{name}` must be a whole number, {least} or more; received {value!r}.")
        as_target(self.target)
        if not (isinstance(self.lr, Real) and 0 < self.lr < math.inf):
            raise GossamerError(f"`lr` must be a positive number; received {self.lr!r}.")
        if not (isinstance(self.hold_at, Real) and 0 <= self.hold_at <= 1):
            raise GossamerError(f"`hold_at` is a fraction of the training, from 0 to 1; received {self.hold_at!r}.")

    @torch.no_grad()
    def _outputs(self, X: Any) -> Tensor:
        check_is_fitted(self)
        X = validate_data(self, X, dtype=[np.float64, np.float32], reset=False)
        outputs: Tensor = self.network_(_tensor(X, self.network_))
        return outputs.double()


@contextmanager
def _seeded(seed: int) -> Iterator[None]:
    """Random numbers of PyTorch that the seed determines; those of the caller stay as they are."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        yield


def _tensor(X: Array, network: nn.Module) -> Tensor:
    """The samples in the type in which the network computes."""
    dtype = next((p.dtype for p in network.parameters() if p.is_floating_point()), torch.float32)
    return torch.tensor(X, dtype=dtype)


@_documented(classes_="The classes.", network_="The trained network.")
class SparseClassifier(ClassifierMixin, _SparseEstimator):
    """A classifier: a network that is trained with a sparsity penalty on the mean cross-entropy.

    Scale the features before (`make_pipeline(StandardScaler(), SparseClassifier())`).
    """

    def predict(self, X: Any) -> Array:
        """The most probable class of each sample."""
        found = self._outputs(X).argmax(1).numpy()
        named: Array = self.classes_[found]
        return named

    def predict_proba(self, X: Any) -> Array:
        """The probability of each class for each sample."""
        return self._outputs(X).softmax(1).numpy()

    def _targets(self, y: Array) -> tuple[Tensor, int]:
        check_classification_targets(y)
        self.classes_, indices = np.unique(y, return_inverse=True)
        return torch.from_numpy(indices), len(self.classes_)

    def _loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return nn.functional.cross_entropy(outputs, targets)


@_documented(network_="The trained network; its output is the standardized target.")
class SparseRegressor(RegressorMixin, _SparseEstimator):
    """A regressor: a network that is trained with a sparsity penalty on half the mean squared error.

    The network sees the target standardized, so that the strength does not depend on its unit. Scale the features
    before (`make_pipeline(StandardScaler(), SparseRegressor())`).
    """

    def predict(self, X: Any) -> Array:
        """The predicted target of each sample."""
        found = self._outputs(X).squeeze(1).numpy()
        return found * self._scale + self._mean

    def _targets(self, y: Array) -> tuple[Tensor, int]:
        y = y.astype(np.float64)
        self._mean, self._scale = float(y.mean()), float(y.std()) or 1.0
        return torch.from_numpy((y - self._mean) / self._scale).unsqueeze(1), 1

    def _loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return nn.functional.mse_loss(outputs, targets.to(outputs.dtype)) / 2

    def _validated(self, X: Any, y: Any) -> tuple[Array, Array]:
        X, y = validate_data(self, X, y, dtype=[np.float64, np.float32], y_numeric=True)
        return X, y
