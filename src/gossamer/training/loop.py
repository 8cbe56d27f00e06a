"""The training loop, from the first batch to the last file."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from safetensors.torch import save
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from gossamer.data import Dataset
from gossamer.errors import GossamerError
from gossamer.measurement import measure
from gossamer.proximal import attach, warm_up
from gossamer.regularizers import Regularizer
from gossamer.training.checkpoint import load_checkpoint, save_checkpoint
from gossamer.training.config import TrainingConfig
from gossamer.training.directory import RunDirectory
from gossamer.training.files import write_atomically
from gossamer.training.metrics import EpochMetrics, RunResult
from gossamer.training.progress import Progress, learning_rate

__all__ = ["accuracy", "train"]


def train(
    model: nn.Module, dataset: Dataset, regularizer: Regularizer | None, config: TrainingConfig, run: RunDirectory
) -> Iterator[EpochMetrics]:
    """Train ``model`` as ``config`` says and write the files of the run; one item per epoch, as it ends.

    Goes on from the run's checkpoint where there is one, and then yields the epochs before it first. With the run
    finished already, only its end is written again.
    """
    optimizer = torch.optim.SGD(model.parameters(), lr=config.learning_rate, momentum=config.momentum)
    steps_per_epoch = math.ceil(len(dataset.train_images) / config.batch_size)
    schedule = warm_up(config.warm_up_epochs * steps_per_epoch)
    proximal = None if regularizer is None else attach(optimizer, regularizer, schedule=schedule)

    progress = Progress()
    if run.checkpoint.exists():
        progress = load_checkpoint(run.checkpoint, model, optimizer)
    history = run.keep_metrics(progress.epoch)
    yield from history

    while progress.phase != "done":
        started = time.perf_counter()
        if progress.phase == "hold" and proximal is not None and not proximal.held:
            proximal.hold()
        loss, train_accuracy = _train_epoch(model, dataset, optimizer, config, progress)
        penalty = 0.0 if regularizer is None else regularizer.strength * regularizer.value().item()
        _require_finite(loss + penalty, progress.epoch + 1)

        measurement = measure(model, dataset.example)
        metrics = EpochMetrics(
            epoch=progress.epoch + 1,
            phase=progress.phase,
            loss=loss,
            penalty=penalty,
            train_accuracy=train_accuracy,
            test_accuracy=accuracy(model, dataset.test_images, dataset.test_labels),
            params_kept=measurement.params_kept,
            units_alive={layer.name: layer.units_alive for layer in measurement.layers},
            learning_rate=optimizer.param_groups[0]["lr"],
            seconds=time.perf_counter() - started,
        )
        progress = progress.after(loss if progress.phase == "hold" else loss + penalty, config)

        # The line before the checkpoint: stopped in between, the resumed run drops the line and makes it again.
        run.append_metrics(metrics)
        save_checkpoint(run.checkpoint, model, optimizer, progress)
        history.append(metrics)
        yield metrics

    _write_end(model, dataset, config, run, history)


def accuracy(model: nn.Module, images: Tensor, labels: Tensor, batch_size: int = 1024) -> float:
    """Return the fraction of the images that the model puts into their class."""
    was_training = model.training
    model.eval()
    right = 0
    with torch.inference_mode():
        for first in range(0, len(images), batch_size):
            batch = slice(first, first + batch_size)
            right += int((model(images[batch]).argmax(1) == labels[batch]).sum())
    model.train(was_training)
    return right / len(labels)


def _train_epoch(
    model: nn.Module,
    dataset: Dataset,
    optimizer: torch.optim.Optimizer,
    config: TrainingConfig,
    progress: Progress,
) -> tuple[float, float]:
    """Go once through the training images; return their mean loss and the accuracy, as met on the way."""
    model.train()
    count = len(dataset.train_images)
    total_loss, right = torch.zeros(()), torch.zeros((), dtype=torch.int64)
    with _random_numbers_of(config.seed, progress.epoch):
        batches = torch.split(torch.randperm(count), config.batch_size)
        for number, batch in enumerate(batches):
            for group in optimizer.param_groups:
                group["lr"] = learning_rate(progress, number / len(batches), config)
            images, answers = dataset.training_batch(batch)
            logits = model(images)
            loss = cross_entropy(logits, answers)
            optimizer.zero_grad()
            torch.autograd.backward(loss)
            optimizer.step()
            total_loss += loss.detach() * len(batch)
            right += (logits.detach().argmax(1) == answers).sum()
    return total_loss.item() / count, right.item() / count


@contextmanager
def _random_numbers_of(seed: int, epoch: int) -> Iterator[None]:
    """Make every random number of an epoch depend on seed and epoch alone; the caller's generator stays as it was."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed * 1_000_003 + epoch)
        yield


def _require_finite(objective: float, epoch: int) -> None:
    if not math.isfinite(objective):
        raise GossamerError(
            f"The training diverged: its objective is {objective} in epoch {epoch}. Lower the strength or the rate."
        )


def _write_end(
    model: nn.Module, dataset: Dataset, config: TrainingConfig, run: RunDirectory, history: list[EpochMetrics]
) -> None:
    """Write weights and result; the result last, because it says that the run is finished."""
    write_atomically(run.weights, save({name: tensor.contiguous() for name, tensor in model.state_dict().items()}))
    measurement = measure(model, dataset.example)
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
        )
    )
