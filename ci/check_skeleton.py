# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Does every vendor package have the skeleton that `accel new-vendor` gives?

    python -m ci.check_skeleton

Renders shared/template with the answers in ci/vendors.toml and compares: some files are the same in all
packages, some have parts that are free, the others have only to be there. Tests have one plan: what every
package has, what belongs to an op builder of its own, and beside them files that are named for a module.
Exits with 1 when a package differs and no reason stands in ci/vendors.toml.
Why: copier makes a project and updates it; it does not say whether one still has the template's skeleton.
"""

from __future__ import annotations

import argparse
import ast
import difflib
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import copier

from ci import workspace
from ci.problem import CheckError, Problem, report
from ci.workspace import Package

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ANSWERS = "ci/vendors.toml"
AUTHOR = "accel contributors"
#: Equal to the template's, byte by byte; {module} is the package's module.
SAME = (
    "LICENSE",
    "changelog.d/.gitkeep",
    "src/{module}/__init__.py",
    "src/{module}/py.typed",
    "src/{module}/op_builder/host.py",
)
#: Equal up to this text; what comes after it is the package's own.
BEGINS = {
    "CHANGELOG.md": "<!-- towncrier release notes start -->",
    "src/{module}/__about__.py": "__version__ = ",
}
#: What a new vendor begins with and may leave out.
START = (
    "tests/simulated.json",
    "src/{module}/op_builder/fused.py",
    "src/{module}/op_builder/inference.py",
)
#: What a package in a repository of its own has, and this repository has once for all: files or folders, and
#: keys of pyproject.toml.
ALONE = (".github", ".gitignore", "CONTRIBUTING.md", "changelog.d/+first.feature.md", "tox.ini")
ALONE_SETTINGS = ("project.urls", "tool.mypy", "tool.pytest", "tool.ruff")
#: A test that a package has where this module is not as the template has it.
OWN_TESTS = {"src/{module}/op_builder/inference.py": "tests/device/test_inference.py"}
#: Keys of pyproject.toml with a text of one's own; and a list of which no reason excuses to drop an item.
FREE, HOLDS = ("project.description",), "project.dependencies"


@dataclass
class Comparison:
    """One package beside its rendered template; `unused` are the declared deviations that nothing needed."""

    package: Package
    folder: Path
    rendered: Path
    deviations: Mapping[str, str]
    unused: set[str] = field(init=False)

    def __post_init__(self) -> None:
        self.unused = set(self.deviations)

    def problems(self) -> Iterator[Problem]:
        """Everything that differs without a reason."""
        same, begins = self._names(SAME), dict(zip(self._names(BEGINS), BEGINS.values(), strict=True))
        for file in sorted(path for path in self.rendered.rglob("*") if path.is_file()):
            name = file.relative_to(self.rendered).as_posix()
            if name in self._names(START) or _is_below(name, ALONE, "/") or self._is_declared(name):
                continue
            if not (self.folder / name).is_file():
                yield self._differs(name, "there is no such file")
            elif name == "pyproject.toml":
                yield from self._settings(file)
            elif name in same or name in begins:
                yield from self._text(name, file, begins.get(name, ""))
        yield from self._missing_tests()
        yield from self._unplanned_tests()
        for name in sorted(self.unused):
            yield Problem(
                what=f"{ANSWERS} excuses a deviation that {self.package.name} does not have",
                found=f"{name}: {self.deviations[name]}",
                expected="deviations that there are",
                do=f"remove it from {ANSWERS}",
            )

    def _missing_tests(self) -> Iterator[Problem]:
        for module, name in zip(self._names(OWN_TESTS), OWN_TESTS.values(), strict=True):
            template, ours = (_code(folder / module) for folder in (self.rendered, self.folder))
            if ours in ("", template) or (self.folder / name).is_file() or self._is_declared(name):
                continue
            yield self._differs(name, f"{module} is its own and has no tests of its own")

    def _unplanned_tests(self) -> Iterator[Problem]:
        """Test files that are not the template's and whose names begin with no module's name."""
        modules = {path.stem for path in (self.folder / "src" / self.package.module).rglob("*")}
        modules.add("simulated")
        for file in sorted(self.folder.glob("tests/**/test_*.py")):
            words = file.stem.split("_")[1:]
            begins = {"_".join(words[:length]) for length in range(1, len(words) + 1)}
            name = file.relative_to(self.folder).as_posix()
            planned = begins & modules or (self.rendered / name).is_file()
            if not planned and not self._is_declared(name):
                yield Problem(
                    what=f"{self.package.name} has a test file outside the plan: {name}",
                    found=f"no module of {self.package.module} is called as its name begins",
                    expected="test_<module>.py, or test_<module>_<aspect>.py",
                    do=f"rename it, or give the reason in {ANSWERS}",
                )

    def _names(self, templates: Sequence[str] | Mapping[str, str]) -> list[str]:
        return [name.format(module=self.package.module) for name in templates]

    def _is_declared(self, name: str) -> bool:
        found = {key for key in self.deviations if name == key or name.startswith(f"{key}.")}
        self.unused -= found
        return bool(found)

    def _text(self, name: str, file: Path, until: str) -> Iterator[Problem]:
        wanted, found = (path.read_text(encoding="utf-8") for path in (file, self.folder / name))
        if until:
            wanted, found = (text.partition(until)[0] for text in (wanted, found))
        if wanted != found:
            lines = difflib.unified_diff(wanted.splitlines(), found.splitlines(), "template", name, "", "", 0)
            yield self._differs(name, "\n            ".join(list(lines)[:12]))

    def _settings(self, file: Path) -> Iterator[Problem]:
        wanted, found = (
            dict(_flat(tomllib.loads(path.read_text(encoding="utf-8"))))
            for path in (file, self.folder / file.name)
        )
        for key in sorted({*wanted, *found}.difference(FREE)):
            if key not in found and _is_below(key, ALONE_SETTINGS, "."):
                continue
            name = f"{file.name} {key}"
            ours, theirs = wanted.get(key), found.get(key)
            excusable = key != HOLDS or set(ours or ()) <= set(theirs or ())
            if ours != theirs and not (excusable and self._is_declared(name)):
                yield self._differs(name, f"{theirs!r}, the template has {ours!r}")

    def _differs(self, name: str, found: str) -> Problem:
        return Problem(
            what=f"{self.package.name} differs from the template: {name}",
            found=found,
            expected="the skeleton that accel new-vendor gives",
            do=f"adapt it, or shared/template for all, or give the reason in {ANSWERS}: "
            f'[{self.package.name.removeprefix("accel-")}.deviations] "{name}" = "…"',
        )


def _is_below(name: str, names: Sequence[str], separator: str) -> bool:
    return any(name == each or name.startswith(each + separator) for each in names)


def _code(file: Path) -> str:
    """Its statements without their layout and docstring; empty where there is no file."""
    if not file.is_file():
        return ""
    tree = ast.parse(file.read_text(encoding="utf-8"))
    return ast.dump(ast.Module(tree.body[1:], []))


def _flat(table: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in table.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def check(root: Path) -> Iterator[Problem]:
    """The problems of all vendor packages, and of answers that are missing or left over."""
    vendors = {
        package.name.removeprefix("accel-"): package
        for package in workspace.load(root).values()
        if package.vendors
    }
    answers = tomllib.loads((root / ANSWERS).read_text(encoding="utf-8"))
    for key in sorted(vendors.keys() ^ answers.keys()):
        there = "a package and no answers" if key in vendors else "answers and no package"
        yield Problem(
            what=f"{ANSWERS} and packages/ do not agree on {key}",
            found=there,
            expected="a table of answers for each package with an entry point in accel.vendors",
            do=f'add [{key}] with hardware = "…", or remove it',
        )
    for key in sorted(vendors.keys() & answers.keys()):
        yield from _compare(root, key, vendors[key], dict(answers[key]))


def _compare(root: Path, key: str, package: Package, answers: dict[str, Any]) -> Iterator[Problem]:
    deviations = answers.pop("deviations", {})
    data = {"key": key, "author": AUTHOR, **answers}
    with tempfile.TemporaryDirectory(prefix="accel-skeleton-") as folder:
        copier.run_copy(str(root / "shared/template"), folder, data=data, defaults=True, quiet=True)
        yield from Comparison(package, root / package.folder, Path(folder), deviations).problems()


def main(arguments: Sequence[str] | None = None, root: Path | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m ci.check_skeleton", description="Do the vendor packages have the template's skeleton?"
    )
    parser.parse_args(arguments)
    try:
        return report(list(check(root or Path.cwd())), "every vendor package has the template's skeleton")
    except CheckError as error:
        print(error, file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
