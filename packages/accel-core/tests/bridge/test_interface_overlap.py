# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Wheels of cores and of vendors with different interface numbers, in both directions: in a run, and for pip."""

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from accel_core.vendor import INTERFACE_VERSION, core_requirement

pytestmark = pytest.mark.slow

CORE = Path(__file__).parents[2]
TOY = Path(__file__).parents[4] / "shared/toy_vendors/accel-toy"
PIP = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet"]
NOW, NEXT, LATER = INTERFACE_VERSION, INTERFACE_VERSION + 1, INTERFACE_VERSION + 2
#: What a core of a later number has in its sources: an adapter, and a name that moved.
CHANGES = """CHANGES: Mapping[int, Change] = {
    INTERFACE_VERSION: Change(
        "priorities count in tens",
        lambda vendor: __import__("dataclasses").replace(vendor, priority=10 * vendor.priority),
    )
}"""
MOVED = """

__getattr__ = deprecated_names(__name__, {"runtime_evidence": "accel_core.vendor:evidence_of_runtime"})
"""
EXPLAINED = """
import json, accel_core
said = accel_core.explain()
toy = next(f for f in said.candidates if f.key == "toy")
print(json.dumps({"chosen": said.chosen, "priority": toy.priority, "reason": toy.reason}))
"""


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Cores with three successive numbers, and the toy vendor written for each of the first two."""
    folder = tmp_path_factory.mktemp("wheels")
    for number in (NOW, NEXT, LATER):
        build(core(tmp_path_factory.mktemp("core"), number), folder)
    for number in (NOW, NEXT):
        build(toy(tmp_path_factory.mktemp("toy"), number), folder)
    return folder


def core(folder: Path, number: int) -> Path:
    """The sources of a core with this interface number."""
    for name in ("pyproject.toml", "README.md"):
        shutil.copy(CORE / name, folder)
    package = folder / "src/accel_core"
    shutil.copytree(CORE / "src/accel_core", package, ignore=shutil.ignore_patterns("__pycache__"))
    (package / "__about__.py").write_text(f'__version__ = "{version(number)}"\n')
    if number != NOW:
        facade = package / "vendor/__init__.py"
        change(facade, f"INTERFACE_VERSION = {NOW}", f"INTERFACE_VERSION = {number}")
        change(facade, "CHANGES: Mapping[int, Change] = {}", CHANGES)
        change(facade, "def runtime_evidence(", "def evidence_of_runtime(")
        change(facade, '    "runtime_evidence",\n', "")
        facade.write_text(facade.read_text() + MOVED)
    return folder


def toy(folder: Path, number: int) -> Path:
    """The toy vendor as a package for this interface number; the older one uses the name that has moved."""
    shutil.copytree(TOY, folder, dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__"))
    record = folder / "src/accel_toy/vendor.py"
    change(record, f"interface={NOW}", f"interface={number}")
    if number == NOW:
        change(record, "import Vendor", "import Vendor, runtime_evidence  # noqa: F401")
    project = folder / "pyproject.toml"
    change(project, 'name = "accel-toy"', f'name = "accel-toy-for-{number}"')
    change(project, f'"{core_requirement(NOW)}"', f'"{core_requirement(number)}"')
    return folder


def version(number: int) -> str:
    return f"0.{number - 1}.0"


def change(file: Path, old: str, new: str) -> None:
    text = file.read_text()
    assert text.count(old) == 1, (file, old)
    file.write_text(text.replace(old, new))


def build(project: Path, wheels: Path) -> None:
    options = ["--no-deps", "--no-index", "--no-build-isolation", "--wheel-dir", str(wheels)]
    subprocess.run([*PIP, "wheel", *options, str(project)], check=True, timeout=300)


@pytest.fixture
def installed(wheels: Path, tmp_path: Path) -> Callable[[int, int], Path]:
    """A folder with the core of one number and the toy vendor of another."""

    def install(core: int, toy: int) -> Path:
        chosen = [wheels / f"accel_core-{version(core)}-py3-none-any.whl"]
        chosen += wheels.glob(f"accel_toy_for_{toy}-*.whl")
        options = ["--no-deps", "--no-index", "--target", str(tmp_path / "site")]
        subprocess.run([*PIP, "install", *options, *map(str, chosen)], check=True, timeout=300)
        return tmp_path / "site"

    return install


def test_an_older_vendor_works_on_the_next_core_and_is_told_when_that_ends(
    children: Any, installed: Callable[[int, int], Path]
) -> None:
    site = installed(NEXT, NOW)
    said = children.run(EXPLAINED, [site], PYTHONWARNINGS="always::DeprecationWarning")
    assert said.report["chosen"] == "toy"
    assert said.report["priority"] == 20_000  # adapted
    ends = f"0.{NOW + 1}"
    assert f"accel-toy: it is written for interface {NOW}, which accel-core takes until {ends}" in said.err
    assert f"evidence_of_runtime since interface {NEXT}; the old name ends with accel-core {ends}" in said.err
    assert "Deprecation" not in children.run(EXPLAINED, [site]).err  # users are not bothered
    notes = doctor(children, site)["notes"]
    (note,) = [note for note in notes if (note["code"], note["subject"]) == ("old-interface", "toy")]
    assert f"until {ends}" in note["found"]


def test_a_vendor_two_numbers_behind_is_refused_with_both_sides(
    children: Any, installed: Callable[[int, int], Path]
) -> None:
    site = installed(LATER, NOW)
    taken = f"accel-core {version(LATER)} has interface {LATER} and takes {NEXT}"
    assert f"interface {NOW}; {taken}" in refused(children, site)


def test_a_newer_vendor_on_an_older_core_is_refused_with_both_sides(
    children: Any, installed: Callable[[int, int], Path]
) -> None:
    site = installed(NOW, NEXT)
    assert f"interface {NEXT}; accel-core {version(NOW)} has interface {NOW}" in refused(children, site)


def refused(children: Any, site: Path) -> str:
    """The error about the toy vendor that was asked for."""
    code = "import accel_core\ntry: accel_core.get_accelerator()\nexcept ValueError as error: print(error)"
    error: str = children.run(code, [site], DS_ACCELERATOR="toy").out
    assert error.startswith("[ACC-203] DS_ACCELERATOR=toy cannot be served")
    assert "ACC-102" in error
    return error


def doctor(children: Any, site: Path) -> dict[str, Any]:
    done = children.attempt("from accel_core.cli.main import main; main(['doctor', '--json'])", [site])
    report: dict[str, Any] = json.loads(done.out)
    return report


@pytest.mark.parametrize(
    ("core", "toy", "accepted"),
    [
        (NOW, NOW, True),
        (NEXT, NOW, True),
        (LATER, NOW, False),
        (NOW, NEXT, False),
        (NEXT, NEXT, True),
        (LATER, NEXT, True),
    ],
)
def test_pip_accepts_what_a_core_takes_and_refuses_the_rest(
    wheels: Path, core: int, toy: int, accepted: bool
) -> None:
    wanted = [f"accel-core=={version(core)}", f"accel-toy-for-{toy}"]
    command = [*PIP, "install", "--dry-run", "--no-index", "--find-links", str(wheels), *wanted]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert (done.returncode == 0) == accepted, done.stderr
    if not accepted:
        assert "conflict" in done.stderr
