"""Hooks of the documentation site.

The pages link to each other and to files of the repository as they do on a code host. On the site, the pages of the
experiments and their pictures are included; links to other files (sources, results, folders) become plain text.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"

# Pages outside of docs/ that the site has too, and the name of the README, which would collide with the index.
INCLUDED = ("experiments/**/*.md", "experiments/**/*.png", "examples/**/*.md", "CONTRIBUTING.md", "CHANGELOG.md")
PROJECT_README = "project.md"

_LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\]]*\]\([^)]*\))*)\]\(([^)\s#]*)(#[^)\s]*)?\)")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages and pictures outside of docs/."""
    for pattern in INCLUDED:
        for path in sorted(ROOT.glob(pattern)):
            files.append(File.generated(config, _site_name(path), abs_src_path=str(path)))
    files.append(File.generated(config, PROJECT_README, abs_src_path=str(ROOT / "README.md")))
    return files


def on_page_markdown(markdown: str, page: Page, files: Files, **_: Any) -> str:
    """Point the links of a page at the site's names of their targets."""
    source = page.file.abs_src_path
    if source is None:
        return markdown
    here = Path(source).resolve()
    own = _site_name(here)

    def rewritten(link: re.Match[str]) -> str:
        bang, text, target, anchor = link[1], _LINK.sub(rewritten, link[2]), link[3], link[4] or ""
        if not target or target.startswith(("http:", "https:", "mailto:")):
            return f"{bang}[{text}]({target}{anchor})"
        name = _site_name((here.parent / target).resolve())
        if files.get_file_from_path(name) is None:
            return text
        relative = os.path.relpath(name, Path(own).parent)
        return f"{bang}[{text}]({relative}{anchor})"

    return _LINK.sub(rewritten, markdown)


def _site_name(path: Path) -> str:
    """The name that a file of the repository has on the site."""
    if path == ROOT / "README.md":
        return PROJECT_README
    inside = path.relative_to(DOCS) if path.is_relative_to(DOCS) else Path(os.path.relpath(path, ROOT))
    return inside.as_posix()
