# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Makes mypy see the vendors' modules, none of which is installed where this project is developed.

    python -m ci.stubs write
    python -m ci.stubs check

From shared/surfaces, read from the real modules, come stubs: signatures where the surface has them, `Any` where it
has names only, and nothing that it lacks, so that mypy reports a name that the vendor does not have. Beside them
stands, for each accelerator class, what core's methods ask of its device module unless the class overrides them.
`write` makes shared/stubs anew; `check` exits with 1 where it is not up to date.
Why: mypy's stubgen needs the module, or its sources, to make a stub of.
"""

from __future__ import annotations

import argparse
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from ci.problem import CheckError, Problem, report
from ci.stubs import inherited, surfaces, text

FOLDER = Path("shared/stubs")


def made(root: Path) -> dict[Path, str]:
    """Every file of shared/stubs by its path there. Raises CheckError where a surface is missing."""
    tree = surfaces.runtimes(root)
    known = dict(surfaces.modules(tree))
    packages = {name.rpartition(".")[0] for name in known}
    files = {}
    for name, names in known.items():
        path = Path(*name.split("."))
        file = path / "__init__.pyi" if name in packages else path.with_suffix(".pyi")
        files[file] = text.module(name, names, tree)
    return files | inherited.files(root)


def _present(root: Path) -> dict[Path, str]:
    folder = root / FOLDER
    return {
        file.relative_to(folder): file.read_text(encoding="utf-8") for file in sorted(folder.rglob("*.py*"))
    }


def write(root: Path, files: Mapping[Path, str]) -> None:
    """Make the folder anew."""
    shutil.rmtree(root / FOLDER, ignore_errors=True)
    for path, content in files.items():
        file = root / FOLDER / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(content, encoding="utf-8")


def check(root: Path, files: Mapping[Path, str]) -> list[Problem]:
    """The files that are missing, differ or are too many."""
    present = _present(root)
    different = sorted(path for path in files.keys() | present.keys() if files.get(path) != present.get(path))
    return [
        Problem(
            what=f"{FOLDER / path} is not up to date",
            found=_found(path, present, files),
            expected=f"what {surfaces.FOLDER} and the accelerator classes make",
            do="python -m ci.stubs write",
        )
        for path in different
    ]


def _found(path: Path, present: Mapping[Path, str], files: Mapping[Path, str]) -> str:
    if path not in files:
        return "a file that nothing makes"
    return "another text" if path in present else "no such file"


def main(arguments: Sequence[str] | None = None, root: Path | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m ci.stubs", description="Stubs of the vendors' modules.")
    parser.add_argument("action", choices=("write", "check"))
    options = parser.parse_args(arguments)
    root = root or Path.cwd()
    try:
        files = made(root)
    except CheckError as error:
        print(error, file=sys.stderr)
        return 2
    if options.action == "write":
        write(root, files)
        return 0
    return report(check(root, files), f"{len(files)} files in {FOLDER} are up to date")


if __name__ == "__main__":
    sys.exit(main())
