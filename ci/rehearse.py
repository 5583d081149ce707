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
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from html import escape
from pathlib import Path

from packaging.utils import canonicalize_name, parse_sdist_filename, parse_wheel_filename
from packaging.version import Version

from ci import api, release_check, wheels, workspace
from ci.problem import Problem, report
from ci.workspace import CORE, Package

#: The owner has not chosen an address yet: this one of the rehearsal cannot receive mail.
EMAIL = "rehearsal@accel.invalid"
RELEASE = ("tag", "build twice", "check, publish")
TRIAL = ("install", "smoke", "upgrade", "yank", "roll back", "other core")


class Index:
    """A package index (PEP 503) with yanked files (PEP 592), as files that any web server can serve."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.yanked = folder, dict[str, str]()

    def publish(self, files: Sequence[Path]) -> None:
        """Add the files; one of the same name must not be there, as on every index."""
        for file in files:
            home = self.folder / _name_and_version(file)[0]
            home.mkdir(parents=True, exist_ok=True)
            if (home / file.name).exists():
                raise _unexpected(f"{file.name} is published twice", "it is there already", "a new version")
            shutil.copy(file, home)
            self._write(home)

    def yank(self, name: str, version: Version, reason: str) -> None:
        """Hide the files of a version from all but those who name it."""
        home = self.folder / name
        files = [file.name for file in _files(home) if _name_and_version(file)[1] == version]
        self.yanked |= dict.fromkeys(files, reason)
        self._write(home)

    def _write(self, home: Path) -> None:
        lines = ["<!DOCTYPE html>"]
        for file in _files(home):
            digest = hashlib.sha256(file.read_bytes()).hexdigest()
            reason = self.yanked.get(file.name)
            yanked = "" if reason is None else f' data-yanked="{escape(reason)}"'
            lines.append(f'<a href="{file.name}#sha256={digest}"{yanked}>{file.name}</a><br>')
        (home / "index.html").write_text("\n".join(lines), encoding="utf-8")

    @contextmanager
    def served(self) -> Iterator[str]:
        """Serve it on a free port; yield its address."""
        handler = functools.partial(_Quiet, directory=str(self.folder))
        with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
            threading.Thread(target=server.serve_forever, daemon=True).start()
            yield f"http://127.0.0.1:{server.server_port}/"
            server.shutdown()


class _Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, format: str, *_: object) -> None:
        """Say nothing: pip and uv show what they fetch."""


def _files(home: Path) -> list[Path]:
    return sorted(file for file in home.iterdir() if file.suffix in (".gz", ".whl"))


def _name_and_version(file: Path) -> tuple[str, Version]:
    if file.suffix == ".whl":
        name, version, *_ = parse_wheel_filename(file.name)
    else:
        name, version = parse_sdist_filename(file.name)
    return str(name), version


class Rehearsal:
    """A scratch folder: clone, index, environments. Each step returns a few words, or raises Problem."""

    def __init__(self, root: Path, work: Path, index: Index, url: str) -> None:
        self.clone, self.work, self.index, self.url = work / "clone", work, index, url
        self.built: list[Path] = []
        _run("git", "clone", "--quiet", str(root), str(self.clone), cwd=work)
        for key, value in (("user.name", "rehearsal"), ("user.email", EMAIL), ("tag.gpgSign", "false")):
            self._git("config", key, value)
        for file in self.clone.glob("packages/*/pyproject.toml"):
            text = file.read_text(encoding="utf-8")
            mail = f'"accel contributors", email = "{EMAIL}"'
            file.write_text(text.replace('"accel contributors" }]', f"{mail} }}]"), encoding="utf-8")
        self._git("commit", "--quiet", "--all", "--allow-empty", "-m", "an address for the rehearsal")

    @property
    def packages(self) -> dict[str, Package]:
        return workspace.load(self.clone)

    def tag(self, name: str, version: Version, change: str = "") -> str:
        """Bump, build the changelog, commit, check and tag."""
        package = self.packages[name]
        folder, about = self.clone / package.folder, self.clone / package.source / "__about__.py"
        text = about.read_text(encoding="utf-8")
        about.write_text(text.replace(f'"{package.version}"', f'"{version}"'), encoding="utf-8")
        if change:
            (folder / "changelog.d/+rehearsed.misc.md").write_text(f"{change}\n", encoding="utf-8")
        self._python("-m", "towncrier", "build", "--yes", cwd=folder)
        tag = f"{name}-v{version}"
        self._git("add", "--all")
        self._git("commit", "--quiet", "-m", f"{name}: release {version}")
        for problem in release_check.problems(self.clone, tag):
            raise problem
        self._git("tag", tag)
        return tag

    def build(self, name: str, version: Version) -> str:
        """Build sdist and wheel twice; raise Problem where their bytes differ."""
        folders = [self.work / "dist" / f"{name}-{version}-{which}" for which in ("first", "second")]
        for folder in folders:
            wheels.build(self.clone, [name], folder, "--no-isolation", "--quiet")
            wheels.repair(folder)
            wheels.add_sboms(folder)
        first, second = ({file.name: file.read_bytes() for file in _files(folder)} for folder in folders)
        if first != second:
            differ = sorted(key for key in {*first, *second} if first.get(key) != second.get(key))
            raise _unexpected(f"two builds of {name} differ", ", ".join(differ), "the same bytes twice")
        self.built = _files(folders[0])
        return "same bytes"

    def publish(self) -> str:
        """Check what was built last, and publish it."""
        self._python("-m", "twine", "check", "--strict", *map(str, self.built))
        found = [str(file) for file in self.built if file.suffix == ".whl"]
        self._python("-m", "check_wheel_contents", "--config", str(self.clone / "pyproject.toml"), *found)
        self.index.publish(self.built)
        return "passed"

    def environment(self, name: str) -> Path:
        """Make a fresh environment with stock DeepSpeed and what is not ours; return its Python."""
        packages = self.packages
        folder = self.work / "environments" / name
        python = folder / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
        needed = [packages[each] for each in (name, *sorted(workspace.needs(packages, name)))]
        others = {str(each) for package in needed for each in package.requires if each.name not in packages}
        own = {"UV_CONSTRAINT": str(self.clone / "constraints.txt")}
        if "PIP_FIND_LINKS" in os.environ:
            own["UV_FIND_LINKS"] = os.environ["PIP_FIND_LINKS"]
        self._python("-m", "uv", "venv", "--quiet", "--seed", "--python", sys.executable, str(folder))
        wanted = ["torch", "deepspeed", *sorted(others)]
        self._python("-m", "uv", "pip", "install", "--quiet", "--python", str(python), *wanted, more=own)
        return python

    def pip(self, python: Path, *arguments: str, fails: bool | None = False) -> str:
        """Run pip as a person whose only index is ours; return what it says."""
        more = {"PIP_CONFIG_FILE": os.devnull, "PIP_INDEX_URL": self.url}
        return _run(str(python), "-m", "pip", *arguments, cwd=self.work, more=more, fails=fails)

    def smoke(self, python: Path, name: str) -> str:
        said = _run(str(python), "-m", "ci.smoke", name, cwd=self.clone)
        return "device not here" if "not verified on this machine" in said else "passed"

    def installed(self, python: Path, name: str, wanted: Version) -> str:
        found = _run(
            str(python), "-c", f"from importlib.metadata import version as v; print(v({name!r}))"
        ).strip()
        if found != str(wanted):
            raise _unexpected(f"{name} is not the release that was asked for", found, str(wanted))
        return found

    def yank(self, python: Path, name: str, bad: Version, good: Version) -> str:
        """Who asks for the package gets the good release; who names the bad one gets it, with a warning."""
        self.index.yank(name, bad, "rehearsal")
        here = self.work / "yanked" / name
        self.pip(python, "download", "--no-deps", "--dest", str(here / "any"), name)
        (found,) = _files(here / "any")
        warned = self.pip(python, "download", "--no-deps", "--dest", str(here / "named"), f"{name}=={bad}")
        if _name_and_version(found)[1] != good or "yanked" not in warned:
            raise _unexpected(f"{name} {bad} is offered although it is yanked", found.name, str(good))
        return f"{found.name.split('-')[1]} is offered"

    def other_core(self, python: Path, package: Package) -> str:
        """A core that has lost the package's interface number: pip and the doctor both have to say so."""
        self.pip(python, "install", "--no-deps", str(self._foreign_core()))
        conflict = self.pip(python, "check", fails=True)
        said = _run(str(python), "-m", "accel_core.cli", "doctor", "--json", cwd=self.work, fails=None)
        own = [each for each in json.loads(said)["candidates"] if each["package"] == package.name]
        if CORE not in conflict or not own or any("interface" not in each["reason"] for each in own):
            raise _unexpected(
                f"an unfit core beside {package.name} is not named",
                f"{conflict}{own}",
                "its interface number",
            )
        return "named by pip and the doctor"

    @functools.cache  # noqa: B019  # one rehearsal a process
    def _foreign_core(self) -> Path:
        number, core = api.current(self.clone) or 0, self.packages[CORE]
        out = self.work / "dist" / "foreign"
        for file, old, new in (
            ("vendor/__init__.py", f"INTERFACE_VERSION = {number}", f"INTERFACE_VERSION = {number + 2}"),
            ("__about__.py", f'"{core.version}"', f'"0.{number + 1}.0"'),
        ):
            path = self.clone / core.source / file
            path.write_text(path.read_text(encoding="utf-8").replace(old, new), encoding="utf-8")
        wheels.build(self.clone, [CORE], out, "--wheel", "--no-isolation", "--quiet")
        self._git("checkout", "--quiet", "--", ".")
        return _files(out)[0]

    def _git(self, *arguments: str) -> str:
        return _run("git", *arguments, cwd=self.clone)

    def _python(self, *arguments: str, cwd: Path | None = None, more: Mapping[str, str] | None = None) -> str:
        return _run(sys.executable, *arguments, cwd=cwd or self.work, more=more)


def rehearse(rehearsal: Rehearsal, name: str, trial: bool) -> dict[str, str]:
    """Step -> result, up to the first that fails, whose result begins with `failed`."""
    package = rehearsal.packages[name]
    first = package.version
    second = Version(f"{first.major}.{first.minor}.{first.micro + 1}")
    results: dict[str, str] = {}

    def release(version: Version, change: str = "") -> Iterator[tuple[str, Callable[[], str]]]:
        yield "tag", lambda: rehearsal.tag(name, version, change)
        yield "build twice", lambda: rehearsal.build(name, version)
        yield "check, publish", rehearsal.publish

    def steps() -> Iterator[tuple[str, Callable[[], str]]]:
        yield from release(first)
        if not trial:
            return
        python = rehearsal.environment(name)

        def install(*words: str, wanted: Version) -> str:
            rehearsal.pip(python, "install", *words)
            return rehearsal.installed(python, name, wanted)

        yield "install", lambda: install(name, wanted=first)
        yield "smoke", lambda: rehearsal.smoke(python, name)
        yield from release(second, "A change for the rehearsal.")
        yield "upgrade", lambda: install("--upgrade", name, wanted=second)
        yield "yank", lambda: rehearsal.yank(python, name, second, first)
        yield "roll back", lambda: install(f"{name}=={first}", wanted=first)
        rehearsal.smoke(python, name)
        if package.vendors:
            yield "other core", lambda: rehearsal.other_core(python, package)
        shutil.rmtree(python.parents[1])

    for step, do in steps():
        try:
            result = do()
        except Problem as problem:
            results[step] = f"failed: {problem}"
            break
        results.setdefault(step, result)
        print(f"{name}: {step}: {result}", flush=True)
    return results


def page(rows: Mapping[str, Mapping[str, str]], minutes: Mapping[str, float]) -> str:
    """The results as a page of the documentation."""
    steps = (*RELEASE, *TRIAL)
    day = datetime.datetime.now(datetime.timezone.utc).date()
    lines = [
        "# Rehearsal of the releases",
        "",
        f"Made by `python -m ci.rehearse --all` on {day}, Python {sys.version.split()[0]}. Each package, in order of",
        "dependency, in a scratch clone and with an index on 127.0.0.1: nothing here was published.",
        "[Releases](../releases.md) says what each step does. `—` is a step that the package does not have.",
        "",
        f"| package | {' | '.join(steps)} | minutes |",
        f"| --- |{' --- |' * (len(steps) + 1)}",
    ]
    for name, results in rows.items():
        cells = [results.get(step, "—").splitlines()[0].replace("|", "\\|") for step in steps]
        lines.append(f"| {name} | {' | '.join(cells)} | {minutes[name]:.1f} |")
    return "\n".join(lines) + "\n"


def _unexpected(what: str, found: str, expected: str) -> Problem:
    return Problem(
        what=what, found=found, expected=expected, do="repeat it by hand: --keep FOLDER leaves all"
    )


def _run(
    *command: str, cwd: Path | None = None, more: Mapping[str, str] | None = None, fails: bool | None = False
) -> str:
    """Run it, without pip's and the project's own settings where `more` is given; return what it says."""
    own = {
        k: v for k, v in os.environ.items() if not k.startswith(("ACCEL_", "DS_ACCELERATOR", "PYTHONPATH"))
    }
    if more and "PIP_INDEX_URL" in more:
        own = {k: v for k, v in own.items() if not k.startswith(("PIP_", "UV_"))}
    done = subprocess.run(
        command, cwd=cwd, env=own | dict(more or {}), capture_output=True, text=True, check=False
    )
    if fails is not None and bool(done.returncode) != fails:
        last = "\n            ".join((done.stdout + done.stderr).strip().splitlines()[-15:])
        raise _unexpected(" ".join(command), f"exit status {done.returncode}: {last}", "the other")
    return done.stdout + ("" if "--json" in command else done.stderr)


def main(arguments: Sequence[str] | None = None, root: Path | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m ci.rehearse", description="Rehearse releases.")
    parser.add_argument("packages", nargs="*", metavar="PACKAGE")
    parser.add_argument("--all", action="store_true", help="every package, in order of dependency")
    parser.add_argument("--page", type=Path, metavar="FILE", help="write the results there")
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="work in this new folder, and leave it")
    options = parser.parse_args(arguments)
    root = root or Path.cwd()
    problems: list[Problem] = []
    try:
        packages = workspace.load(root)
        chosen = {workspace.pick(packages, canonicalize_name(name)).name for name in options.packages}
        chosen = set(packages) if options.all else chosen
        needed = chosen.union(*(workspace.needs(packages, name) for name in chosen))
        # What a package stands on stands on less than it.
        order = sorted(needed, key=lambda name: (len(workspace.needs(packages, name)), name))
        if options.keep:
            options.keep.mkdir(parents=True)
        with tempfile.TemporaryDirectory(prefix="accel-rehearsal-") as scratch:
            work = (options.keep or Path(scratch)).resolve()
            index = Index(work / "index")
            index.folder.mkdir()
            failed = set[str]()
            rows, minutes = dict[str, dict[str, str]](), dict[str, float]()
            with index.served() as url:
                rehearsal = Rehearsal(root, work, index, url)
                for name in order:
                    began = time.monotonic()
                    if unfit := workspace.needs(packages, name) & failed:
                        rows[name] = {"tag": f"failed: not run, because {', '.join(sorted(unfit))} failed"}
                    else:
                        rows[name] = rehearse(rehearsal, name, trial=name in chosen)
                    failed |= {name for result in rows[name].values() if result.startswith("failed")}
                    minutes[name] = (time.monotonic() - began) / 60
        for name, results in rows.items():
            problems += [
                _unexpected(f"{name}: {step}", result, "a step that succeeds")
                for step, result in results.items()
                if result.startswith("failed")
            ]
        if options.page:
            options.page.write_text(page(rows, minutes), encoding="utf-8")
    except Problem as problem:
        problems.append(problem)
    return report(problems, f"rehearsed: {', '.join(sorted(chosen))}") if problems or chosen else 0


if __name__ == "__main__":
    sys.exit(main())
