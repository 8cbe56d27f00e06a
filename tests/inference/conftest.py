"""Libraries compiled by these tests go into a cache of their own, and nothing depends on how fast they are."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from gossamer.inference import compilation


@pytest.fixture(scope="session", autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        patch.setattr(compilation, "_CALIBRATION", 0.001)
        yield
