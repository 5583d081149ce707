# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The tables of the page of versions: what is supported, what the packages require, and which accel-core takes which.

python -m ci.versions    renew them in docs/versions.md

Why: requirements, interface numbers and ranges are in thirteen places, and a page that repeats them goes stale.
Releases of torch and Python are those of tests/torch_versions, which records its runs.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

from accel_core.upstream.contract import SUPPORTED, TRIED, TRIED_TORCH
from accel_core.vendor import INTERFACE_VERSION
from ci import workspace
from ci.printed import table
from ci.release_check import release_of
from ci.workspace import CORE, Package

PAGE = Path("docs/versions.md")
RUNS = Path("tests/torch_versions/runs.json")
_TABLE = re.compile(r"(?<=<!-- versions: )(?P<name>(?!end)\w+) -->\n.*?(?=<!-- versions: end -->)", re.DOTALL)


def page(root: Path) -> str:
    """The page with its tables renewed."""
    packages = workspace.load(root)
    tables = {
        "supported": (["", "accepted", "tried", "in CI"], _supported(root, packages)),
        "tried": _tried(runs(root)),
        "packages": (
            ["package", "version", "requires", "interface", "vendor's runtime"],
            [_package(root, package) for package in packages.values()],
        ),
        "interfaces": (
            ["a package of interface", "works with accel-core", "and requires"],
            [_interface(number) for number in (INTERFACE_VERSION, INTERFACE_VERSION + 1)],
        ),
    }

    def renewed(found: re.Match[str]) -> str:
        return "\n".join([f"{found['name']} -->", "", *table(*tables[found["name"]]), "", ""])

    return _TABLE.sub(renewed, (root / PAGE).read_text(encoding="utf-8"))


def runs(root: Path) -> list[dict[str, Any]]:
    """The recorded runs of tests/torch_versions: one a torch and Python."""
    rows: list[dict[str, Any]] = json.loads((root / RUNS).read_text(encoding="utf-8"))["rows"]
    return rows


def _tried(rows: Iterable[Mapping[str, Any]]) -> tuple[list[str], list[list[str]]]:
    names = list(dict.fromkeys(name for row in rows for name in row["parts"]))
    shown = [
        [
            row["torch"],
            row["python"],
            row["deepspeed"],
            row["date"],
            *(row["parts"].get(name, "–") for name in names),
        ]
        for row in rows
    ]
    return ["torch", "Python", "DeepSpeed", "on", *names], shown


def _supported(root: Path, packages: Mapping[str, Package]) -> list[list[str]]:
    classifiers = packages[CORE].project["classifiers"]
    stated = [text.rpartition(" ")[2] for text in classifiers if re.search(r":: 3\.\d+$", text)]
    workflow = (root / ".github/workflows/test.yml").read_text(encoding="utf-8")
    run = sorted(set(re.findall(r'\bpython: \[?"(3\.\d+)"', workflow)))
    torch = _required(packages["accel-ops"], "torch")
    own = {name: found for name, package in packages.items() if (found := _required(package, "torch"))}
    others = [f"{name} {found}" for name, found in own.items() if found != torch]
    series = sorted(
        set(re.findall(r"deepspeed==(0\.\d+)\.\*", (root / "tox.ini").read_text(encoding="utf-8")))
    )
    python = packages[CORE].project["requires-python"]
    return [
        ["Python", python, ", ".join(stated), ", ".join(run)],
        [
            *("torch", ", ".join([torch, *others]), _range(TRIED_TORCH)),
            f"{_constraints(root)['torch']}; weekly the lowest and the newest",
        ],
        ["DeepSpeed", _range(SUPPORTED), _range(TRIED), f"the newest of {' and '.join(series)}"],
    ]


def _constraints(root: Path) -> dict[str, str]:
    lines = (root / "constraints.txt").read_text(encoding="utf-8").splitlines()
    found = [Requirement(line) for line in lines if line and not line.startswith(("#", "-"))]
    return {each.name: str(each.specifier).removeprefix("==") for each in found}


def _required(package: Package, name: str) -> str:
    return next((_range(each.specifier) for each in package.requires if each.name == name), "")


def _range(found: SpecifierSet) -> str:
    """A range with its lower bound first."""
    return ",".join(str(each) for each in sorted(found, key=lambda each: each.operator, reverse=True))


def _package(root: Path, package: Package) -> list[str]:
    own = [
        f"{each.name} {_range(each.specifier)}" for each in package.requires if each.name.startswith("accel-")
    ]
    sources = [path.read_text(encoding="utf-8") for path in sorted((root / package.source).rglob("*.py"))]
    records = {
        found for text in sources for found in re.findall(r"^    interface=(\d+),$", text, re.MULTILINE)
    }
    torch = _required(package, "torch")
    return [
        f"[{package.name}](../{package.folder}/README.md)",
        str(package.version),
        ", ".join([*own, *([f"torch {torch}"] if torch else [])]),
        ", ".join(sorted(records)) if package.vendors else "",
        _runtime(sources) if package.vendors else "",
    ]


def _runtime(sources: Iterable[str]) -> str:
    """The range of releases that a probe accepts, with the name that its constant has."""
    found = {
        (name.lower() if name != "RELEASES" else "habana-torch-plugin", wanted)
        for text in sources
        for name, wanted in re.findall(r'^([A-Z_]+) = "(>=[\d.,<]+)"$', text, re.MULTILINE)
    }
    return ", ".join(f"{name} {wanted}" for name, wanted in sorted(found))


def _interface(number: int) -> list[str]:
    coming = " (to come)" if number > INTERFACE_VERSION else ""
    first, following, end = (release_of(number + later) for later in range(3))
    return [f"{number}{coming}", f"{first}.*, {following}.*", f"`{CORE}>={first},<{end}`"]


if __name__ == "__main__":
    PAGE.write_text(page(Path.cwd()), encoding="utf-8")
    print(PAGE)
    sys.exit(0)
