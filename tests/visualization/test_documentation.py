"""The example of the page on the report runs as it stands."""

import re
from pathlib import Path

import pytest

DOCUMENTATION = Path(__file__).parents[2] / "docs" / "report.md"


def test_the_example_writes_a_report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, without_bundle: None) -> None:
    monkeypatch.chdir(tmp_path)
    (example,) = re.findall(r"```python\n(.*?)```", DOCUMENTATION.read_text(encoding="utf-8"), flags=re.DOTALL)
    exec(compile(example, str(DOCUMENTATION), "exec"), {})
    assert "<h1>Sequential</h1>" in (tmp_path / "report.html").read_text(encoding="utf-8")
