# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The built site, for the tests that read it and for those that browse it."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

DOCS = Path(__file__).resolve().parents[1]
CHROMIUM = ("chromium", "chromium-browser", "google-chrome")
#: What the packages of requirements-docs.txt are called when they are imported.
MODULES = ("furo", "griffe", "myst_parser", "sphinx", "sphinx_copybutton", "sphinx_design")


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The built site; the build needs no network, no torch and none of our packages."""
    missing = [name for name in MODULES if importlib.util.find_spec(name) is None]
    if missing:
        pytest.skip(f"not installed: {', '.join(missing)} (pip install -r requirements-docs.txt)")
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "sphinx", "-W", "-n", "--keep-going", "-q", "-b", "html", str(DOCS)]
    done = subprocess.run(
        [*command, str(folder)], cwd=DOCS.parent, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    """Chromium, without a window."""
    reason = "not run: package playwright (requirements-browser.txt)"
    playwright: Any = pytest.importorskip("playwright.sync_api", reason=reason)
    chromium = next(filter(None, map(shutil.which, CHROMIUM)), None)
    if chromium is None:
        pytest.skip("not run: package chromium")
    with playwright.sync_playwright() as tool:
        opened = tool.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        yield opened
        opened.close()


@pytest.fixture
def page(browser: Any) -> Iterator[Any]:
    """A new page, without a network but this machine; what it writes to its console is in `page.said`."""
    context = browser.new_context()
    context.route(
        "**/*", lambda route: route.continue_() if "127.0.0.1" in route.request.url else route.abort()
    )
    opened = context.new_page()
    opened.said = []
    opened.on(
        "console", lambda message: opened.said.append(message.text) if message.type == "error" else None
    )
    opened.on("pageerror", lambda error: opened.said.append(str(error)))
    yield opened
    context.close()
