"""Lightning: a callback for its `Trainer`.

callback = SparsityCallback(lambda model: gossamer.integrated_tl1(model, strength=1e-3), example=images[:1])
trainer = lightning.Trainer(max_epochs=40, callbacks=[callback])
trainer.fit(model, loader)                            # ckpt_path=... resumes as usual
gossamer.save(callback.small, "net.safetensors")
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from torch import nn

from gossamer.adapters.requirements import missing
from gossamer.adapters.sizes import sizes
from gossamer.adapters.target import SizeToReach
from gossamer.adapters.training import SparseTraining, WithTraining
from gossamer.errors import GossamerError
from gossamer.example import Example
from gossamer.regularizers import Regularizer

try:
    from lightning.pytorch import Callback, LightningModule, Trainer
except ImportError:
    try:
        from pytorch_lightning import Callback, LightningModule, Trainer
    except ImportError as error:
        raise missing("Lightning", "lightning") from error

__all__ = ["SparsityCallback"]


class SparsityCallback(WithTraining, Callback):
    """Trains with a regularizer: attached at the start of `fit`, zeros held towards the end, shrunk at the end.

    After every epoch it logs the sizes (`gossamer/params_kept`, `gossamer/flops_kept`, `gossamer/units_alive`).
    Lightning's checkpoints hold all that is needed to resume; a resumed training has the zeros of an uninterrupted one.

    Args:
        regularizer: From the network to its regularizer.
        example: An input of the network; by default the module's `example_input_array`.
        network: The name of the submodule to regularize and shrink, such as `"net"`; by default the whole module.
        target: The size to reach: a `gossamer.Target`, or the fraction of weights to keep. The regularizer then needs
            no strength.
        hold_at: The fraction of the training after which the target is reached, the penalty ends and the zeros stay;
            None for never (a target: at the end).
        compact_every: Remove dead units after every so many epochs, which makes the rest of the training faster.
        shrink: Whether to shrink the network at the end. That it can be shrunk is seen at the start.
        options: Further options of `gossamer.attach`.

    Attributes:
        small: The shrunk network, once `fit` has ended.
        reached: How the target was reached, once it has ended.
    """

    def __init__(
        self,
        regularizer: Callable[[nn.Module], Regularizer],
        example: Example | None = None,
        *,
        network: str = "",
        target: SizeToReach | None = None,
        hold_at: float | None = 0.75,
        compact_every: int | None = None,
        shrink: bool = True,
        **options: Any,
    ) -> None:
        self._training = SparseTraining(
            regularizer, target=target, hold_at=hold_at, compact_every=compact_every, shrink=shrink, **options
        )
        self._example = example
        self._network = network
        self._steps = math.inf

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Before Lightning restores a checkpoint."""
        del trainer, stage
        self._training.prepare(pl_module.get_submodule(self._network))

    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Attach: the optimizers are there, and their states are not restored yet."""
        if len(trainer.optimizers) != 1:
            raise GossamerError(
                f"`SparsityCallback` needs one optimizer; this module has {len(trainer.optimizers)}. Attach to each of "
                "them in `configure_optimizers`: `gossamer.attach(optimizer, regularizer.owned_by(optimizer))`."
            )
        example = pl_module.example_input_array if self._example is None else self._example
        if example is None:
            raise GossamerError(
                "`SparsityCallback` needs an input of the network, to measure and to shrink it. Give `example=...`, or "
                "set `self.example_input_array` in the module."
            )
        self._steps = trainer.estimated_stepping_batches
        with _apart(pl_module):
            self._training.start(
                pl_module.get_submodule(self._network), example, trainer.optimizers[0], steps=self._steps
            )

    def on_train_batch_start(self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int) -> None:
        """Hold when it is time."""
        del pl_module, batch, batch_idx
        self._training.advance(trainer.global_step, self._steps)

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Compact and log; Lightning writes its checkpoint after this."""
        with _apart(pl_module):
            self._training.end_epoch(trainer.current_epoch + 1)
            measured = self._training.measure()
        pl_module.log_dict(sizes(measured))

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Shrink into a new module."""
        del trainer
        with _apart(pl_module):
            self._training.finish()

    def teardown(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Detach."""
        del trainer, pl_module, stage
        self._training.stop()

    def on_exception(self, trainer: Trainer, pl_module: LightningModule, exception: BaseException) -> None:
        """Detach."""
        del trainer, pl_module, exception
        self._training.stop()


@contextmanager
def _apart(module: LightningModule) -> Iterator[None]:
    """Take the trainer away from the module, which would be copied and traced with it."""
    trainer = module.trainer
    module.trainer = None
    try:
        yield
    finally:
        module.trainer = trainer
