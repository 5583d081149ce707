# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""What the tests of the pages share: a reader's shell, and the built site, read or browsed."""

import importlib.util
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

DOCS = Path(__file__).resolve().parents[1]
CHROMIUM = ("chromium", "chromium-browser", "google-chrome")
#: What the packages of requirements-docs.txt are called when they are imported.
MODULES = ("furo", "griffe", "myst_parser", "sphinx", "sphinx_copybutton", "sphinx_design")

#: Variables of a run of tests or of a job, which a reader's shell has not.
JOB = ("ACCEL_", "COLUMNS", "CROSS_", "DS_", "LOCAL_", "MASTER_", "PYTEST_", "RANK", "SLURM_", "WORLD_SIZE")


@pytest.fixture(scope="session")
def shell() -> Callable[..., subprocess.CompletedProcess[str]]:
    """Run a line as a reader's shell does, with these additional variables; errors are in the output.

    What it compiles is kept where the test run keeps it. The limit of time is that of each test.
    """
    kept = {name: value for name, value in os.environ.items() if not name.startswith(JOB)}
    kept |= {name: os.environ[name] for name in ("ACCEL_CACHE_DIR",) if name in os.environ}
    kept["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), kept["PATH"]])
    kept |= {"OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1"}

    def run(line: str, folder: Path, **variables: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["bash", "-ec", line], cwd=folder, env={**kept, **variables}, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, encoding="utf-8", errors="replace", check=False,
        )  # fmt: skip

    return run


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
