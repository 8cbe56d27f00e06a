"""The training loop."""

from __future__ import annotations

import math
import platform
import time
from collections.abc import Generator, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from gossamer.errors import GossamerError
from gossamer.measurement import Measurement, measure
from gossamer.proximal import ProximalStep, attach, warm_up
from gossamer.regularizers import Regularizer
from gossamer.shrinking import shrink, shrink_, zero_dead_biases
from gossamer.store import save
from gossamer.targets import Reached
from gossamer_lab.data import Dataset
from gossamer_lab.training.checkpoint import (
    Checkpoint,
    discard_unusable,
    load_checkpoint,
    restore_optimizer,
    save_checkpoint,
)
from gossamer_lab.training.config import TrainingConfig
from gossamer_lab.training.directory import RunDirectory, fingerprint
from gossamer_lab.training.metrics import EpochMetrics, RunResult
from gossamer_lab.training.processes import data_parallel, from_leader, in_all, leads, own_part, process_count, summed
from gossamer_lab.training.progress import Progress, learning_rate
from gossamer_lab.training.shrunk import provenance_of, target_of, write_shrunk

__all__ = [
    "DivergedError",
    "accuracy",
    "channels_last",
    "compact",
    "epoch_random_state",
    "to_channels_last",
    "train",
    "train_epoch",
]

# Minimum time between two checkpoints, so that they do not slow down short epochs.
_CHECKPOINT_SECONDS = 2.0

# Dead units are removed during training when at most this fraction of the MACs would be left.
_COMPACTION_THRESHOLD = 0.9


class DivergedError(GossamerError):
    """The objective is no longer finite."""


def train(
    model: nn.Module, dataset: Dataset, regularizer: Regularizer | None, config: TrainingConfig, run: RunDirectory
) -> Generator[EpochMetrics, None, None]:
    """Train `model`, write the files of the run, and yield the metrics of each epoch as it ends.

    An interrupted run is resumed from its checkpoint, and the metrics of its earlier epochs are yielded first. A
    finished run is not trained again; only its final files are rewritten.

    Raises:
        DivergedError: If the objective is no longer finite.
        GossamerError: If another run is in progress in the same folder, or has replaced this one, or if the checkpoint
            cannot be used.
    """
    with ExitStack() as stack:
        from_leader(lambda: stack.enter_context(run.lock()))
        in_all(lambda: _require_own(run, config))
        yield from _train(model, dataset, regularizer, config, run)


def _require_own(run: RunDirectory, config: TrainingConfig) -> None:
    """Check that this process sees the run; other machines see it on a shared file system only."""
    if not (leads() or run.config.exists()):
        raise GossamerError(
            f"{run.path} holds no run on {platform.node()}, where processes of this training are. All machines have to "
            "see the run directory: give a `--run-dir` on a file system that they share."
        )
    if run.read_config() != config:
        raise GossamerError(
            f"{run.path} now holds another run, which started with `--overwrite`; their files would "
            "mix. Choose another `--run-dir`, or wait for that run to finish and overwrite it."
        )


def _train(
    model: nn.Module, dataset: Dataset, regularizer: Regularizer | None, config: TrainingConfig, run: RunDirectory
) -> Iterator[EpochMetrics]:
    full = measure(model, dataset.example)
    checkpoint = in_all(lambda: load_checkpoint(run, config, model))
    from_leader(lambda: discard_unusable(run, checkpoint))
    to_channels_last(model)
    optimizer = _optimizer(model, config, checkpoint)
    steps_per_epoch = math.ceil(len(dataset.train_images) / config.batch_size)
    proximal = None if regularizer is None else _attach(optimizer, regularizer, config, steps_per_epoch, full)
    if checkpoint:
        restore_optimizer(run, optimizer, checkpoint)

    progress = checkpoint.progress if checkpoint else Progress()
    history = from_leader(lambda: run.truncate_metrics(progress.epoch))
    yield from history
    saved = -math.inf

    while progress.phase != "done":
        started = time.perf_counter()
        if progress.phase == "hold" and proximal is not None and not proximal.held:
            proximal = _second_phase(proximal, model, dataset, optimizer, config)
        loss, train_accuracy = train_epoch(model, dataset, optimizer, config, progress)
        strength = 0.0 if proximal is None else proximal.strength
        shown = strength if config.target else config.strength  # without a target, at full strength
        penalty = 0.0 if regularizer is None else shown * regularizer.value().item()
        _require_finite(loss + penalty, progress.epoch + 1)

        measured = measure(model, dataset.example)
        measurement = measured.against(full)
        if config.compact_every and (progress.epoch + 1) % config.compact_every == 0:
            compact(model, dataset, optimizer, measured)
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
            strength=strength,
        )
        progress = progress.after(loss if progress.phase == "hold" else loss + penalty, config)

        history.append(metrics)
        saved = from_leader(partial(_write_epoch, run, config, history, model, optimizer, progress, saved))
        yield metrics

    reached = None if proximal is None else proximal.reached
    from_leader(lambda: _write_results(model, dataset, config, run, history, full, reached))


def _optimizer(model: nn.Module, config: TrainingConfig, checkpoint: Checkpoint | None) -> torch.optim.Optimizer:
    """SGD, with the parameters in the order of the checkpoint, by which its state is assigned to them."""
    named = dict(model.named_parameters())
    parameters = [named[name] for name in checkpoint.parameters] if checkpoint else list(named.values())
    return torch.optim.SGD(parameters, lr=config.learning_rate, momentum=config.momentum)


def _second_phase(
    proximal: ProximalStep, model: nn.Module, dataset: Dataset, optimizer: torch.optim.Optimizer, config: TrainingConfig
) -> ProximalStep | None:
    """Hold the zeros; or, with `regrow`, remove the dead units and the proximal step, so that all others train."""
    if not config.regrow:
        zero_dead_biases(model, dataset.example, optimizer=optimizer)
        proximal.hold()
        return proximal
    _remove_dead_units(model, dataset, optimizer)  # idempotent: a resumed run finds none
    proximal.remove()
    return None


def _attach(
    optimizer: torch.optim.Optimizer,
    regularizer: Regularizer,
    config: TrainingConfig,
    steps_per_epoch: int,
    full: Measurement,
) -> ProximalStep:
    steps = config.sparsify_epochs * steps_per_epoch
    if config.target is None:
        schedule = warm_up(config.warm_up_epochs * steps_per_epoch)
        return attach(optimizer, regularizer, schedule=schedule, steps=steps)
    assert regularizer.model is not None
    return attach(optimizer, regularizer, target=target_of(config, regularizer.model, full), steps=steps)


def accuracy(model: nn.Module, images: Tensor, labels: Tensor, batch_size: int = 1024) -> float:
    """Return the fraction of the images that the model classifies correctly."""
    was_training = model.training
    model.eval()
    correct = 0
    with torch.inference_mode():
        for first in range(0, len(images), batch_size):
            batch = slice(first, first + batch_size)
            correct += int((model(channels_last(images[batch])).argmax(1) == labels[batch]).sum())
    model.train(was_training)
    return correct / len(labels)


def train_epoch(
    model: nn.Module,
    dataset: Dataset,
    optimizer: torch.optim.Optimizer,
    config: TrainingConfig,
    progress: Progress,
    arithmetic: torch.dtype = torch.float32,
) -> tuple[float, float]:
    """Train for one epoch; return the mean loss and the accuracy over its steps.

    With `arithmetic=torch.bfloat16` the layers compute in bfloat16 (`torch.autocast`); weights stay float32.
    """
    model.train()
    spread = data_parallel(model)
    count = len(dataset.train_images)
    total_loss, correct = 0.0, 0.0
    with epoch_random_state(config.seed, progress.epoch):
        batches = torch.split(torch.randperm(count), config.batch_size)
        for number, batch in enumerate(batches):
            for group in optimizer.param_groups:
                group["lr"] = learning_rate(progress, number / len(batches), config)
            images, labels = dataset.training_batch(batch)
            labels = own_part(labels)
            with torch.autocast("cpu", torch.bfloat16, enabled=arithmetic == torch.bfloat16):
                logits = spread(channels_last(own_part(images))).float()
            loss = _mean_loss(logits, labels, len(batch))
            optimizer.zero_grad()
            torch.autograd.backward(loss)
            optimizer.step()
            total_loss += loss.item() * len(batch) / process_count()
            correct += int((logits.argmax(1) == labels).sum())
    total_loss, correct = summed(total_loss, correct)
    return total_loss / count, correct / count


def _mean_loss(logits: Tensor, labels: Tensor, count: int) -> Tensor:
    """The loss whose mean over all processes is the mean over the whole batch of `count` images."""
    if process_count() == 1:
        return cross_entropy(logits, labels)
    return cross_entropy(logits, labels, reduction="sum") * (process_count() / count)


def channels_last(images: Tensor) -> Tensor:
    """Return images in the channels-last memory format, which halves the time of convolutions on the CPU."""
    return images.contiguous(memory_format=torch.channels_last) if images.dim() == 4 else images


def to_channels_last(model: nn.Module) -> None:
    """Convert the kernels too: the format of one-channel images is ambiguous, so torch goes by the kernels."""
    model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]


@contextmanager
def epoch_random_state(seed: int, epoch: int) -> Iterator[None]:
    """Seed torch's default generator by seed and epoch; restore its state at the end."""
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed * 1_000_003 + epoch)  # of the CPU only, which is fast
        yield


def compact(model: nn.Module, dataset: Dataset, optimizer: torch.optim.Optimizer, measured: Measurement) -> None:
    """Remove dead units if that speeds up the remaining epochs; the removal itself takes about a second."""
    if measured.flops_kept_compact <= _COMPACTION_THRESHOLD:
        _remove_dead_units(model, dataset, optimizer)


def _remove_dead_units(model: nn.Module, dataset: Dataset, optimizer: torch.optim.Optimizer) -> None:
    zero_dead_biases(model, dataset.example, optimizer=optimizer)
    shrink_(model, dataset.example, optimizer=optimizer)
    to_channels_last(model)


def _require_finite(objective: float, epoch: int) -> None:
    if not math.isfinite(objective):
        raise DivergedError(
            f"The training diverged: the objective is {objective} in epoch {epoch}. "
            "Lower the strength or the learning rate."
        )


def _write_epoch(
    run: RunDirectory,
    config: TrainingConfig,
    history: list[EpochMetrics],
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    progress: Progress,
    saved: float,
) -> float:
    """Write the metrics and, unless one was written a moment ago, a checkpoint; return when the last one was."""
    run.append_metrics(history[-1])  # before the checkpoint: a run that is killed in between repeats them
    if progress.phase != "done" and time.perf_counter() - saved < _CHECKPOINT_SECONDS:
        return saved
    run.sync_metrics()
    save_checkpoint(run, config, history, model, optimizer, progress)
    return time.perf_counter()


def _write_results(
    model: nn.Module,
    dataset: Dataset,
    config: TrainingConfig,
    run: RunDirectory,
    history: list[EpochMetrics],
    full: Measurement,
    reached: Reached | None,
) -> None:
    """Write the network, the shrunk network and the result; the result last, because it marks the run as finished."""
    shrunk = shrink(model, dataset.example, form="module")
    # Measured after removal, so that the weights of dead units do not count.
    measurement = measure(shrunk, dataset.example).against(full)
    provenance = provenance_of(config, measurement)
    save(model, run.weights, provenance=provenance)
    run.write_result(
        RunResult(
            dataset=config.dataset,
            regularizer=config.regularizer,
            strength=config.strength if reached is None else reached.strength,
            seed=config.seed,
            epochs=len(history),
            accuracy=history[-1].test_accuracy,
            params_kept=measurement.params_kept,
            flops_kept=measurement.flops_kept,
            seconds=sum(metrics.seconds for metrics in history),
            measurement=measurement.to_dict(),
            small=asdict(write_shrunk(shrunk, dataset.example, run, provenance)),
            target=None if reached is None else reached.to_dict(),
            fingerprint=fingerprint(config, history),
        )
    )
