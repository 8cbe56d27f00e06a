"""The training loop, from the first batch to the last file."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from gossamer.errors import GossamerError
from gossamer.measurement import Measurement, measure
from gossamer.proximal import attach, warm_up
from gossamer.regularizers import Regularizer
from gossamer.shrinking import shrink, shrink_, zero_dead_biases
from gossamer.store import save
from gossamer_lab.data import Dataset
from gossamer_lab.training.checkpoint import load_checkpoint, save_checkpoint
from gossamer_lab.training.config import TrainingConfig
from gossamer_lab.training.directory import RunDirectory
from gossamer_lab.training.metrics import EpochMetrics, RunResult
from gossamer_lab.training.progress import Progress, learning_rate
from gossamer_lab.training.small import write_small

__all__ = ["DivergedError", "accuracy", "fast_layout", "random_numbers_of", "train", "train_epoch"]

# At least so long between two checkpoints. A stop costs that and the epoch it falls into; short epochs stay fast.
_CHECKPOINT_SECONDS = 2.0

# The part of the multiply-adds that has to be left, at most, for dead units to be removed during training.
_WORTH_COMPACTING = 0.9


class DivergedError(GossamerError):
    """The objective of a training is not finite any more."""


def train(
    model: nn.Module, dataset: Dataset, regularizer: Regularizer | None, config: TrainingConfig, run: RunDirectory
) -> Iterator[EpochMetrics]:
    """Train ``model`` as ``config`` says and write the files of the run; one item per epoch, as it ends.

    Goes on from the run's checkpoint where there is one, and then yields the epochs before it first. With the run
    finished already, only its end is written again.

    Raises:
        DivergedError: When the objective is not finite any more.
        GossamerError: When another training is under way in the same folder, or the checkpoint cannot be used.
    """
    with run.held():
        yield from _train(model, dataset, regularizer, config, run)


def _train(
    model: nn.Module, dataset: Dataset, regularizer: Regularizer | None, config: TrainingConfig, run: RunDirectory
) -> Iterator[EpochMetrics]:
    full = measure(model, dataset.example)
    checkpoint = load_checkpoint(run.checkpoint, model) if run.checkpoint.exists() else None
    _lay_out(model)
    named = dict(model.named_parameters())
    parameters = [named[name] for name in checkpoint.parameters] if checkpoint else list(named.values())
    optimizer = torch.optim.SGD(parameters, lr=config.learning_rate, momentum=config.momentum)
    steps_per_epoch = math.ceil(len(dataset.train_images) / config.batch_size)
    schedule = warm_up(config.warm_up_epochs * steps_per_epoch)
    proximal = None if regularizer is None else attach(optimizer, regularizer, schedule=schedule)
    if checkpoint:
        optimizer.load_state_dict(checkpoint.optimizer)

    progress = checkpoint.progress if checkpoint else Progress()
    history = run.keep_metrics(progress.epoch)
    yield from history
    saved = -math.inf

    while progress.phase != "done":
        started = time.perf_counter()
        if progress.phase == "hold" and proximal is not None and not proximal.held:
            if config.regrow:  # a resumed run comes here again, and finds no dead units
                _remove_dead_units(model, dataset, optimizer)
                proximal.remove()
                proximal = None
            else:
                zero_dead_biases(model, dataset.example, optimizer=optimizer)
                proximal.hold()
        loss, train_accuracy = train_epoch(model, dataset, optimizer, config, progress)
        penalty = 0.0 if regularizer is None else regularizer.strength * regularizer.value().item()
        _require_finite(loss + penalty, progress.epoch + 1)

        measured = measure(model, dataset.example)
        measurement = measured.against(full)
        if config.compact_every and (progress.epoch + 1) % config.compact_every == 0:
            _compact(model, dataset, optimizer, measured)
        metrics = EpochMetrics(
            epoch=progress.epoch + 1,
            phase=progress.phase,
            loss=loss,
            penalty=penalty,
            train_accuracy=train_accuracy,
            test_accuracy=accuracy(model, dataset.test_images, dataset.test_labels),
            params_kept=measurement.params_kept,
            flops_kept=measurement.flops_kept,
            units_alive={layer.name: layer.units_alive for layer in measurement.layers},
            learning_rate=optimizer.param_groups[0]["lr"],
            seconds=time.perf_counter() - started,
        )
        progress = progress.after(loss if progress.phase == "hold" else loss + penalty, config)

        # The lines before the checkpoint: stopped in between, the resumed run drops them and makes them again.
        run.append_metrics(metrics)
        if progress.phase == "done" or time.perf_counter() - saved >= _CHECKPOINT_SECONDS:
            run.sync_metrics()
            save_checkpoint(run.checkpoint, model, optimizer, progress)
            saved = time.perf_counter()
        history.append(metrics)
        yield metrics

    _write_end(model, dataset, config, run, history, full)


def accuracy(model: nn.Module, images: Tensor, labels: Tensor, batch_size: int = 1024) -> float:
    """Return the fraction of the images that the model puts into their class."""
    was_training = model.training
    model.eval()
    right = 0
    with torch.inference_mode():
        for first in range(0, len(images), batch_size):
            batch = slice(first, first + batch_size)
            right += int((model(fast_layout(images[batch])).argmax(1) == labels[batch]).sum())
    model.train(was_training)
    return right / len(labels)


def train_epoch(
    model: nn.Module,
    dataset: Dataset,
    optimizer: torch.optim.Optimizer,
    config: TrainingConfig,
    progress: Progress,
) -> tuple[float, float]:
    """Go once through the training images; return their mean loss and the accuracy, as met on the way."""
    model.train()
    count = len(dataset.train_images)
    total_loss, right = 0.0, 0
    with random_numbers_of(config.seed, progress.epoch):
        batches = torch.split(torch.randperm(count), config.batch_size)
        for number, batch in enumerate(batches):
            for group in optimizer.param_groups:
                group["lr"] = learning_rate(progress, number / len(batches), config)
            images, answers = dataset.training_batch(batch)
            logits = model(fast_layout(images))
            loss = cross_entropy(logits, answers)
            optimizer.zero_grad()
            torch.autograd.backward(loss)
            optimizer.step()
            total_loss += loss.item() * len(batch)
            right += int((logits.argmax(1) == answers).sum())
    return total_loss / count, right / count


def fast_layout(images: Tensor) -> Tensor:
    """Put the channels of a pixel side by side in memory: convolutions on the CPU take half the time."""
    return images.contiguous(memory_format=torch.channels_last) if images.dim() == 4 else images


def _lay_out(model: nn.Module) -> None:
    """Put the channels of the kernels side by side, too: images of one channel do not tell in which order they lie."""
    model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]


@contextmanager
def random_numbers_of(seed: int, epoch: int) -> Iterator[None]:
    """Make every random number of an epoch depend on seed and epoch alone; the caller's generator stays as it was."""
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed * 1_000_003 + epoch)  # of the CPU alone, and so without delay
        yield


def _compact(model: nn.Module, dataset: Dataset, optimizer: torch.optim.Optimizer, measured: Measurement) -> None:
    """Remove dead units where that makes the rest of the training faster; to find and remove them takes a second."""
    if measured.flops_kept_compact <= _WORTH_COMPACTING:
        _remove_dead_units(model, dataset, optimizer)


def _remove_dead_units(model: nn.Module, dataset: Dataset, optimizer: torch.optim.Optimizer) -> None:
    zero_dead_biases(model, dataset.example, optimizer=optimizer)
    shrink_(model, dataset.example, optimizer=optimizer)
    _lay_out(model)


def _require_finite(objective: float, epoch: int) -> None:
    if not math.isfinite(objective):
        raise DivergedError(
            f"The training diverged: its objective is {objective} in epoch {epoch}. Lower the strength or the rate."
        )


def _write_end(
    model: nn.Module,
    dataset: Dataset,
    config: TrainingConfig,
    run: RunDirectory,
    history: list[EpochMetrics],
    full: Measurement,
) -> None:
    """Write the network, the network made small, and the result; this last, because it says that the run is done."""
    small = shrink(model, dataset.example, form="module")  # verified: its outputs stay what they are
    # What only dead units still hold is gone, too, whether or not they left during the training.
    measurement = measure(small, dataset.example).against(full)
    provenance = {"config": asdict(config), "measurement": measurement.to_dict()}
    save(model, run.weights, provenance=provenance)
    run.write_result(
        RunResult(
            dataset=config.dataset,
            regularizer=config.regularizer,
            strength=config.strength,
            seed=config.seed,
            epochs=len(history),
            accuracy=history[-1].test_accuracy,
            params_kept=measurement.params_kept,
            flops_kept=measurement.flops_kept,
            seconds=sum(metrics.seconds for metrics in history),
            measurement=measurement.to_dict(),
            small=asdict(write_small(small, dataset.example, run, provenance)),
        )
    )
