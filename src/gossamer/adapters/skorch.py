"""skorch: a callback for its `NeuralNet`.

callback = SparsityCallback(lambda module: gossamer.l1(module, 1e-4), example=torch.zeros(1, 64))
net = skorch.NeuralNetClassifier(Net, max_epochs=40, optimizer=torch.optim.Adam, callbacks=[("sparsity", callback)])
net.fit(X, y)
gossamer.save(dict(net.callbacks_)["sparsity"].small_, "net.safetensors")
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from torch import nn

from gossamer.adapters.requirements import missing
from gossamer.adapters.sizes import sizes
from gossamer.adapters.target import SizeToReach
from gossamer.adapters.training import SparseTraining
from gossamer.example import Example
from gossamer.proximal import ProximalStep
from gossamer.regularizers import Regularizer
from gossamer.targets import Reached

try:
    from skorch import NeuralNet
    from skorch.callbacks import Callback
except ImportError as error:
    raise missing("skorch", "skorch") from error

__all__ = ["SparsityCallback"]


class SparsityCallback(Callback):
    """Trains with a regularizer: attached at the start of `fit`, zeros held towards the end, shrunk at the end.

    After every epoch it records the sizes in the history (`gossamer/params_kept`, `gossamer/flops_kept`,
    `gossamer/units_alive`). skorch's checkpoints hold all that is needed to resume (`LoadInitState`). The epochs of the
    history and the `max_epochs` that are still to come are the whole training.

    Args:
        regularizer: From the module to its regularizer.
        example: An input of the module.
        target: The size to reach: a `gossamer.Target`, or the fraction of weights to keep. The regularizer then needs
            no strength.
        hold_at: The fraction of the training after which the target is reached, the penalty ends and the zeros stay;
            None for never (a target: at the end).
        shrink: Whether to shrink the module at the end. That it can be shrunk is seen at the start.
        options: Further options of `gossamer.attach`.

    Attributes:
        small_: The shrunk module, once `fit` has ended.
        reached_: How the target was reached, once `fit` has ended.
    """

    def __init__(
        self,
        regularizer: Callable[[nn.Module], Regularizer],
        example: Example,
        *,
        target: SizeToReach | None = None,
        hold_at: float | None = 0.75,
        shrink: bool = True,
        options: Mapping[str, Any] | None = None,
    ) -> None:
        self.regularizer = regularizer
        self.example = example
        self.target = target
        self.hold_at = hold_at
        self.shrink = shrink
        self.options = options

    def initialize(self) -> SparsityCallback:
        """Before the module is made."""
        # Without compaction: skorch makes its optimizer before it loads a checkpoint, which may be of fewer parameters.
        self.training_ = SparseTraining(
            self.regularizer, target=self.target, hold_at=self.hold_at, shrink=self.shrink, **(self.options or {})
        )
        return self

    @property
    def small_(self) -> nn.Module | None:
        """The shrunk module, once `fit` has ended; None before."""
        return self.training_.small

    @property
    def reached_(self) -> Reached | None:
        """How the target was reached, once `fit` has ended; None without a target."""
        return self.training_.reached

    @property
    def handle_(self) -> ProximalStep | None:
        """What `gossamer.attach` returned; None when no training runs."""
        return self.training_.handle

    def on_train_begin(self, net: NeuralNet, X: Any = None, y: Any = None, **others: Any) -> None:
        """A new training: it is attached in its first epoch, when its data and its history are known."""
        del net, X, y, others
        self.epochs_: int | None = None

    def on_epoch_begin(self, net: NeuralNet, dataset_train: Any = None, **others: Any) -> None:
        """Attach before the first epoch; hold when it is time."""
        del others
        done = len(net.history) - 1  # the epoch that begins is in the history already
        if self.epochs_ is None:
            self.epochs_ = done + net.max_epochs
            batches = len(net.get_iterator(dataset_train, training=True))
            self.training_.start(net.module_, self.example, net.optimizer_, steps=self.epochs_ * batches)
        self.training_.advance(done, self.epochs_)

    def on_epoch_end(self, net: NeuralNet, **others: Any) -> None:
        """Record the sizes."""
        del others
        for name, value in sizes(self.training_.measure()).items():
            net.history.record(name, value)

    def on_train_end(self, net: NeuralNet, X: Any = None, y: Any = None, **others: Any) -> None:
        """Shrink into a new module, and detach."""
        del net, X, y, others
        self.training_.finish()
        self.training_.stop()
