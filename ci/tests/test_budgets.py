# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Limits of size, and subjects of commits."""

import sys

import pytest

from ci import budgets
from ci.workspace import parse_toml

from .conftest import ROOT, Repository, run

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


def _source(repository: Repository, text: str, name: str = "more") -> None:
    repository.write(f"packages/accel-core/src/accel_core/{name}.py", text)
    repository.commit()


def test_limit_falls_with_its_part(repository: Repository) -> None:
    _limited(repository, core=50)
    size = budgets.sizes(repository.root)["accel-core"]
    assert size > 2
    _limited(repository, core=50, end=size - 1)
    assert budgets.main(repository.root) == 0
    written = parse_toml((repository.root / budgets.LIMITS).read_text())
    assert written["limits"]["accel-core"] == size
    assert f"| accel-core | {size} | {size - 1} |" in (repository.root / budgets.PAGE).read_text()


def test_limit_stops_at_its_end(repository: Repository) -> None:
    _limited(repository, core=50, end=40)
    assert budgets.main(repository.root) == 0
    assert parse_toml((repository.root / budgets.LIMITS).read_text())["limits"]["accel-core"] == 40


def test_line_over_the_limit_is_refused(repository: Repository, capsys: pytest.CaptureFixture[str]) -> None:
    _limited(repository, core=50)
    assert budgets.main(repository.root) == 0
    _source(repository, "x = 1\n")
    assert budgets.main(repository.root) == 1
    assert "accel-core is over its limit" in capsys.readouterr().err


def test_raised_limit_is_refused(repository: Repository, capsys: pytest.CaptureFixture[str]) -> None:
    _limited(repository, core=50)
    _limited(repository, core=51)
    assert budgets.main(repository.root) == 1
    assert "the limit of accel-core was raised" in capsys.readouterr().err


def test_part_needs_a_limit(repository: Repository, capsys: pytest.CaptureFixture[str]) -> None:
    _limited(repository, core=50)
    repository.package("accel-new")
    repository.commit()
    assert budgets.main(repository.root) == 1
    assert "accel-new has no limit" in capsys.readouterr().err


def test_class_name_used_twice(repository: Repository, capsys: pytest.CaptureFixture[str]) -> None:
    _limited(repository, core=50)
    _source(repository, "class Row:\n    pass\n")
    repository.write("packages/accel-cpu/src/accel_cpu/more.py", "class Row:\n    pass\n")
    repository.commit()
    assert budgets.main(repository.root) == 1
    assert budgets.TWICE in capsys.readouterr().err


@pytest.mark.parametrize(
    ("subject", "refused"),
    [
        ("core: reject empty device lists", False),
        ("core, cpu: run the tests from wheels in ring 2", False),
        ("Merge branch 'main'", False),
        ("fixup! core: reject empty device lists", False),
        ("reject empty device lists", True),
        ("core: Reject empty device lists", True),
        ("core: reject empty device lists.", True),
        ("core: the device lists", True),
        ("core: fixed device lists", True),
        ("core: reject lists; add others", True),
        (f"core: reject {'x' * 60}", True),
    ],
)
def test_subject(subject: str, refused: bool) -> None:
    """The hook commit-msg runs gitlint with the settings of the repository."""
    pytest.importorskip("gitlint", reason="not run: requirements-dev.txt is newer than this environment")
    message = f"{subject}\n\nWhy.\n# a comment\n"
    done = run(sys.executable, "-m", "gitlint.cli", "--staged", input=message)
    assert bool(done.returncode) == refused, done.stderr
