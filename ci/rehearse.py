# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Rehearse a release of packages, from the changelog to the roll-back, without a credential.

    python -m ci.rehearse accel-npu           that package; those it stands on are only released
    python -m ci.rehearse --all [--page FILE] every package, in order of dependency, and a page with the results

All happens in a scratch folder: a clone of HEAD with commits and tags, an index on 127.0.0.1, and a fresh environment
with torch and stock DeepSpeed for each package. Needs requirements-dev.txt, and the network for what is not ours.
Why: servers of an index (pypiserver, devpi) cannot yank, and none knows what one package here needs of the others.
"""

from __future__ import annotations

import argparse
import datetime
import functools
import hashlib
import http.server
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

from packaging.version import Version

from ci import api, release_check, wheels, workspace
from ci.printed import table
from ci.problem import Problem, report
from ci.workspace import CORE, Package

#: The owner has not chosen an address yet: this one of the rehearsal cannot receive mail.
EMAIL = "rehearsal@accel.invalid"
RELEASE = ("tag", "build twice", "check, publish")
TRIAL = ("install", "smoke", "upgrade", "yank", "roll back", "other core")


class Index:
    """A package index (PEP 503) with yanked files (PEP 592), as files that any web server can serve."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.yanked = folder, set[str]()

    def publish(self, name: str, files: Sequence[Path]) -> None:
        """Add files of a package."""
        (self.folder / name).mkdir(parents=True, exist_ok=True)
        for file in files:
            shutil.copy(file, self.folder / name)
        self._write(name)

    def yank(self, name: str, version: Version) -> None:
        """Hide the files of a version from all but those who name it."""
        self.yanked |= {file.name for file in (self.folder / name).glob(f"*-{version}[-.]*")}
        self._write(name)

    def _write(self, name: str) -> None:
        lines = ["<!DOCTYPE html>"]
        for file in sorted((self.folder / name).glob("accel_*")):
            digest = hashlib.sha256(file.read_bytes()).hexdigest()
            yanked = ' data-yanked="rehearsal"' if file.name in self.yanked else ""
            lines.append(f'<a href="{file.name}#sha256={digest}"{yanked}>{file.name}</a><br>')
        (self.folder / name / "index.html").write_text("\n".join(lines), encoding="utf-8")

    @contextmanager
    def served(self) -> Iterator[str]:
        """Serve it on a free port; yield its address."""
        handler = functools.partial(_Quiet, directory=str(self.folder))
        with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
            threading.Thread(target=server.serve_forever, daemon=True).start()
            try:
                yield f"http://127.0.0.1:{server.server_port}/"
            finally:
                server.shutdown()


class _Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, format: str, *_: object) -> None:
        """Say nothing: pip shows what it fetches."""


class Rehearsal:
    """A scratch folder: clone, index, environments. Each step returns a few words, or raises Problem."""

    def __init__(self, root: Path, work: Path, index: Index, url: str) -> None:
        self.clone, self.work, self.index, self.url = work / "clone", work, index, url
        self.built: list[Path] = []
        _run("git", "clone", "--quiet", str(root), str(self.clone))
        for setting in (("user.name", "rehearsal"), ("user.email", EMAIL), ("tag.gpgSign", "false")):
            self._git("config", *setting)
        for file in self.clone.glob("packages/*/pyproject.toml"):
            text = file.read_text(encoding="utf-8")
            mail = f'"accel contributors", email = "{EMAIL}" }}]'
            file.write_text(text.replace('"accel contributors" }]', mail), encoding="utf-8")
        self._git("commit", "--quiet", "--all", "--allow-empty", "-m", "an address for the rehearsal")

    def tag(self, name: str, version: Version, change: str) -> str:
        """Bump, build the changelog, commit, check and tag."""
        package = workspace.load(self.clone)[name]
        folder = self.clone / package.folder
        self._replace(f"{package.source}/__about__.py", f'"{package.version}"', f'"{version}"')
        if change:
            (folder / "changelog.d/+rehearsed.misc.md").write_text(f"{change}\n", encoding="utf-8")
        _run(sys.executable, "-m", "towncrier", "build", "--yes", cwd=folder)
        self._git("add", "--all")
        self._git("commit", "--quiet", "-m", f"{name}: release {version}")
        tag = f"{name}-v{version}"
        for problem in release_check.problems(self.clone, tag):
            raise problem
        self._git("tag", tag)
        return tag

    def build(self, name: str, version: Version) -> str:
        """Build sdist and wheel twice."""
        folders = [self.work / "dist" / f"{name}-{version}-{which}" for which in ("first", "second")]
        for folder in folders:
            wheels.build(self.clone, [name], folder, "--no-isolation", "--quiet")
            wheels.repair(folder)
            wheels.add_sboms(folder)
        self.built, again = (sorted(folder.glob("accel_*")) for folder in folders)
        first, second = ({file.name: file.read_bytes() for file in files} for files in (self.built, again))
        _expect(first == second, f"two builds of {name} differ", str(folders), "the same bytes twice")
        return "same bytes"

    def publish(self, name: str) -> str:
        """Check what was built last, and publish it."""
        _run(sys.executable, "-m", "twine", "check", "--strict", *map(str, self.built))
        found = [str(file) for file in self.built if file.suffix == ".whl"]
        _run(sys.executable, "-m", "check_wheel_contents", *found, cwd=self.clone)
        self.index.publish(name, self.built)
        return "passed"

    def environment(self, name: str, python: Path) -> None:
        """Make a fresh environment with stock DeepSpeed and what is not ours."""
        packages = workspace.load(self.clone)
        needed = [packages[each] for each in {name, *workspace.needs(packages, name)}]
        others = {str(each) for package in needed for each in package.requires if each.name not in packages}
        # uv does not read pip's settings: a local folder of wheels serves both.
        links = {"UV_FIND_LINKS": os.environ.get("PIP_FIND_LINKS", "")}
        more = {
            "UV_CONSTRAINT": str(self.clone / "constraints.txt"),
            **(links if any(links.values()) else {}),
        }
        uv = (sys.executable, "-m", "uv")
        _run(*uv, "venv", "--quiet", "--seed", "--python", sys.executable, str(python.parents[1]))
        wanted = ("torch", "deepspeed", *sorted(others))
        _run(*uv, "pip", "install", "--quiet", "--python", str(python), *wanted, more=more)

    def install(self, python: Path, *words: str, wanted: Version) -> str:
        """Install from our index; the last word is the package's name, or begins with it."""
        self._pip(python, "install", *words)
        name = words[-1].partition("=")[0]
        found = _run(str(python), "-c", f"import importlib.metadata as m; print(m.version({name!r}))").strip()
        _expect(found == str(wanted), f"{' '.join(words)} does not install {wanted}", found, str(wanted))
        return found

    def smoke(self, python: Path, name: str) -> str:
        said = _run(str(python), "-m", "ci.smoke", name, cwd=self.clone)
        return "passed; no device here" if "not verified on this machine" in said else "passed"

    def yank(self, python: Path, name: str, bad: Version, good: Version) -> str:
        """Who asks for the package gets the good release; who names the bad one gets it, with a warning."""
        self.index.yank(name, bad)
        here = self.work / "yanked" / name
        self._pip(python, "download", "--no-deps", "--dest", str(here), name)
        found = [file.name for file in here.iterdir() if f"-{good}-" in file.name]
        warned = self._pip(python, "download", "--no-deps", "--dest", str(here), f"{name}=={bad}")
        _expect(
            bool(found) and "yanked" in warned, f"{name} {bad} is offered", warned, f"{good}, as it is yanked"
        )
        return f"{good} is offered"

    def other_core(self, python: Path, package: Package) -> str:
        """A core that has lost the package's interface number: pip and the doctor both have to say so."""
        self._pip(python, "install", "--no-deps", str(self._foreign_core()))
        conflict = self._pip(python, "check", fails=True)
        said = _run(str(python), "-m", "accel_core.cli", "doctor", "--json", cwd=self.work, fails=None)
        own = [each["reason"] for each in json.loads(said)["candidates"] if each["package"] == package.name]
        named = CORE in conflict and any("interface" in reason for reason in own)
        _expect(
            named,
            f"an unfit core is not named for {package.name}",
            f"{own} {conflict}",
            "its interface",
        )
        return "named by pip and the doctor"

    def _foreign_core(self) -> Path:
        out = self.work / "dist/foreign"
        if not out.exists():
            core, number = workspace.load(self.clone)[CORE], api.current(self.clone) or 0
            text = "INTERFACE_VERSION = "
            try:
                self._replace(f"{core.source}/vendor/__init__.py", f"{text}{number}", f"{text}{number + 2}")
                self._replace(f"{core.source}/__about__.py", f'"{core.version}"', f'"0.{number + 1}.0"')
                wheels.build(self.clone, [CORE], out, "--wheel", "--no-isolation", "--quiet")
            finally:
                self._git("checkout", "--quiet", "--", ".")
        return next(out.glob("*.whl"))

    def _pip(self, python: Path, *arguments: str, fails: bool = False) -> str:
        """Run pip as a person whose only index is ours; return what it says."""
        more = {"PIP_CONFIG_FILE": os.devnull, "PIP_INDEX_URL": self.url}
        return _run(str(python), "-m", "pip", *arguments, cwd=self.work, more=more, fails=fails)

    def _replace(self, path: str, old: str, new: str) -> None:
        text = (self.clone / path).read_text(encoding="utf-8")
        (self.clone / path).write_text(text.replace(old, new), encoding="utf-8")

    def _git(self, *arguments: str) -> str:
        return _run("git", *arguments, cwd=self.clone)


def steps(
    act: Rehearsal, package: Package, trial: bool
) -> Generator[tuple[str, Callable[[], str]], None, None]:
    """The steps of a package by name; what a step needs is done when the one before it has ended."""
    name, first = package.name, package.version
    second = Version(f"{first.major}.{first.minor}.{first.micro + 1}")

    def release(version: Version, change: str) -> Iterator[tuple[str, Callable[[], str]]]:
        yield "tag", lambda: act.tag(name, version, change)
        yield "build twice", lambda: act.build(name, version)
        yield "check, publish", lambda: act.publish(name)

    yield from release(first, "")
    if not trial:
        return
    python = act.work / "environments" / name / "bin/python"

    def install() -> str:
        act.environment(name, python)
        return act.install(python, name, wanted=first)

    try:
        yield "install", install
        yield "smoke", lambda: act.smoke(python, name)
        yield from release(second, "A change for the rehearsal.")
        yield "upgrade", lambda: act.install(python, "--upgrade", name, wanted=second)
        yield "yank", lambda: act.yank(python, name, second, first)
        yield "roll back", lambda: act.install(python, f"{name}=={first}", wanted=first)
        yield "smoke", lambda: act.smoke(python, name)
        if package.vendors:
            yield "other core", lambda: act.other_core(python, package)
    finally:  # it has gigabytes
        shutil.rmtree(python.parents[1], ignore_errors=True)


def rehearse(act: Rehearsal, package: Package, trial: bool) -> dict[str, str]:
    """Step -> result, up to the first that fails, whose result begins with `failed`."""
    results: dict[str, str] = {}
    began, step = time.monotonic(), ""
    try:
        with closing(steps(act, package, trial)) as each:
            for step, do in each:
                result = do()
                results.setdefault(step, result)
                print(f"{package.name}: {step}: {result}", flush=True)
    except Problem as problem:
        results[step] = f"failed: {problem}"
    return results | {"minutes": f"{(time.monotonic() - began) / 60:.1f}"}


def page(rows: Mapping[str, Mapping[str, str]]) -> str:
    """The results as a page of the documentation."""
    columns = (*RELEASE, *TRIAL, "minutes")
    day = datetime.datetime.now(datetime.timezone.utc).date()
    lines = [
        "# Rehearsal of the releases",
        "",
        f"Made by `python -m ci.rehearse --all` on {day} with Python {sys.version.split()[0]}: each package, in order",
        "of dependency, in a scratch clone and with an index on 127.0.0.1. Nothing was published.",
        "[A release](../../CONTRIBUTING.md#a-release) has what each step does; `—` is one that a package lacks.",
        "",
    ]
    cells = (
        [name, *(results.get(step, "—").splitlines()[0].replace("|", "\\|") for step in columns)]
        for name, results in rows.items()
    )
    return "\n".join([*lines, *table(["package", *columns], cells)]) + "\n"


def _expect(holds: bool, what: str, found: str, expected: str) -> None:
    if not holds:
        do = "repeat it with --keep FOLDER, and look there"
        raise Problem(what=what, found=found, expected=expected, do=do)


def _run(
    *command: str, cwd: Path | None = None, more: Mapping[str, str] | None = None, fails: bool | None = False
) -> str:
    """Run it without settings that steer imports or selection; `more` replaces those of pip and uv."""
    own = ("ACCEL_", "DS_ACCELERATOR", "PYTHONPATH", *(("PIP_", "UV_") if more else ()))
    kept = {name: value for name, value in os.environ.items() if not name.startswith(own)}
    done = subprocess.run(
        command, cwd=cwd, env={**kept, **(more or {})}, capture_output=True, text=True, check=False
    )
    if fails is not None:
        last = "\n            ".join((done.stdout + done.stderr).strip().splitlines()[-15:])
        as_expected = bool(done.returncode) == fails
        _expect(as_expected, " ".join(command), f"exit status {done.returncode}: {last}", "the other")
    return done.stdout + ("" if "--json" in command else done.stderr)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m ci.rehearse", description="Rehearse releases.")
    parser.add_argument("packages", nargs="*", metavar="PACKAGE")
    parser.add_argument("--all", action="store_true", help="every package, in order of dependency")
    parser.add_argument("--page", type=Path, metavar="FILE", help="write the results there")
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="work in this new folder, and leave it")
    options = parser.parse_args(arguments)
    root = Path.cwd()
    packages = workspace.load(root)
    chosen = (
        {*packages} if options.all else {workspace.pick(packages, each).name for each in options.packages}
    )
    needed = chosen.union(*(workspace.needs(packages, name) for name in chosen))
    rows: dict[str, dict[str, str]] = {}
    with tempfile.TemporaryDirectory(prefix="accel-rehearsal-") as scratch:
        work = (options.keep or Path(scratch)).resolve()
        index = Index(work / "index")
        index.folder.mkdir(parents=True)
        with index.served() as url:
            act = Rehearsal(root, work, index, url)
            # What a package stands on stands on less than it.
            for name in sorted(needed, key=lambda name: (len(workspace.needs(packages, name)), name)):
                rows[name] = rehearse(act, packages[name], name in chosen)
    if options.page:
        options.page.write_text(page(rows), encoding="utf-8")
    failed = [
        f"{name}: {step}: {row[step]}"
        for name, row in rows.items()
        for step in row
        if row[step].startswith("failed")
    ]
    print("\n".join(failed) or f"rehearsed: {', '.join(rows)}")
    return min(len(failed), 1)


if __name__ == "__main__":
    try:
        sys.exit(main())
    except Problem as problem:
        sys.exit(report([problem], ""))
