"""Hugging Face transformers: a callback for its `Trainer`.

callback = SparsityCallback(lambda model: gossamer.integrated_tl1(model, strength=1e-4), example=batch)
trainer = transformers.Trainer(model, args, train_dataset=data, callbacks=[callback])
trainer.train()                                       # resume_from_checkpoint=True resumes as usual
gossamer.save(callback.small, "net.safetensors")
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import nn
from torch.optim import Optimizer

from gossamer.adapters.requirements import missing
from gossamer.adapters.sizes import sizes
from gossamer.adapters.target import SizeToReach
from gossamer.adapters.training import SparseTraining, WithTraining
from gossamer.errors import GossamerError
from gossamer.example import Example
from gossamer.regularizers import Regularizer

try:
    from accelerate.optimizer import AcceleratedOptimizer
    from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments
except ImportError as error:
    raise missing("transformers and accelerate", "transformers") from error

__all__ = ["SparsityCallback"]


class SparsityCallback(WithTraining, TrainerCallback):
    """Trains with a regularizer: attached at the start, zeros held towards the end, shrunk at the end.

    It adds the sizes (`gossamer/params_kept`, `gossamer/flops_kept`, `gossamer/units_alive`) to what the trainer logs
    of the training. The trainer's checkpoints hold all that is needed to resume; a resumed training has the zeros of
    an uninterrupted one.

    Args:
        regularizer: From the model to its regularizer.
        example: An input of the model, such as `{"input_ids": ids[:1]}`.
        target: The size to reach: a `gossamer.Target`, or the fraction of weights to keep. The regularizer then needs
            no strength.
        hold_at: The fraction of the training after which the target is reached, the penalty ends and the zeros stay;
            None for never (a target: at the end).
        compact_every: Remove dead units after every so many epochs, which makes the rest of the training faster.
        shrink: Whether to shrink the model at the end. That it can be shrunk is seen at the start.
        options: Further options of `gossamer.attach`.

    Attributes:
        small: The shrunk model, once `train` has ended.
        reached: How the target was reached, once it has ended.
    """

    def __init__(
        self,
        regularizer: Callable[[nn.Module], Regularizer],
        example: Example,
        *,
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
        self._compact_every = compact_every

    def on_init_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, *, model: nn.Module, **others: Any
    ) -> None:
        """Before the trainer loads a checkpoint."""
        del state, control, others
        if self._compact_every is not None and args.load_best_model_at_end:
            raise GossamerError(
                "`compact_every` does not go with `load_best_model_at_end`: the best model may have units that have "
                "left since. Give `compact_every=None`."
            )
        self._training.prepare(model)

    def on_train_begin(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        *,
        model: nn.Module,
        optimizer: Optimizer,
        **others: Any,
    ) -> None:
        """Attach: the optimizer is there, and its state has been restored already; `attach` picks its part up."""
        del args, control, others
        if isinstance(optimizer, AcceleratedOptimizer):
            optimizer = optimizer.optimizer
        self._training.start(model, self._example, optimizer, steps=state.max_steps)

    def on_step_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **others: Any
    ) -> None:
        """Hold when it is time."""
        del args, control, others
        self._training.advance(state.global_step, state.max_steps)

    def on_epoch_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **others: Any
    ) -> None:
        """Compact; the trainer writes its checkpoint after this."""
        del args, control, others
        self._training.end_epoch(round(state.epoch or 0))

    def on_log(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        *,
        logs: dict[str, float],
        **others: Any,
    ) -> None:
        """Add the sizes to the line of the training, for the callbacks that follow and for `state.log_history`."""
        del args, control, others
        if "loss" in logs and self._training.handle is not None:
            found = sizes(self._training.measure())
            logs.update(found)
            state.log_history[-1].update(found)

    def on_train_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **others: Any
    ) -> None:
        """Shrink into a new model, and detach."""
        del args, state, control, others
        self._training.finish()
        self._training.stop()
