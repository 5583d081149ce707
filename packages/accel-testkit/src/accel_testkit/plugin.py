# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The pytest plug-in of the conformance suite: its options, its tiers, and what a run reports.

    pytest --pyargs accel_testkit.suite --accel npu --tier host --results results.json

Pytest loads this module in every run of an environment that has the testkit. So it imports nothing heavy, and touches
no test outside the suite.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from accel_testkit.fake_runtime import FakeRuntime

TIERS = ("host", "device", "multi")
_ENVIRONMENT = pytest.StashKey[dict[str, str]]()
_FOLDERS = [Path(__file__).with_name(name) for name in ("suite", "engine")]
_MARKERS = (
    "tier(name): what the check needs: `host` any machine, `device` one device, `multi` two",
    "needs(*traits): skipped, with the reason, where the vendor declares one of these traits",
    "whole: not part of --quick",
    "record: about the vendor's record or package; not part of a run with --accel-class",
)


@pytest.fixture
def fake_runtime(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> FakeRuntime:
    """A machine on which a test can install a fake runtime, for the tests of a vendor's probe."""
    from accel_testkit.fake_runtime import FakeRuntime

    return FakeRuntime(tmp_path_factory.mktemp("machine"), monkeypatch)


@pytest.fixture(scope="session")
def run_environment(pytestconfig: pytest.Config) -> dict[str, str]:
    """The environment variables at the start of the run, before an accelerator could change them."""
    return pytestconfig.stash[_ENVIRONMENT]


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options of the suite."""
    group = parser.getgroup("accel", "conformance of a DeepSpeed accelerator (--pyargs accel_testkit.suite)")
    group.addoption("--accel", metavar="KEY", default="", help="the installed vendor with this key is tested")
    group.addoption(
        "--accel-class",
        metavar="PACKAGE.MODULE:CLASS",
        default="",
        help="this accelerator class is tested, without its package",
    )
    group.addoption(
        "--tier", action="append", choices=TIERS, help="only this tier; may be repeated (default: all)"
    )
    group.addoption(
        "--quick",
        action="store_true",
        help="leave out what takes long: the training, and most of the engine's configurations",
    )
    group.addoption("--results", metavar="FILE", type=Path, help="write the outcome of every check as JSON")
    group.addoption(
        "--resume", action="store_true", help="go on with the run of --results that a crash or a signal ended"
    )


def pytest_configure(config: pytest.Config) -> None:
    """Register the suite's markers, and keep the environment, which the accelerator may change."""
    config.stash[_ENVIRONMENT] = dict(os.environ)
    if config.getoption("resume") and not config.getoption("results"):
        raise pytest.UsageError("--resume needs --results FILE")
    for marker in _MARKERS:
        config.addinivalue_line("markers", marker)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Skip the checks in a run over a whole source tree: they are run only by their package's name."""
    if collection_path not in _FOLDERS:
        return None
    package = f"{collection_path.parent.name}.{collection_path.name}"
    named = any(package in arg.replace("\\", "/").replace("/", ".") for arg in config.args)
    return None if named else True


def is_check(item: pytest.Item) -> bool:
    """Return whether a collected test belongs to the suite."""
    return item.path.parent in _FOLDERS


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keep the checks of the tiers asked for; the rest is deselected, never skipped."""
    checks = [item for item in items if is_check(item)]
    if not checks:
        return
    # First, because their failures explain those of ops.
    items.sort(key=lambda item: is_check(item) and item.path.stem != "test_operators")
    from accel_testkit.suite import results, target

    config.stash[target.TARGET] = target.named(config.getoption("accel"), config.getoption("accel_class"))
    tiers = config.getoption("tier") or TIERS
    marks = ["whole"] * config.getoption("quick") + ["record"] * (config.stash[target.TARGET].vendor is None)
    _deselect(config, items, lambda item: results.tier(item) not in tiers)
    _deselect(config, items, lambda item: any(item.get_closest_marker(mark) is not None for mark in marks))
    for item in checks:
        item.user_properties.append((results.PROPERTY, results.describe(item)))
        item.user_properties.append((results.ABOUT, results.about(item)))
    if not hasattr(config, "workerinput"):
        file, resumed = config.getoption("results"), config.getoption("resume")
        recorder = results.RunRecorder(config.stash[target.TARGET], tuple(tiers), file, resumed)
        config.pluginmanager.register(recorder, "accel-results")
        done = recorder.resume([item for item in items if is_check(item)])
        _deselect(config, items, lambda item: results.describe(item)["id"] in done)


def _deselect(
    config: pytest.Config, items: list[pytest.Item], unwanted: Callable[[pytest.Item], bool]
) -> None:
    dropped = [item for item in items if is_check(item) and unwanted(item)]
    if dropped:
        config.hook.pytest_deselected(items=dropped)
        items[:] = [item for item in items if item not in dropped]
