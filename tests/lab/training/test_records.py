from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from gossamer.errors import GossamerError
from gossamer_lab.reporting.path_report import write_path_report
from gossamer_lab.reporting.study_report import StudyRecord, Trial, write_study_report
from gossamer_lab.training.records import read_record, write_record


def test_a_record_comes_back(tmp_path: Path) -> None:
    values: dict[str, Any] = {"a": 0.1 + 0.2, "b": [1, None], "c": {"d": "ä"}}
    write_record(tmp_path / "record", values)
    assert read_record(tmp_path / "record", 10_000) == values


@pytest.mark.parametrize("content", ["", "[1]", "[" * 100_000, '{"a":' * 100_000, "\udcff", '{"a": 1, "sha256": "0"}'])
def test_what_is_no_record_is_a_value_error(tmp_path: Path, content: str) -> None:
    (tmp_path / "record").write_text(content, errors="surrogateescape")
    with pytest.raises(ValueError, match=r"."):
        read_record(tmp_path / "record", 2**20)


def test_a_large_file_is_not_read(tmp_path: Path) -> None:
    (tmp_path / "record").touch()
    os.truncate(tmp_path / "record", 2**40)
    with pytest.raises(OSError, match="more than 1,000 bytes"):
        read_record(tmp_path / "record", 1_000)


def test_the_record_of_a_study_is_what_was_written_or_refused(tmp_path: Path) -> None:
    StudyRecord("s", "digits", "l1", "gossamer", {}, 0, [Trial(0, {"a": 1.0}, 0.875, 0.5)], {}).write(tmp_path)
    file = tmp_path / "study.json"
    assert StudyRecord.read(tmp_path).trials[0].accuracy == 0.875
    file.write_text(file.read_text().replace("0.875", "0.975"))
    with pytest.raises(GossamerError, match=r"study\.json is corrupt.*its checksum differs"):
        write_study_report(tmp_path)
    file.write_text("[" * 100_000)
    with pytest.raises(GossamerError, match=r"study\.json is corrupt.*nested too deeply"):
        write_study_report(tmp_path)


def test_the_record_of_a_path_in_which_a_digit_was_changed_is_refused(tmp_path: Path) -> None:
    write_record(tmp_path / "path.json", {"points": {}, "seed": 1})
    file = tmp_path / "path.json"
    assert json.loads(file.read_text())["seed"] == 1
    file.write_text(file.read_text().replace('"seed": 1', '"seed": 2'))
    with pytest.raises(GossamerError, match=r"path\.json is corrupt.*its checksum differs"):
        write_path_report(tmp_path)
