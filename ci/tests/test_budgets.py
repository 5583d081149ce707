# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Limits of size."""

from collections.abc import Callable

import pytest

from ci import budgets
from ci.workspace import parse_toml

from .conftest import ROOT, Repository

#: A package of `repository` has 2 + 2 lines of source and a header.
PARTS = (
    "accel-core",
    "accel-cpu",
    "accel-both",
    "accel-alone",
    "tests",
    "ci",
    "benchmarks",
    "shared",
    "pages",
)


def _limited(repository: Repository, core: int, end: int = 0) -> None:
    """Commit a limit and an end for accel-core; other parts have room."""
    limits = "".join(f'"{part}" = 100\n' for part in PARTS if part != "accel-core")
    text = f'[limits]\n"accel-core" = {core}\n{limits}"{budgets.TWICE}" = 0\n\n[ends]\n"accel-core" = {end}\n'
    files = (ROOT / budgets.LIMITS).read_text(encoding="utf-8").partition("[files]")[2]
    repository.write(budgets.LIMITS.as_posix(), f"{text}\n[files]{files}")
    repository.write(budgets.PAGE.as_posix(), "# Page\n\n<!-- sizes: generated -->\n\n<!-- sizes: end -->\n")
    repository.commit()


@pytest.mark.parametrize("room", [-1, 10])
def test_limit_falls_with_its_part_to_its_end(repository: Repository, room: int) -> None:
    _limited(repository, core=50)
    size = budgets.sizes(repository.root)["accel-core"]
    assert 2 < size < 40
    end = size + room
    _limited(repository, core=50, end=end)
    assert budgets.main(repository.root) == 0
    written = parse_toml((repository.root / budgets.LIMITS).read_text())
    assert written["limits"]["accel-core"] == max(size, end)
    assert f"| accel-core | {size} | {end} |" in (repository.root / budgets.PAGE).read_text()


def _add_class(repository: Repository) -> None:
    for module in ("accel_core", "accel_cpu"):
        path = f"packages/{module.replace('_', '-')}/src/{module}/more.py"
        repository.write(path, "class Row:\n    pass\n")


#: What is printed, and the change that it is about.
REFUSED: dict[str, Callable[[Repository], None]] = {
    "accel-core is over its limit": lambda repository: repository.write(
        "packages/accel-core/src/accel_core/more.py", "x = 1\n"
    ),
    "the limit of accel-core was raised": lambda repository: _limited(repository, core=51),
    "accel-new has no limit": lambda repository: repository.package("accel-new"),
    f"{budgets.TWICE} is over": _add_class,
}


@pytest.mark.parametrize("what", REFUSED)
def test_change_is_refused(what: str, repository: Repository, capsys: pytest.CaptureFixture[str]) -> None:
    _limited(repository, core=50)
    assert budgets.main(repository.root) == 0
    REFUSED[what](repository)
    repository.commit()
    assert budgets.main(repository.root) == 1
    assert what in capsys.readouterr().err
