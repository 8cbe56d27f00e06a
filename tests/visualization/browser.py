"""Headless Chromium for the tests of the page, through Selenium and Debian's `chromium` and `chromium-driver`."""

from __future__ import annotations

import base64
import json
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

__all__ = ["Browser", "open_browser", "what_is_missing"]

Scheme = Literal["light", "dark"]

# Without the middle ones, Chromium opens connections of its own.
_FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars",
    "--disable-quic", "--no-first-run", "--disable-background-networking", "--disable-component-update",
    "--disable-sync",
)  # fmt: skip
_DRAWN = "return document.documentElement.dataset.drawn === 'yes'"


def what_is_missing() -> str | None:
    """Say what has to be installed for a browser; None if nothing is missing."""
    if find_spec("selenium") is None:
        return "selenium is not installed: pip install 'gossamer[dev]'"
    missing = [name for name in ("chromium", "chromedriver") if shutil.which(name) is None]
    return f"no {' and no '.join(missing)}: apt-get install chromium chromium-driver" if missing else None


@dataclass(frozen=True)
class Browser:
    """A running Chromium."""

    driver: Any

    def show(self, page: Path, width: int, scheme: Scheme = "light", height: int = 900) -> None:
        """Open a page in a window of this size and wait until all charts are drawn; forget earlier messages."""
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
        self.resize(width, height)
        self.driver.get("about:blank")
        self.requests()
        self.messages()
        self.driver.get(page.resolve().as_uri())
        self.wait(lambda: self.run(_DRAWN))

    def resize(self, width: int, height: int) -> None:
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)

    def wait(self, condition: Callable[[], Any]) -> Any:
        """Wait until the condition holds, and return what it gives; fail if it does not in a minute."""
        from selenium.webdriver.support.wait import WebDriverWait

        return WebDriverWait(self.driver, 60).until(lambda _: condition())

    def run(self, script: str, *arguments: object) -> Any:
        return self.driver.execute_script(script, *arguments)

    def requests(self) -> list[str]:
        """Addresses that were asked for since the last call."""
        messages = [json.loads(entry["message"])["message"] for entry in self.driver.get_log("performance")]
        return [one["params"]["request"]["url"] for one in messages if one["method"] == "Network.requestWillBeSent"]

    def messages(self) -> list[str]:
        """What was written to the console since the last call: errors, warnings, refusals by the security policy."""
        return [entry["message"] for entry in self.driver.get_log("browser")]

    def screenshot(self, path: Path) -> None:
        """Take a picture of the window."""
        found = self.driver.execute_cdp_cmd("Page.captureScreenshot", {"format": "png"})
        path.write_bytes(base64.b64decode(found["data"]))


@contextmanager
def open_browser() -> Iterator[Browser]:
    """Start Chromium with a profile of its own, and end it."""
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    options = webdriver.ChromeOptions()
    options.binary_location = str(shutil.which("chromium"))
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    with tempfile.TemporaryDirectory(prefix="chromium-", ignore_cleanup_errors=True) as profile:
        for flag in (*_FLAGS, f"--user-data-dir={profile}"):
            options.add_argument(flag)
        driver = webdriver.Chrome(options=options, service=Service(str(shutil.which("chromedriver"))))
        try:
            yield Browser(driver)
        finally:
            driver.quit()
