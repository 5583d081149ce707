# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The site in a real browser: Chromium, without a window, driven by playwright.

Setup: `apt-get install chromium` and `pip install -r requirements-browser.txt`.
"""

import functools
import http.server
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.slow

DOCS = Path(__file__).resolve().parents[1]
PAGES = sorted(path.relative_to(DOCS).with_suffix(".html").as_posix() for path in DOCS.rglob("*.md"))
#: Pages of each kind: front page, prose, tables, reference, generated results.
KINDS = (
    "index.html",
    "install.html",
    "symptoms.html",
    "errors.html",
    "matrix.html",
    "api/vendor.html",
    "vendors/npu.html",
)
NO_AXE = "not run: package axe-playwright-python (requirements-browser.txt)"
#: Impacts that no page may have.
SERIOUS = ("serious", "critical")


class _Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing: requests are not output of a test."""


@pytest.fixture(scope="module")
def address(site: Path) -> Iterator[str]:
    """The site, served on a port of this machine."""
    handler = functools.partial(_Quiet, directory=str(site))
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/"
    finally:
        server.shutdown()
        server.server_close()


def test_the_matrix_is_filtered_by_its_lists_and_counts_its_rows(page: Any, address: str) -> None:
    page.goto(f"{address}matrix.html")
    rows = page.locator("#every-cell tbody tr")
    everything = rows.count()
    form = page.get_by_role("form", name="Filter the table")
    form.get_by_label("accelerator").select_option("npu")
    form.get_by_label("evidence").select_option("not run")
    shown = page.locator("#every-cell tbody tr:visible")
    assert 0 < shown.count() < everything
    assert all("npu" in text.split(", ") for text in shown.locator("td:nth-child(2)").all_inner_texts())
    assert form.locator("output").inner_text() == f"{shown.count()} of {everything} rows"
    form.get_by_label("accelerator").select_option("")
    form.get_by_label("evidence").select_option("")
    assert shown.count() == everything


def test_no_page_has_an_error(page: Any, address: str) -> None:
    for name in PAGES:
        page.goto(address + name)
    assert page.said == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("name", KINDS)
def test_a_page_is_accessible(page: Any, address: str, name: str, scheme: str) -> None:
    page.emulate_media(color_scheme=scheme)
    page.goto(address + name)
    axe: Any = pytest.importorskip("axe_playwright_python.sync_playwright", reason=NO_AXE)
    serious = {
        each["id"]: [node["html"][:120] for node in each["nodes"][:3]]
        for each in axe.Axe().run(page).response["violations"]
        if each["impact"] in SERIOUS
    }
    assert serious == {}
