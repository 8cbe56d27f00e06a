"""The command `gossamer sweep`: worker processes on one study, and what has come of it."""

from __future__ import annotations

import json
import math
import signal
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any

from gossamer.errors import GossamerError
from gossamer_lab.cli.data import download_bars
from gossamer_lab.cli.display import Display
from gossamer_lab.cli.options import command_line
from gossamer_lab.cli.progress import progress_reporter
from gossamer_lab.cli.report import show_report
from gossamer_lab.cli.workers import worker_context
from gossamer_lab.data import obtain
from gossamer_lab.reporting.study_report import StudyRecord, Trial
from gossamer_lab.reporting.tables import Table, percent
from gossamer_lab.sweeps.address import address, without_password
from gossamer_lab.sweeps.pareto import pareto_figure, pareto_front
from gossamer_lab.sweeps.search import Result, Search, States, failures, open_search, results, states
from gossamer_lab.sweeps.training_trials import TrainingTrial, work_on_trainings
from gossamer_lab.training import SETTINGS, TrainingConfig, defaults, regularizer_spec

__all__ = ["SweepOptions", "run_sweep"]

_VALIDATION = 0.2  # of the training images: the test images are not for choosing
_SECONDS_BETWEEN_LOOKS = 1.0
_LONGEST_NAME = 100
_MOST_TRAININGS = 10_000


@dataclass(frozen=True)
class SweepOptions:
    """The options of the command."""

    dataset: str
    vary: tuple[str, ...]
    trials: int | None
    regularizer: str
    epochs: int | None
    workers: int
    storage: str
    name: str | None
    output: Path
    seed: int
    data_dir: Path | None
    quiet: bool
    as_json: bool


def run_sweep(options: SweepOptions) -> int:
    """Work on the study until it is finished, and return the exit code."""
    config = _configuration(options)
    values = _varied(options)
    for name, each in values.items():
        for value in (min(each), max(each)):  # refuses a value that is not allowed, before anything is trained
            replace(config, **{name: value})  # type: ignore[arg-type]
    _require_few(values, options.trials)
    name = _name(options)
    settings = {name: value for name, value in asdict(config).items() if name not in values}
    search = Search(name, values, options.trials, options.seed, settings)
    url = address(options.storage).url
    with download_bars(silent=options.quiet) as on_download:
        obtain(options.dataset, options.data_dir, on_download)
    folder = options.output / search.name.replace(" ", "-")
    folder.mkdir(parents=True, exist_ok=True)
    trial = TrainingTrial(config, folder.resolve(), options.data_dir, prunes=options.trials is not None)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with open_search(search, url) as study:
        try:
            if not states(study).done:
                _run_workers(search, url, trial, options, study)
        except KeyboardInterrupt:
            Display().message("interrupted; the same command goes on")
            return 130
        found, ended, reasons = results(study), states(study), failures(study)
        _record(search, config, found, ended, options).write(folder)
        _show(found, ended, folder, options)
    if reasons:
        Display().message(f"The first training that failed: {reasons[0]}")
    return 0


def _require_few(values: Mapping[str, Sequence[float]], trials: int | None) -> None:
    """All trainings of a study are looked at again and again, by every worker."""
    count = math.prod(map(len, values.values())) if trials is None else trials
    if count > _MOST_TRAININGS:
        raise GossamerError(
            f"These are {count:,} trainings, and a study has {_MOST_TRAININGS:,} at most. Give fewer values, or "
            "ranges, NAME=LOW:HIGH, with fewer `--trials`."
        )


def _name(options: SweepOptions) -> str:
    """The name of the study, which is that of its folder, too."""
    name = f"{options.dataset} {options.regularizer}" if options.name is None else options.name
    if not 0 < len(name) <= _LONGEST_NAME or name.startswith(".") or "/" in name or not name.isprintable():
        raise GossamerError(
            f"`--name` must be the name of a folder, of at most {_LONGEST_NAME} characters, without slashes and not "
            f"beginning with a dot; received {name!r:.100}."
        )
    return name


def _varied(options: SweepOptions) -> dict[str, list[float]]:
    values: dict[str, list[float]] = {}
    for text in options.vary:
        name, numbers = _parsed(text, options)
        if name in values:
            raise GossamerError(f"`--vary {name}=...` is given twice. Give all values of {name!r} in one of them.")
        values[name] = numbers
    return values


def _configuration(options: SweepOptions) -> TrainingConfig:
    if options.dataset not in SETTINGS:
        raise GossamerError(f"Unknown data set {options.dataset!r}. Available: {', '.join(SETTINGS)}.")
    regularizer_spec(options.regularizer)
    chosen: dict[str, Any] = {**defaults(options.dataset, options.regularizer), "regularizer": options.regularizer}
    if options.epochs is not None:
        chosen["epochs"] = options.epochs
    return TrainingConfig(
        dataset=options.dataset, **{**chosen, "seed": options.seed, "validation_fraction": _VALIDATION}
    )


def _parsed(text: str, options: SweepOptions) -> tuple[str, list[float]]:
    """NAME=1,2,3 or, for a search, NAME=LOW:HIGH."""
    name, equals, written = text.partition("=")
    allowed = regularizer_spec(options.regularizer).options
    if not equals or name not in allowed:
        raise GossamerError(
            f"`--vary` takes NAME=VALUES, where NAME is one of {', '.join(sorted(allowed))} for "
            f"{options.regularizer!r}; received {text!r}."
        )
    try:
        numbers = [float(number) for number in written.split("," if options.trials is None else ":")]
    except ValueError:
        numbers = []
    fits = len(numbers) == len(set(numbers)) >= 1 and all(math.isfinite(number) for number in numbers)
    if options.trials is None and not fits:
        raise GossamerError(f"`--vary` takes distinct numbers, NAME=1e-4,1e-3, for a grid; received {text!r}.")
    if options.trials is not None and not (fits and len(numbers) == 2 and 0 < numbers[0] < numbers[1]):
        raise GossamerError(f"`--vary` takes NAME=LOW:HIGH, 0 < LOW < HIGH, with `--trials`; received {text!r}.")
    return name, numbers


def _run_workers(search: Search, url: str, trial: TrainingTrial, options: SweepOptions, study: Any) -> None:
    """Start the workers, report the progress of the whole study, and stop the workers with this process."""
    context: Any = worker_context()
    processes = [
        context.Process(target=work_on_trainings, args=(search, url, trial), daemon=True)
        for _ in range(min(options.workers, len(search.points())))
    ]
    for process in processes:
        process.start()
    try:
        with progress_reporter(silent=options.quiet) as progress:
            total = len(search.points())
            progress.start(search.name, total)
            shown = 0
            running = [process.sentinel for process in processes]
            while running:
                wait(running, _SECONDS_BETWEEN_LOOKS)
                # Before the look at the study: the last look comes after the last worker has ended.
                running = [process.sentinel for process in processes if process.is_alive()]
                now = states(study)
                done = now.finished + now.pruned + now.failed
                if done > shown:
                    progress.advance(_described(now), done - shown)
                    shown = done
    except BaseException:
        for process in processes:
            if process.pid is not None and process.is_alive():
                process.terminate()
        for process in processes:
            process.join()
        raise
    if not states(study).done:
        codes = ", ".join(str(process.exitcode) for process in processes)
        raise GossamerError(f"All workers have ended ({codes}) before the study. The same command goes on.")


def _described(now: States) -> str:
    return f"{now.finished} finished, {now.pruned} pruned, {now.failed} failed, {now.running} running"


def _record(
    search: Search, config: TrainingConfig, found: list[Result], ended: States, options: SweepOptions
) -> StudyRecord:
    varied = dict.fromkeys(search.values)
    given = {**asdict(options), "storage": without_password(options.storage)}
    given |= {"dataset": None, "quiet": None, "as_json": None}
    return StudyRecord(
        name=search.name,
        dataset=options.dataset,
        regularizer=options.regularizer,
        command=command_line(["gossamer", "sweep", options.dataset], given),
        configuration={**asdict(config), **varied},
        failed=ended.failed,
        trials=[_trial(result) for result in found],
    )


def _trial(result: Result) -> Trial:
    if result.values is None:
        return Trial(result.number, result.point)
    history = [(1 - error, kept) for error, kept in result.figures.get("history", ())]
    error, kept = result.values
    return Trial(result.number, result.point, 1 - error, kept, result.figures.get("flops_kept"), history)


def _show(found: list[Result], ended: States, folder: Path, options: SweepOptions) -> None:
    display = Display(quiet=options.as_json, silent=options.quiet)
    front = pareto_front(found)
    figure = pareto_figure(found, folder / "pareto.png")
    rows: list[dict[str, Any]] = [
        {"point": result.point, "accuracy": 1 - result.values[0], "params_kept": result.values[1]}
        for result in front
        if result.values is not None
    ]
    names = list(rows[0]["point"]) if rows else []
    cells = [
        [
            f"{percent(row['accuracy'])} %",
            f"{percent(row['params_kept'])} %",
            *(f"{row['point'][name]:.3g}" for name in names),
        ]
        for row in rows
    ]
    display.table(Table(("accuracy", "weights kept", *names), cells, "Pareto front, on validation images", align="rr"))
    display.text(_described(ended))
    display.text(f"figure:           {figure}")
    show_report(folder, display)
    if options.as_json:
        counts = {"finished": ended.finished, "pruned": ended.pruned, "failed": ended.failed}
        print(json.dumps({"dataset": options.dataset, **counts, "front": rows, "figure": str(figure)}))
