# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Run the suite inside a test: on the good accelerator, and on its broken variants."""

import importlib
import json
import os
import shutil
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from importlib.machinery import ModuleSpec
from pathlib import Path
from typing import Any

import pytest

import accel_core

PRETEND = Path(__file__).with_name("pretend")
METADATA = """Metadata-Version: 2.4
Name: accel-good
Version: 1.0
Requires-Dist: accel-core>=0.1,<0.3
Requires-Dist: torch>=2.8
"""
ENTRY_POINTS = "[accel.vendors]\ngood = accel_good.vendor:VENDOR\n"
#: The variants whose processes are started in quick runs too; one for each kind of process.
QUICK = {"class_swallows_an_import", "record_imports_torch"}
QUICK |= {"CollectiveIsNotReduced", "VisibleDevicesAreIgnored"}
#: Of no use here, and half the time of a run.
SLOW_PLUGINS = [
    option
    for name in ("logging", "unraisableexception", "threadexception", "warnings", "junitxml", "doctest")
    for option in ("-p", f"no:{name}")
]
#: Fixtures of the suite that start processes.
STARTING = ("report", "answers", "alone", "bare", "pair", "seen")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """One test for each variant."""
    if "variant" in metafunc.fixturenames:
        variants = _load_variants()
        metafunc.parametrize("variant", [_parameter(variants[name]) for name in sorted(variants)])


def _load_variants() -> dict[str, Any]:
    sys.path.insert(0, str(PRETEND))
    try:
        return dict(importlib.import_module("broken").load())
    finally:
        sys.path.remove(str(PRETEND))


@pytest.fixture
def variants() -> dict[str, Any]:
    """All broken variants, by name."""
    return _load_variants()


def _parameter(variant: Any) -> Any:
    slow = variant.started and variant.name not in QUICK
    return pytest.param(variant, id=variant.name, marks=[pytest.mark.slow] if slow else [])


@dataclass
class Only:
    """A plug-in for the run inside: keep the checks that start processes through one fixture, or those that do not.

    checks: ids of which to keep those checks alone, with or without a parameter; all if empty.
    The good accelerator's memory counters run while a check does, and at no other time.
    """

    started: str
    checks: frozenset[str] = frozenset()
    collected: set[str] = field(default_factory=set)

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Drop the other checks."""
        items[:] = [item for item in items if self._wanted(item)]

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Keep the ids of what is left."""
        about = [dict(item.user_properties).get("accel-check") for item in session.items]
        self.collected.update(check["id"] for check in about if isinstance(check, dict))

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Any:
        """Count what the check allocates."""
        with importlib.import_module("accel_good.runtime").Meter():
            return (yield)

    def _wanted(self, item: pytest.Item) -> bool:
        fixtures = set(getattr(item, "fixturenames", ()))
        name = f"{item.path.stem.removeprefix('test_')}.{item.name.removeprefix('test_')}"
        if self.checks and not self.checks & {name, name.partition("[")[0]}:
            return False
        return self.started in fixtures if self.started else not fixtures.intersection(STARTING)


@dataclass
class Outcome:
    """What a run of the suite showed: ids of the checks collected, and the file of --results."""

    code: int
    collected: set[str] = field(default_factory=set)
    document: dict[str, Any] = field(default_factory=dict)

    def ids(self, *outcomes: str) -> set[str]:
        """Ids of the checks with one of these outcomes; of all checks if none is named."""
        checks = self.document["checks"]
        return {check["id"] for check in checks if check["outcome"] in outcomes or not outcomes}


RunSuite = Callable[..., Outcome]


@pytest.fixture(scope="session")
def cpu_info() -> Any:
    """Import DeepSpeed with a good accelerator: it asks for the ops of the accelerator, which a broken one fails at.

    The table of its report too, which core makes again for each accelerator that is set, once it is there.
    Returns what its host optimizers start a process for, each time, to learn the CPU's name.
    """
    importlib.import_module("deepspeed")
    importlib.import_module("deepspeed.ops.op_builder.all_ops")
    return importlib.import_module("cpuinfo.cpuinfo").get_cpu_info_json()


@pytest.fixture
def run_suite(cpu_info, tmp_path, monkeypatch) -> Iterator[RunSuite]:
    """Runs the suite in this process; environment and path are restored afterwards."""
    before = dict(os.environ)
    monkeypatch.syspath_prepend(PRETEND)
    monkeypatch.delenv("PYTEST_ADDOPTS", raising=False)
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    # torch sets it for good when its compiler is imported, as another test may have done: children have to see it set.
    monkeypatch.delenv("TORCHINDUCTOR_CACHE_DIR", raising=False)
    monkeypatch.setitem(sys.modules, "triton", None)  # a variant imports it
    monkeypatch.setattr("cpuinfo.cpuinfo.get_cpu_info_json", lambda: cpu_info)
    (tmp_path / "pytest.ini").write_text("[pytest]\n", encoding="utf-8")

    def run(*arguments: str, started: str = "", checks: frozenset[str] = frozenset()) -> Outcome:
        results = tmp_path / "results.json"
        options = ["-c", str(tmp_path / "pytest.ini"), "--rootdir", str(tmp_path), "-p", "no:cacheprovider"]
        plugins = ["-p", "accel_testkit.plugin", *SLOW_PLUGINS]
        command = [*options, *plugins, "-q", "--results", str(results), "--pyargs", *arguments]
        only = Only(started, checks)
        code = int(pytest.main(command, plugins=[only]))
        document = json.loads(results.read_text(encoding="utf-8")) if results.is_file() else {}
        return Outcome(code, only.collected, document)

    yield run
    accel_core.set_accelerator(None)  # a broken one may have been left behind
    for name in set(os.environ) - set(before):
        del os.environ[name]
    os.environ.update(before)


@pytest.fixture
def site(run_suite: RunSuite, tmp_path: Path) -> Any:
    """The good package, as if it were installed once `install_site` is called."""
    return importlib.import_module("broken").Site(tmp_path / "site", METADATA, ENTRY_POINTS)


@pytest.fixture
def install_site(site: Any, monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Writes the site and puts it on the path of this process and its children."""

    def install() -> None:
        runtime = importlib.import_module("accel_good.runtime")
        monkeypatch.setattr(runtime.TheRuntime, "now", runtime.Runtime())
        # The good accelerator counts exactly; only a process's own memory needs large blocks to be seen.
        monkeypatch.setattr("accel_testkit.suite.test_memory._BLOCK", 4 << 20)
        monkeypatch.setattr("accel_testkit.suite.test_memory._SEEN", 3 << 20)
        info = site.folder / "accel_good-1.0.dist-info"
        info.mkdir(parents=True)
        (info / "METADATA").write_text(site.metadata, encoding="utf-8")
        (info / "entry_points.txt").write_text(site.entry_points, encoding="utf-8")
        if site.files:
            _write_copy(site, monkeypatch)
        monkeypatch.syspath_prepend(site.folder)
        monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(site.folder), str(PRETEND)]))

    return install


def _write_copy(site: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The children import the copy; in this process the modules stay, and only the package's place changes."""
    import accel_good

    copy = site.folder / "accel_good"
    shutil.copytree(PRETEND / "accel_good", copy, ignore=shutil.ignore_patterns("__pycache__"))
    for name, text in site.files.items():
        path = site.folder / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")
    spec = ModuleSpec("accel_good", None, origin=str(copy / "__init__.py"))
    monkeypatch.setattr(accel_good, "__spec__", spec)


@pytest.fixture
def run_variant(run_suite, site, install_site, monkeypatch) -> Any:
    """Runs the checks that have to notice a variant."""

    def run(variant: Any) -> Any:
        thing, is_class = variant.thing, isinstance(variant.thing, type)
        if not is_class:
            thing(site, monkeypatch)
        install_site()
        files = [f"accel_testkit.suite.test_{name}" for name in sorted(variant.files)]
        suite = files or ["accel_testkit.suite"]
        # Other checks than those of ops are about what checks of the same function leave behind, too.
        whole = [check if check.startswith("op") else check.partition("[")[0] for check in variant.fails]
        checks = frozenset(whole if files else ())
        if is_class and variant.started:
            dotted = f"{thing.__module__}:{thing.__name__}"
            return run_suite(*suite, "--accel-class", dotted, started=variant.started, checks=checks)
        if is_class:
            monkeypatch.setattr("accel_good.accelerator.GOOD_Accelerator", thing)
        return run_suite(*suite, "--accel", "good", started=variant.started, checks=checks)

    return run
