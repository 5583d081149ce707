# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The page of routes: what computes each op on each accelerator, beside stock DeepSpeed's own support.

    python -m ci.routes write      docs/results/routes.md, from the op tables of packages/* and ci/upstream_ops.toml
    python -m ci.routes check      exits with 1 when the page is not what they say

Why: the op tables say which class serves an op, and only the classes say how; nobody reads 25 builders of 8 packages.
"""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from accel_core.op_builder import OpTable, Route
from accel_core.op_builder.names import ONE_DEVICE, UPSTREAM
from ci import workspace
from ci.problem import Problem, report

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

PAGE = Path("docs/results/routes.md")
DATA = Path("ci/upstream_ops.toml")
_HEAD = """# Routes

What computes each op on each accelerator. `load()` takes the first route that works there, and `accel ops build` shows
which it is and why the ones before it are not; `accel ops list` shows what to expect. Under it, in italics, is what
stock DeepSpeed {release} has for that accelerator. Made by `python -m ci.routes write` from the builders' `routes()`
and `{data}`; do not edit.

This is what the packages contain, not what was run on a device: for that see
[device kernels](../device-kernels.md#what-was-run) and [ops](../ops.md).

"""


def builder(vendor: str, name: str) -> Any:
    """Return the class of an accelerator's op; None if it has no such op."""
    package = f"accel_{vendor}"
    table: OpTable = importlib.import_module(f"{package}.op_builder").TABLE
    return table.builder(name, vendor, {}) if name in table else None


def page(vendors: Sequence[str], data: Mapping[str, Any]) -> str:
    """Return the page's text."""
    parts = [
        _HEAD.format(release=data["release"], data=DATA.as_posix()),
        "\n".join(_meanings()),
        "\n".join(_rows(vendors, data)),
        "## Missing\n\n" + "\n".join(_reasons(vendors)),
        f"## Faults of DeepSpeed {data['release']}'s own\n\n" + "\n".join(_faults(data["faults"])),
    ]
    return parts[0] + "\n\n".join(parts[1:]) + "\n"


def _meanings() -> Iterator[str]:
    yield "| route | what computes |"
    yield "| --- | --- |"
    for route in Route:
        yield f"| {route.value} | {route.meaning} |"
    yield "| – | the op is missing, with the [reason](#missing) |"


def _rows(vendors: Sequence[str], data: Mapping[str, Any]) -> Iterator[str]:
    yield f"| op | {' | '.join(vendors)} |"
    yield f"| --- |{' --- |' * len(vendors)}"
    for name in (*UPSTREAM, *ONE_DEVICE):
        cells = [f"{_ours(builder(vendor, name))}<br>*{_theirs(vendor, name, data)}*" for vendor in vendors]
        yield f"| `{name}` | {' | '.join(cells)} |"


def _ours(cls: Any) -> str:
    return ", ".join(route.value for route in cls.routes()) if cls else "–"


def _theirs(vendor: str, name: str, data: Mapping[str, Any]) -> str:
    key = f"{vendor}.{name}"
    if name in data["builders"].get(vendor, ()):
        return "with a fault" if key in data["faults"] else "yes"
    return str(data["earlier"].get(key, "–"))


def _reasons(vendors: Sequence[str]) -> Iterator[str]:
    """Yield each reason with the ops and the accelerators that it is for."""
    found: dict[str, dict[str, list[str]]] = {}
    for vendor in vendors:
        traits = importlib.import_module(f"accel_{vendor}.traits").TRAITS
        for name in (*UPSTREAM, *ONE_DEVICE):
            if builder(vendor, name) is None and name in traits:
                trait = traits[name]
                reason = f"{trait.support.value}: {trait.reason}"
                found.setdefault(reason, {}).setdefault(name, []).append(vendor)
    for reason, ops in found.items():
        groups: dict[str, list[str]] = {}
        for name, where in ops.items():
            groups.setdefault(", ".join(where), []).append(f"`{name}`")
        told = "; ".join(f"{', '.join(names)} on {where}" for where, names in groups.items())
        yield f"- {reason}. {told}."


def _faults(faults: Mapping[str, str]) -> Iterator[str]:
    for key, fault in faults.items():
        vendor, _, name = key.partition(".")
        yield f"- `{name}` on {vendor} {fault}."


def undeclared(cls: type[Any]) -> str:
    """Return the class whose `load` is newer than the routes that it inherits; empty if there is none."""
    for base in cls.__mro__:  # mix-ins among them
        if {"ROUTES", "routes", "FUSED", "FUSED_OP"} & vars(base).keys():  # `routes` reads the last two
            return ""
        if "load" in vars(base):
            return f"{base.__module__}.{base.__qualname__}"
    return ""


def accelerators(root: Path) -> list[str]:
    """Return the keys of the accelerators that have a package of their own."""
    vendors = sorted(
        {key.partition(".")[0] for package in workspace.load(root).values() for key in package.vendors}
    )
    return [key for key in vendors if (root / f"packages/accel-{key}").is_dir()]


def written(root: Path) -> str:
    """Return the text that the page should have."""
    return page(accelerators(root), data(root))


def data(root: Path) -> dict[str, Any]:
    """Return what is known of stock DeepSpeed's builders."""
    return tomllib.loads((root / DATA).read_text(encoding="utf-8"))


def check(root: Path) -> list[Problem]:
    """Return a problem for each builder that has its own `load` and tells no route, and for an old page."""
    vendors, names = accelerators(root), (*UPSTREAM, *ONE_DEVICE)
    served = (builder(vendor, name) for vendor in vendors for name in names)
    silent = {undeclared(cls) for cls in served if cls is not None} - {""}
    problems = [
        Problem(
            what=f"{name} does not tell its routes",
            found="a load() of its own, and the routes of its base",
            expected="the routes that load() tries, in order",
            do="add `ROUTES = (Route.IMAGE, Route.PLAIN)`, or what it is, from accel_core.op_builder",
        )
        for name in sorted(silent)
    ]
    file = root / PAGE
    if file.is_file() and file.read_text(encoding="utf-8") == page(vendors, data(root)):
        return problems
    return [
        *problems,
        Problem(
            what=f"{PAGE} is not what the op tables say",
            found="another text" if file.is_file() else "no such file",
            expected="the text that is made of them",
            do="`python -m ci.routes write`, and commit the page",
        ),
    ]


def main(arguments: Sequence[str] | None = None, root: Path | None = None) -> int:
    """Write the page, or compare it."""
    parser = argparse.ArgumentParser(prog="python -m ci.routes", description="The page of routes.")
    parser.add_argument("action", choices=["write", "check"])
    action, folder = parser.parse_args(arguments).action, root or Path.cwd()
    if action == "check":
        return report(check(folder), f"{PAGE} is current")
    (folder / PAGE).write_text(written(folder), encoding="utf-8")
    print(PAGE)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
