# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from ci import import_graph
from ci.tests.repository import Repository

SHAPE = "packages/accel-shape/src/accel_shape"


@pytest.fixture
def shape(tmp_path: Path) -> Iterator[Repository]:
    """accel-shape alone: `draw` imports `folder.point`."""
    repository = Repository(tmp_path / "checkout")
    repository.package("accel-shape")
    repository.git("init", "-q", "-b", "main")
    repository.write(f"{SHAPE}/draw.py", "from accel_shape.folder import point\n")
    repository.write(f"{SHAPE}/folder/__init__.py")
    repository.write(f"{SHAPE}/folder/point.py", "import math\n")
    repository.commit()
    yield repository
    importlib.invalidate_caches()


def measured(repository: Repository) -> import_graph.Figures:
    importlib.invalidate_caches()
    return import_graph.measure_all(repository.root)["accel_shape"]


def test_modules_and_the_imports_among_them_are_counted(shape: Repository) -> None:
    assert measured(shape) == import_graph.Figures(modules=5, imports=1, circles=[], upward=[])


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("folder/point.py", "import accel_shape.draw\n"),
        ("folder/point.py", "def late() -> None:\n    from accel_shape import draw\n"),
        (
            "folder/point.py",
            "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from accel_shape import draw\n",
        ),
    ],
)
def test_a_circle_is_found_wherever_the_import_stands(shape: Repository, file: str, text: str) -> None:
    shape.write(f"{SHAPE}/{file}", text)
    figures = measured(shape)
    assert figures.circles == [["accel_shape.draw", "accel_shape.folder.point"]]
    assert len(figures.upward) == 1


def test_a_circle_through_the_packages_own_init_is_found(shape: Repository) -> None:
    shape.write(f"{SHAPE}/__init__.py", "from accel_shape.draw import line\n")
    shape.write(f"{SHAPE}/folder/point.py", "from accel_shape import line\n")
    assert measured(shape).circles == [["accel_shape", "accel_shape.draw", "accel_shape.folder.point"]]


def test_folders_that_import_each_other_are_no_circle_of_modules_but_point_up(shape: Repository) -> None:
    shape.write(f"{SHAPE}/folder/line.py", "from accel_shape.other import a\n")
    shape.write(f"{SHAPE}/other/__init__.py")
    shape.write(f"{SHAPE}/other/a.py")
    shape.write(f"{SHAPE}/other/b.py", "from accel_shape.folder import point\n")
    figures = measured(shape)
    assert (figures.circles, len(figures.upward)) == ([], 1)


def test_a_file_that_does_not_parse_is_named(shape: Repository, capsys: pytest.CaptureFixture[str]) -> None:
    shape.write(f"{SHAPE}/folder/point.py", "def broken(:\n")
    importlib.invalidate_caches()
    assert import_graph.main([], shape.root) == 2
    assert "folder/point.py" in capsys.readouterr().err


def test_the_program_prints_each_circle_and_fails(
    shape: Repository, capsys: pytest.CaptureFixture[str]
) -> None:
    path = list(sys.path)
    clean = shape.git("rev-parse", "HEAD")
    shape.write(f"{SHAPE}/folder/point.py", "import accel_shape.draw\n")
    importlib.invalidate_caches()
    assert import_graph.main([], shape.root) == 1
    printed = capsys.readouterr().out
    assert "| accel_shape | 5 | 2 | 1 | 2 | 1 |" in printed
    assert "circle: accel_shape.draw, accel_shape.folder.point" in printed
    assert import_graph.main(["--at", clean], shape.root) == 0
    assert "| accel_shape | 5 | 1 | 0 | 0 | 0 |" in capsys.readouterr().out
    assert sys.path == path
