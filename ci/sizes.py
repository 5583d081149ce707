# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""How long is an accelerator class here, and how long in DeepSpeed's own tree?

    python -m ci.sizes write    count, and write docs/results/sizes.md and .json; needs deepspeed
    python -m ci.sizes check    does the page say what there is?

Lines are lines of the file: text, comments and blank ones. How many there may be is a house rule. `check`
compares DeepSpeed's files only where the release that the page names is installed.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from ci import workspace
from ci.problem import CheckError, Problem, report

PAGE = "docs/results/sizes"
CORE = "packages/accel-core/src/accel_core"
SHARED = f"{CORE}/torch_device.py"
#: What more of core the classes are made of.
PARTS = tuple(f"{CORE}/{name}.py" for name in ("torch_graphs", "absent", "one_device"))
DEVICE, OURS, PACKAGE, UPSTREAM = (
    "accelerator",
    "class file here",
    "its package, ops left out",
    "DeepSpeed's file",
)
TEXT = """Lines of the file with an accelerator's class: here, where it shows only what is different about the device,
and in DeepSpeed {version}'s own tree. Detection, launch variables and other helpers are modules of their own,
which the second column counts in; upstream has them in the class, in one file for all, or not at all.
`python -m ci.sizes write` counts anew."""


def ours(root: Path) -> dict[str, tuple[int, int]]:
    """Key -> lines of its class file, and of its package without the ops; a second class has a row of its own."""
    found = {}
    for package in workspace.load(root).values():
        room = root / package.room
        if not package.vendors:
            continue
        files = [file for file in room.rglob("*.py") if not {"op_builder", "ops"} & set(file.parts)]
        for file in sorted(room.rglob("accelerator.py")):
            road = "" if file.parent == room else f" ({file.parent.name})"
            whole = 0 if road else sum(map(_lines, files))
            found[package.name.removeprefix("accel-") + road] = (_lines(file), whole)
    return found


def upstream() -> tuple[str, dict[str, int]]:
    """The installed DeepSpeed's version, and key -> lines of its class file. Raises CheckError without one."""
    try:
        distribution = importlib.metadata.distribution("deepspeed")
    except importlib.metadata.PackageNotFoundError as error:
        raise CheckError(
            Problem(
                what="DeepSpeed's files can not be counted",
                found="deepspeed is not installed",
                expected="the release that the page is to compare with",
                do="pip install deepspeed",
            )
        ) from error
    suffix = "_accelerator.py"
    files = [
        Path(str(distribution.locate_file(file)))
        for file in distribution.files or ()
        if file.parts[:-1] == ("deepspeed", "accelerator") and file.name.endswith(suffix)
    ]
    return distribution.version, {file.name.removesuffix(suffix): _lines(file) for file in files}


def rows(
    counted: Mapping[str, tuple[int, int]], shared: Mapping[str, int], theirs: Mapping[str, int]
) -> list[dict[str, Any]]:
    """The table: one row an accelerator, then what all stand on, then the sums."""
    table = [
        {
            DEVICE: key,
            OURS: own,
            PACKAGE: whole or "",
            UPSTREAM: theirs.get(key, ""),
        }
        for key, (own, whole) in sorted(counted.items())
    ]
    total = sum(shared.values()) + sum(own for own, _ in counted.values())
    of_these = sum(lines for key, lines in theirs.items() if key in counted)
    table += [{DEVICE: name, OURS: lines, PACKAGE: "", UPSTREAM: ""} for name, lines in shared.items()]
    table.append({DEVICE: "together", OURS: total, PACKAGE: "", UPSTREAM: of_these})
    return table


def shared_by_all(root: Path) -> dict[str, int]:
    """What stands in core, and the lines of it."""
    return {
        "`TorchDeviceAccelerator`, for all": _lines(root / SHARED),
        "graphs, absent streams, single devices, for all": sum(_lines(root / part) for part in PARTS),
    }


def page(table: Sequence[Mapping[str, Any]], version: str) -> str:
    """The Markdown page."""
    head = list(table[0])
    lines = ["| " + " | ".join(head) + " |", "| --- |" + " ---: |" * (len(head) - 1)]
    lines += ["| " + " | ".join(str(row[key]) for key in head) + " |" for row in table]
    return f"# Size of an accelerator class\n\n{TEXT.format(version=version)}\n\n" + "\n".join(lines) + "\n"


def write(root: Path) -> None:
    """Count, and write the page and its data."""
    version, theirs = upstream()
    table = rows(ours(root), shared_by_all(root), theirs)
    data = {"deepspeed": version, "upstream": theirs, "rows": table}
    (root / f"{PAGE}.json").write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")
    (root / f"{PAGE}.md").write_text(page(table, version), encoding="utf-8")


def check(root: Path) -> Iterator[Problem]:
    """What the page says and is not so."""
    kept = json.loads((root / f"{PAGE}.json").read_text(encoding="utf-8"))
    version, theirs = kept["deepspeed"], kept["upstream"]
    if _installed() == version:
        theirs = upstream()[1]
    if page(rows(ours(root), shared_by_all(root), theirs), version) != (root / f"{PAGE}.md").read_text(
        encoding="utf-8"
    ):
        yield Problem(
            what=f"{PAGE}.md does not say how long the classes are",
            found="other figures than the files have",
            expected="the figures of this tree",
            do="python -m ci.sizes write, and commit it",
        )


def _installed() -> str:
    try:
        return importlib.metadata.version("deepspeed")
    except importlib.metadata.PackageNotFoundError:
        return ""


def _lines(file: Path) -> int:
    return len(file.read_text(encoding="utf-8").splitlines())


def main(arguments: Sequence[str] | None = None, root: Path | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m ci.sizes", description="How long is an accelerator class?"
    )
    parser.add_argument("command", choices=["write", "check"])
    options = parser.parse_args(arguments)
    root = root or Path.cwd()
    try:
        if options.command == "write":
            write(root)
        return report(list(check(root)), f"{PAGE}.md is true")
    except CheckError as error:
        print(error, file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
