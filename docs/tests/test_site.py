# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The site: every page is in its navigation, and Sphinx builds it without a warning."""

import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

DOCS = Path(__file__).resolve().parents[1]
PAGES = {path.relative_to(DOCS).with_suffix("").as_posix() for path in DOCS.rglob("*.md")}


def entries(page: str) -> list[str]:
    """The pages that the toctrees of a page have, as names below docs."""
    text = (DOCS / f"{page}.md").read_text(encoding="utf-8")
    found = []
    for block in re.findall(r"^```\{toctree\}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL):
        lines = [line.strip() for line in block.splitlines()]
        found += [line for line in lines if line and not line.startswith(":") and "<" not in line]
    folder = Path(page).parent
    return [(folder / name).as_posix() for name in found]


def test_every_page_is_reached_from_the_front_page_exactly_once() -> None:
    reached, waiting = Counter(["index"]), ["index"]
    while waiting:
        for page in entries(waiting.pop()):
            reached[page] += 1
            waiting += [page] if reached[page] == 1 else []
    assert set(reached) == PAGES
    assert {page for page, times in reached.items() if times > 1} == set()


@pytest.mark.more
def test_the_site_has_every_page(site: Path) -> None:
    assert {page for page in PAGES if not (site / f"{page}.html").is_file()} == set()


@pytest.fixture(scope="module")
def search_index(site: Path) -> dict[str, Any]:
    text = (site / "searchindex.js").read_text(encoding="utf-8")
    index: dict[str, Any] = json.loads(text[text.index("(") + 1 : text.rindex(")")])
    return index


@pytest.mark.more
@pytest.mark.parametrize(("stem", "page"), [("ds_acceler", "selection"), ("mpi4pi", "upstream-hooks")])
def test_a_search_finds_the_pages_with_a_word(search_index: dict[str, Any], stem: str, page: str) -> None:
    found = search_index["terms"][stem]
    numbers = found if isinstance(found, list) else [found]
    assert page in {search_index["docnames"][number] for number in numbers}


@pytest.mark.more
def test_a_search_finds_the_paragraph_of_a_code(search_index: dict[str, Any]) -> None:
    (place,) = [places for title, places in search_index["alltitles"].items() if title.startswith("ACC-409")]
    assert [(search_index["docnames"][page], anchor) for page, anchor in place] == [("errors", "acc-409")]


@pytest.mark.more
def test_the_reference_has_the_names_of_the_public_modules(site: Path) -> None:
    page = (site / "api/vendor.html").read_text(encoding="utf-8")
    assert 'id="accel_core.vendor.Vendor"' in page
    assert 'id="accel_core.vendor.Trait.unsupported"' in page
    assert 'id="accel_ops.io.load"' in (site / "api/ops.html").read_text(encoding="utf-8")


@pytest.mark.more
def test_a_link_to_a_file_outside_the_site_leads_to_the_repository(site: Path) -> None:
    page = (site / "quickstart.html").read_text(encoding="utf-8")
    assert "https://github.com/accel-project/accel/blob/main/examples/README.md" in page
