"""The worked layer of docs/native.md is what the library writes."""

import re
from pathlib import Path

PAGE = (Path(__file__).parents[1] / "docs" / "native.md").read_text()


def lines(text):
    """Without indentation and empty lines."""
    return "\n".join(line.strip() for line in text.splitlines() if line.strip())


def test_the_worked_layer_is_that_of_the_library(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    exec(re.search(r"```python\n(.*?)```", PAGE, re.DOTALL)[1], {})
    written = lines(Path("layer.c").read_text())
    shown = re.findall(r"```c\n(.*?)```", PAGE, re.DOTALL)
    assert len(shown) == 2
    for block in shown:
        assert lines(block) in written
