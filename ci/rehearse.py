# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Rehearse a release of packages, from the changelog to the roll-back, without a credential.

    python -m ci.rehearse accel-npu           that package; those it stands on are only released
    python -m ci.rehearse --all               every package, in order of dependency, and the page of results

All happens in a scratch folder: a clone of HEAD with commits and tags, a folder that is pip's only index, and a fresh
environment with torch and stock DeepSpeed for each package. Needs requirements-dev.txt, and the network for the latter.
Why: no tool knows what one package here needs of the others.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Sequence
from datetime import datetime, timezone
from pathlib import Path

from packaging.version import Version

from ci import release_check, wheels, workspace
from ci.pages import page
from ci.program import Problem, environment, git, python, run
from ci.workspace import Package

PAGE = Path("docs/results/release-rehearsal.md")
#: The owner has not chosen an address yet: this one of the rehearsal cannot receive mail.
EMAIL = "rehearsal@accel.invalid"


class Rehearsal:
    """A scratch folder: clone, index, environments."""

    def __init__(self, root: Path, work: Path) -> None:
        self.clone, self.work, self.index = work / "clone", work, work / "index"
        self.index.mkdir(parents=True)
        run("git", "clone", "--quiet", root, self.clone)
        for setting in (("user.name", "rehearsal"), ("user.email", EMAIL), ("tag.gpgSign", "false")):
            git(self.clone, "config", *setting)
        for file in self.clone.glob("packages/*/pyproject.toml"):
            _replace(file, '"accel contributors" }]', f'"accel contributors", email = "{EMAIL}" }}]')
        git(self.clone, "commit", "--quiet", "--all", "--allow-empty", "-m", "an address for the rehearsal")

    def rehearse(self, package: Package, tried: bool) -> dict[str, str]:
        """Return {step: result} up to the first that fails; its reason is `failed`."""
        results, began = dict[str, str](), time.monotonic()
        try:
            self.release(package, package.version, results)
            if tried:
                self.trial(package, results)
        except Problem as problem:
            results["failed"] = str(problem)
        print(f"{package.name}: {results}", flush=True)
        return results | {"minutes": f"{(time.monotonic() - began) / 60:.1f}"}

    def release(self, package: Package, version: Version, results: dict[str, str]) -> None:
        """Bump, build the changelog, commit, check, tag, build twice, check the files and publish them."""
        name, folder, tag = package.name, self.clone / package.folder, f"{package.name}-v{version}"
        if version != package.version:
            _replace(self.clone / package.source / "__about__.py", f'"{package.version}"', f'"{version}"')
            (folder / "changelog.d/+rehearsed.misc.md").write_text("A change.\n", encoding="utf-8")
        python("-m", "towncrier", "build", "--yes", cwd=folder)
        git(self.clone, "add", "--all")
        git(self.clone, "commit", "--quiet", "-m", f"{name}: release {version}")
        for problem in release_check.problems(self.clone, tag):
            raise problem
        git(self.clone, "tag", tag)
        results["tag"] = tag
        built = []
        for which in ("first", "second"):
            out = self.work / "dist" / f"{name}-{version}-{which}"
            wheels.build(self.clone, [name], out, "--no-isolation", "--quiet")
            wheels.repair(out)
            built.append(sorted(out.glob("accel_*")))
        first, second = ([(file.name, file.read_bytes()) for file in files] for files in built)
        _expect(first == second, f"two builds of {name} differ, in {self.work / 'dist'}")
        results["build twice"] = "same bytes"
        python("-m", "twine", "check", "--strict", *built[0])
        python("-m", "check_wheel_contents", *out.glob("*.whl"), cwd=self.clone)
        for file in built[0]:
            shutil.copy(file, self.index)
        results["check, publish"] = "passed"

    def trial(self, package: Package, results: dict[str, str]) -> None:
        """Install with DeepSpeed, upgrade, roll back."""
        name, first = package.name, package.version
        second = Version(f"{first.major}.{first.minor}.{first.micro + 1}")
        here = self.work / "environments" / name / "bin/python"
        try:
            self.environment(name, here)
            results["install"] = self.install(here, first, name)
            results["smoke"] = self.smoke(here, name)
            self.release(package, second, {})
            results["upgrade"] = self.install(here, second, "--upgrade", name)
            results["roll back"] = self.install(here, first, f"{name}=={first}")
            self.smoke(here, name)
        finally:  # it has gigabytes
            shutil.rmtree(here.parents[1], ignore_errors=True)

    def environment(self, name: str, here: Path) -> None:
        """Make a fresh environment with stock DeepSpeed and what is not ours."""
        packages = workspace.load(self.clone)
        needed = [packages[each] for each in {name, *workspace.needs(packages, name)}]
        others = {str(each) for package in needed for each in package.requires if each.name not in packages}
        # uv does not read pip's settings: a local folder of wheels serves both.
        links = {"UV_FIND_LINKS": os.environ["PIP_FIND_LINKS"]} if "PIP_FIND_LINKS" in os.environ else {}
        given = environment("PIP_", "UV_", UV_CONSTRAINT=str(self.clone / "constraints.txt"), **links)
        python("-m", "uv", "venv", "--quiet", "--seed", "--python", sys.executable, here.parents[1])
        wanted = ("torch", "deepspeed", *sorted(others))
        python("-m", "uv", "pip", "install", "--quiet", "--python", here, *wanted, env=given)

    def install(self, here: Path, wanted: Version, *words: str) -> str:
        """Install as a person whose only index is ours; the last word is the package's name, or begins with it."""
        pip = environment(
            "PIP_", PIP_CONFIG_FILE=os.devnull, PIP_NO_INDEX="1", PIP_FIND_LINKS=str(self.index)
        )
        run(here, "-m", "pip", "install", *words, env=pip)
        name = words[-1].partition("=")[0]
        found = run(here, "-c", f"import importlib.metadata as m; print(m.version({name!r}))").strip()
        _expect(found == str(wanted), f"pip install {' '.join(words)} gives {found}, not {wanted}")
        return found

    def smoke(self, here: Path, name: str) -> str:
        run(here, "-m", "ci.smoke", name, cwd=self.clone, env=environment())
        return "passed"


def _replace(file: Path, old: str, new: str) -> None:
    file.write_text(file.read_text(encoding="utf-8").replace(old, new), encoding="utf-8")


def _expect(holds: bool, what: str) -> None:
    if not holds:
        raise Problem(f"{what}; repeat it with --keep FOLDER, and look there")


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m ci.rehearse", description="Rehearse releases.")
    parser.add_argument("packages", nargs="*", metavar="PACKAGE")
    parser.add_argument("--all", action="store_true", help="every package; write the page of results")
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="work in this new folder, and leave it")
    options = parser.parse_args(arguments)
    packages = workspace.load(Path.cwd())
    chosen = {*packages} if options.all else {*options.packages}
    needed = chosen.union(*(workspace.needs(packages, name) for name in chosen))
    # What a package stands on stands on less than it.
    order = sorted(needed, key=lambda name: (len(workspace.needs(packages, name)), name))
    with tempfile.TemporaryDirectory(prefix="accel-rehearsal-") as scratch:
        act = Rehearsal(Path.cwd(), (options.keep or Path(scratch)).resolve())
        rows = {name: act.rehearse(packages[name], name in chosen) for name in order}
    if options.all:
        day, version = datetime.now(timezone.utc).date(), sys.version.split()[0]
        steps = list(dict.fromkeys(step for results in rows.values() for step in results))
        text = page("release-rehearsal", rows=rows, steps=steps, day=day, python=version)
        PAGE.write_text(text, encoding="utf-8")
    return int(any("failed" in results for results in rows.values()))


if __name__ == "__main__":
    sys.exit(main())
