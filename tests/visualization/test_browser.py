"""The page in headless Chromium: it renders, says nothing, asks for nothing, and answers pointer and keyboard."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from gossamer.visualization import Page, Run, Series, Study, write_page

from .browser import Browser, Scheme, open_browser, what_is_missing
from .conftest import HOSTILE

pytest.importorskip("plotly")
pytestmark = pytest.mark.skipif(what_is_missing() is not None, reason=what_is_missing() or "")

WINDOWS = [(320, "light"), (390, "light"), (390, "dark"), (820, "dark"), (1400, "light"), (1400, "dark")]


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with open_browser() as started:
        yield started


@pytest.fixture(scope="module")
def file(page: Page, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page with latencies, and with a run whose name is an attack."""
    network = page.network
    assert network is not None
    variants = tuple(replace(form, seconds={"1 input": 0.001, "64 inputs": 0.01}) for form in network.variants)
    runs = (*page.runs, replace(page.runs[2], label=HOSTILE))
    full = replace(page, network=replace(network, variants=variants), runs=runs)
    return write_page(full, tmp_path_factory.mktemp("page") / "report.html")


@pytest.mark.parametrize(("width", "scheme"), WINDOWS)
def test_it_renders_without_errors_requests_or_sideways_scrolling(
    browser: Browser, file: Path, width: int, scheme: Scheme
) -> None:
    browser.show(file, width, scheme)
    assert browser.messages() == []
    requested = [url for url in browser.requests() if not url.startswith("data:")]
    assert requested == [file.resolve().as_uri()]
    assert browser.run("return document.documentElement.scrollWidth") <= width
    assert browser.run("return document.querySelectorAll('.plot').length") == 8
    assert browser.run("return document.querySelectorAll('.plot > .js-plotly-plot, .plot.js-plotly-plot').length") == 8
    inside = (
        "return [...document.querySelectorAll('.plot')].every(p => p.querySelector('svg').clientWidth <= p.clientWidth)"
    )
    assert browser.run(inside)
    images = "return [...document.images].every(image => image.complete && image.naturalWidth > 0)"
    assert browser.run(images)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_colours_follow_the_scheme_also_while_the_page_is_open(browser: Browser, file: Path, scheme: Scheme) -> None:
    other: Scheme = "dark" if scheme == "light" else "light"
    browser.show(file, 1400, other)
    ground = "return getComputedStyle(document.body).backgroundColor"
    text = "return getComputedStyle(document.querySelector('#accuracy .legendtext')).fill"
    before = browser.run(ground), browser.run(text)
    features = [{"name": "prefers-color-scheme", "value": scheme}]
    browser.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
    browser.wait(lambda: browser.run(ground) != before[0])
    browser.wait(lambda: browser.run(text) != before[1])
    assert browser.messages() == []


def hover(browser: Browser, chart: str, target: str) -> str:
    """Move the pointer to an element of a chart and read what appears."""
    from selenium.webdriver import ActionChains
    from selenium.webdriver.common.by import By

    browser.run("document.documentElement.style.scrollBehavior = 'auto'")
    browser.run("document.getElementById(arguments[0]).scrollIntoView({block: 'center'})", chart)
    found = browser.driver.find_element(By.CSS_SELECTOR, f"#{chart} {target}")
    box = browser.run(
        "const b = arguments[0].getBoundingClientRect(); return [b.x + b.width / 2, b.y + b.height / 2]", found
    )
    actions = ActionChains(browser.driver)
    actions.w3c_actions.pointer_action.move_to_location(0, 0)
    actions.w3c_actions.pointer_action.move_to_location(*map(round, box))
    actions.perform()
    words = f"return [...document.querySelectorAll('#{chart} .hoverlayer text')].map(t => t.textContent).join(' ')"
    return str(browser.wait(lambda: browser.run(words)))


def test_hover_shows_the_numbers(browser: Browser, file: Path) -> None:
    browser.show(file, 1400)
    point = hover(browser, "tradeoff", ".points path")
    assert all(part in point for part in ("ours", "test accuracy 96.00%", "weights kept 10.00%", "MACs kept 20.00%"))
    bar = hover(browser, "layers-kept", ".points .point:nth-child(2) path")
    assert "hidden" in bar
    assert "of 1,920" in bar
    epoch = hover(browser, "accuracy", ".nsewdrag")
    assert "ours" in epoch
    assert "dense" in epoch
    assert browser.messages() == []


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A path beside trainings from scratch, one of which has a name that is an attack."""
    sizes = [1.0, 0.2, 0.05]
    path = [Run(f"{100 * size:g}%", 0.9 + size / 20, size, size, dense_flops=size**0.5) for size in sizes]
    scratch = [replace(run, label=HOSTILE, accuracy=0.9) for run in path[1:]]
    series = (Series("path", tuple(path), joined=True), Series(HOSTILE, tuple(scratch), joined=True))
    page = Page("a path", study=Study(series, "target"), score="test accuracy", configuration=(("seed", "0"),))
    return write_page(page, tmp_path_factory.mktemp("study") / "report.html")


@pytest.mark.parametrize(("width", "scheme"), [(390, "dark"), (1400, "light")])
def test_a_study_renders_and_answers(browser: Browser, study: Path, width: int, scheme: Scheme) -> None:
    from selenium.webdriver.common.by import By
    from selenium.webdriver.common.keys import Keys

    browser.show(study, width, scheme)
    assert browser.run("return document.documentElement.scrollWidth") <= width
    point = hover(browser, "tradeoff", ".points path:nth-child(2)")
    assert all(part in point for part in ("20%", "test accuracy 91.00%", "weights kept 20.00%", "shrink 44.72%"))
    browser.driver.find_element(By.ID, "tradeoff-choice").send_keys(Keys.END)
    xs = "return document.getElementById('tradeoff').data[0].x.map(Math.round)"
    browser.wait(lambda: browser.run(xs) == [100, 45, 22])
    labels = "return [...document.querySelectorAll('#tradeoff .legendtext')].map(text => text.textContent)"
    assert HOSTILE in browser.run(labels)
    assert browser.run("return document.querySelectorAll('main img, .plot a[href]').length") == 0
    assert browser.messages() == []


def test_a_hostile_label_is_shown_as_it_is(browser: Browser, file: Path) -> None:
    browser.show(file, 1400)
    labels = "return [...document.querySelectorAll('#accuracy .legendtext')].map(text => text.textContent)"
    assert HOSTILE in browser.run(labels)
    assert browser.run("return document.querySelectorAll('.plot img, .plot a[href]').length") == 0


def test_a_layer_is_chosen_by_keyboard(browser: Browser, file: Path) -> None:
    from selenium.webdriver.common.by import By
    from selenium.webdriver.common.keys import Keys

    browser.show(file, 390)
    counts = "return document.getElementById('histogram').data[0].y"
    whole = browser.run(counts)
    browser.driver.find_element(By.ID, "histogram-choice").send_keys(Keys.ARROW_DOWN)
    browser.wait(lambda: browser.run(counts) != whole)
    assert sum(browser.run(counts)) == 54


def test_the_keyboard_reaches_links_details_and_tables(browser: Browser, file: Path) -> None:
    from selenium.webdriver.common.by import By
    from selenium.webdriver.common.keys import Keys

    browser.show(file, 390)
    body = browser.driver.find_element(By.TAG_NAME, "body")
    body.send_keys(Keys.TAB)
    assert browser.run("return document.activeElement.textContent") == "Skip to the content"
    kinds = set()
    for _ in range(60):
        browser.driver.switch_to.active_element.send_keys(Keys.TAB)
        kinds.add(browser.run("return document.activeElement.className || document.activeElement.tagName"))
    assert {"A", "SUMMARY", "scroll", "SELECT"} <= kinds
    summary = browser.driver.find_element(By.CSS_SELECTOR, "#accuracy ~ details summary")
    summary.send_keys(Keys.ENTER)
    assert browser.run("return arguments[0].parentElement.open", summary)


def test_without_javascript_the_tables_are_there(browser: Browser, file: Path) -> None:
    browser.driver.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": True})
    try:
        browser.driver.get(file.resolve().as_uri())
        text = browser.driver.page_source
    finally:
        browser.driver.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": False})
    assert "The charts need JavaScript" in text
    assert text.count("<table") >= 5
