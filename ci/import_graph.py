# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Figures of each package's import graph: modules, imports, circles, and imports that point up.

    python -m ci.import_graph [--at REVISION]       exits with 1 when a package has a circle
    import-linter drawgraph accel_core --show-cycle-breakers      the picture, in the language of Graphviz

A circle is a set of modules that import each other, directly or not; imports for type checkers count. Upward are the
imports without which no folder of the package would import one that imports it, as grimp chooses them.
Why: import-linter draws, and holds the contracts about folders; it does not count, nor look at an __init__.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import grimp
import grimp.exceptions

from ci import git, workspace
from ci.problem import CheckError, Problem


@dataclass(frozen=True)
class Figures:
    """One package; upward are pairs of importer and imported module."""

    modules: int
    imports: int
    circles: list[list[str]]
    upward: list[tuple[str, str]]


def measure(module: str) -> Figures:
    """The figures of a package that this Python could import; it is read, not imported. Raises CheckError."""
    try:
        graph = grimp.build_graph(module, cache_dir=None)
    except grimp.exceptions.GrimpException as error:
        raise CheckError(
            Problem(
                what=f"the imports of {module} cannot be read",
                found=f"{type(error).__name__}: {error}",
                expected="Python that parses",
                do="correct that file",
            )
        ) from error
    upward = [
        pair for parent in sorted(graph.modules) for pair in sorted(graph.nominate_cycle_breakers(parent))
    ]
    return Figures(
        len(graph.modules),
        graph.count_imports(),
        circles(graph.modules, graph.find_modules_directly_imported_by),
        upward,
    )


def circles(modules: Collection[str], imported_by: Callable[[str], Collection[str]]) -> list[list[str]]:
    """The sets of modules of which each reaches each other, in order."""
    reached = {module: _reached(module, imported_by) for module in modules}
    found = {
        tuple(sorted(m for m in reached[one] if one in reached[m])) for one in modules if one in reached[one]
    }
    return [list(circle) for circle in sorted(found)]


def _reached(start: str, imported_by: Callable[[str], Collection[str]]) -> set[str]:
    found: set[str] = set()
    waiting = [start]
    while waiting:
        new = set(imported_by(waiting.pop())) - found
        found |= new
        waiting += new
    return found


def table(figures: dict[str, Figures]) -> Iterator[str]:
    """The lines to print: one row a package, then each circle and each upward import by name."""
    yield "| package | modules | imports | circles | modules in circles | upward imports |"
    yield "| --- | ---: | ---: | ---: | ---: | ---: |"
    for module, one in figures.items():
        inside = sum(map(len, one.circles))
        yield f"| {module} | {one.modules} | {one.imports} | {len(one.circles)} | {inside} | {len(one.upward)} |"
    for one in figures.values():
        yield from (f"circle: {', '.join(circle)}" for circle in one.circles)
        yield from (f"upward: {importer} imports {imported}" for importer, imported in one.upward)


def measure_all(root: Path) -> dict[str, Figures]:
    """The packages below `root`, ahead of those that are installed."""
    packages = workspace.load(root).values()
    sources = [str(root / package.folder / "src") for package in packages]
    sys.path[:0] = sources
    try:
        return {package.module: measure(package.module) for package in packages}
    finally:
        del sys.path[: len(sources)]


def main(arguments: Sequence[str] | None = None, root: Path | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m ci.import_graph", description="Figures of the import graph."
    )
    parser.add_argument("--at", metavar="REVISION", help="a commit (default: the working tree)")
    options = parser.parse_args(arguments)
    root = root or Path.cwd()
    try:
        with tempfile.TemporaryDirectory(prefix="accel-graph-") as folder:
            if options.at:
                git.export(root, options.at, "packages", Path(folder))
            figures = measure_all(Path(folder) if options.at else root)
    except CheckError as error:
        print(error, file=sys.stderr)
        return 2
    print("\n".join(table(figures)))
    return 1 if any(one.circles for one in figures.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
