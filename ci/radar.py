# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""What each DeepSpeed commit does to our accelerators: which commit broke what, and the issue to file.

python -m ci.radar CHECKOUT                  the newest commit beside the one ahead of it
python -m ci.radar CHECKOUT A..B C FOLDER    each commit of a range, a commit, an installed DeepSpeed
python -m ci.radar CHECKOUT A..B --static    read sources only: a fifth of a second for each commit
python -m ci.radar CHECKOUT A..B --bisect    also find the commit of what only one end passes, for every check
python -m ci.radar CHECKOUT A..B --record    also write docs/results/radar.md

The sources of every commit are read (ci.radar_facts). A commit that concerns us is imported with our packages, and both
ends run all checks (ci.radar_checks) on all devices. Exits with 1 if something is work for us.
FOLDER is one of `pip install --no-deps --target FOLDER deepspeed==0.19.8`.
"""

from __future__ import annotations

import argparse
import functools
import importlib.util
import inspect
import itertools
import re
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from accel_core.interface import DeepSpeedAccelerator, PinnedMemoryInterface
from accel_core.op_builder import names
from ci import printed, radar_checks, radar_facts, workspace
from ci.parity import DEVICES
from ci.problem import Problem, report
from ci.radar_facts import ABSTRACT, CALL, Facts
from ci.workspace import git

KNOWN = Path("ci/radar.toml")
TESTS = Path("tests/deepspeed/subsets.toml")
PAGE = Path("docs/results/radar.md")
#: All but `served` are work for us.
LEVELS = {
    "breaks": "our packages fail, or do not have what DeepSpeed asks for",
    "slower": "a replaced method steps aside, DeepSpeed's own runs",
    "lacks": "DeepSpeed offers something that ours does not",
    "gone": "DeepSpeed gave up something that users' programs may use",
    "served": "nothing to do: it is so in the DeepSpeed of our tests, or ours fits",
}
_INTERFACE = "deepspeed.accelerator.abstract_accelerator:DeepSpeedAccelerator."
_DEVICE = re.compile(r"deepspeed\.accelerator\.(\w+)_accelerator:\w+_Accelerator\.?([a-zA-Z]\w*)?")
_OP = re.compile(r"deepspeed\.ops\.op_builder\.(\w+):(\w+Builder)")
_PUBLIC_OF_ENGINE = re.compile(r"deepspeed\.runtime\.engine:DeepSpeedEngine\.[a-z]\w*|deepspeed\.\w+:")


class Target(NamedTuple):
    """One DeepSpeed: its full commit or its folder, a title, and what it is compared with."""

    name: str
    title: str
    former: str

    @property
    def short(self) -> str:
        """The name for people; of a range, that of both ends."""
        return "..".join(Path(end).name[:9] for end in self.name.split(".."))


class Finding(NamedTuple):
    """One consequence of a commit."""

    level: str
    subject: str
    says: str


# ------------------------------------------------------------------------------------------------ judging


class Judge:
    """Knows what ours has and uses, and the facts of the DeepSpeed that our tests use."""

    def __init__(self, root: Path, used: set[str], tested: Facts) -> None:
        """Read the keys of our own DeepSpeed configurations: those of the examples and of our engine's runs."""
        files = [
            *root.glob("examples/**/*.py"),
            *root.glob("packages/accel-testkit/src/accel_testkit/engine/*.py"),
        ]
        texts = (file.read_text(encoding="utf-8") for file in files)
        self._keys = {key for text in texts for key in re.findall(r'\b(\w+)(?:"\s*:|=)', text)}
        self._used, self._tested = used, tested

    def findings(self, before: Facts, after: Facts) -> list[Finding]:
        """Return what a change of facts means for us; what several devices share is one finding."""
        found: dict[Finding, list[str]] = {}
        for fact in sorted(key for key in before.keys() | after.keys() if before.get(key) != after.get(key)):
            old, new = before.get(fact, ""), after.get(fact, "")
            level, subject, says = self._judged(fact, old, new, before, after)
            if level not in ("", "slower") and self._tested.get(fact, "") == new:
                level = "served"
            if level:
                device = _DEVICE.fullmatch(fact)
                found.setdefault(Finding(level, subject, says), []).extend([device[1]] if device else [])
        return [each._replace(subject=" ".join((*devices, each.subject))) for each, devices in found.items()]

    def _judged(self, fact: str, old: str, new: str, before: Facts, after: Facts) -> Finding:
        module, _, name = fact.partition(":")
        known = radar_facts.watched().get(fact)
        change = f"{old or 'none'} → {new or 'gone'}"
        if fact.startswith(_INTERFACE):
            method = name.partition(".")[2]
            return Finding("", "", "") if method.startswith("_") else _interface(method, old, new)
        if device := _DEVICE.fullmatch(fact):
            return _device(device[1], device[2] or "", old, new, before, after)
        if known is not None and new in known:
            return Finding("served", name, f"fits {known[new]}")
        if known is not None:
            says = f"written for another source: {', '.join(sorted(set(known.values())))}"
            return Finding("slower" if old else "", name, says)
        if fact in self._used:
            return Finding("breaks" if old else "", fact, f"{change}; our sources use it")
        if module + ":" == CALL:
            unknown = new and _ours(name) is None and _INTERFACE + name not in after
            return Finding(
                "breaks" if unknown else "", name, "DeepSpeed calls what neither its interface nor ours has"
            )
        if op := _OP.fullmatch(fact):
            there = any(each.endswith(f":{name}") for each in (before if new else after))
            if name.endswith("OpBuilder") or (there and (new or op[1] not in DEVICES)):
                return Finding("", "", "")
            ours = name in (*names.UPSTREAM, *names.ONE_DEVICE)
            level = ("served" if ours else "lacks") if new else "gone"
            return Finding(level, f"{op[1]} {name}", f"an op: {change}")
        key = name.rpartition(".")[2].lower()
        if old == "key" and not new and not any(re.split("[:.]", each.lower())[-1] == key for each in after):
            level = "breaks" if key in self._keys else "gone"
            return Finding("" if key.endswith("_default") else level, key, f"a key of {module}: gone")
        gone = _PUBLIC_OF_ENGINE.fullmatch(fact) and not new
        return Finding("gone" if gone else "", fact, "DeepSpeed has it no more")


def _interface(name: str, old: str, new: str) -> Finding:
    ours = _ours(name)
    if not new:
        return Finding("gone" if ours else "served", name, "an accelerator needs this method no more")
    if ours is None and new.endswith(ABSTRACT):
        return Finding("breaks", name, f"the bridge stays off, {name} {new} is asked for")
    if ours is None:
        return Finding("lacks", name, f"DeepSpeed's own {name} {new} is used")
    return Finding(
        "served" if fits(ours, new) else "breaks",
        name,
        f"{old or 'none'} → {new}; ours: {inspect.signature(ours)}",
    )


def _device(device: str, name: str, old: str, new: str, before: Facts, after: Facts) -> Finding:
    """Judge a method of DeepSpeed's class for a device; a change that all share is that of the interface."""
    if device not in DEVICES or not name:
        return Finding("" if name or device in DEVICES else "lacks" if new else "gone", "backend", old or new)
    ours, common = _ours(name), _INTERFACE + name
    level = "served" if old and ours and fits(ours, new) else "lacks"
    if not new or name == "name" or (old and before.get(common) != after.get(common)):
        level = ""
    return Finding(level, name, f"its own: {old or 'none'} → {new}")


def _ours(name: str) -> Callable[..., object] | None:
    return vars(DeepSpeedAccelerator).get(name) or vars(PinnedMemoryInterface).get(name)


def fits(ours: Callable[..., object], theirs: str) -> bool:
    """Return whether our method takes each form in which one with DeepSpeed's signature may be called."""
    scope: dict[str, Callable[..., object]] = {}
    try:
        exec(f"def theirs{theirs.removesuffix(ABSTRACT)}: ...", {}, scope)
        parameters = list(inspect.signature(scope["theirs"]).parameters.values())
        placed = [each.name for each in parameters if each.kind is each.POSITIONAL_OR_KEYWORD]
        keywords = {each.name: None for each in parameters if each.kind is each.KEYWORD_ONLY}
        inspect.signature(ours).bind(*placed, **keywords)
        inspect.signature(ours).bind(*placed[:1], **dict.fromkeys(placed[1:]), **keywords)
    except (TypeError, NameError, SyntaxError):
        return False
    return True


# ------------------------------------------------------------------------------------------------- stages


def targets(checkout: Path, words: Iterable[str]) -> list[Target]:
    """Return the commits and folders of the command line, in its order."""
    found: list[Target] = []
    for word in words:
        if (Path(word) / "deepspeed").is_dir():
            former = found[-1].name if found else git(checkout, "rev-parse", "HEAD").strip()
            found.append(Target(str(Path(word).resolve()), "as it was released", former))
            continue
        wanted = ("--first-parent", "--reverse", word) if ".." in word else ("-1", word)
        for line in git(checkout, "log", "--format=%H %P\t%cs %s", *wanted).splitlines():
            commits, title = line.split("\t", 1)
            commit, *parents = commits.split()
            if not parents:
                raise Problem(
                    what=f"{commit[:9]} cannot be compared with the commit before it",
                    found="a commit without a parent in this clone",
                    expected="its parent",
                    do="git fetch --unshallow, or begin the range later",
                )
            found.append(Target(commit, title, parents[0]))
    return list({target.name: target for target in found}.values())


def first(order: Sequence[str], holds: Callable[[str], bool]) -> str:
    """Return the first name for which `holds`, by halves; it holds for the last."""
    low, high = 0, len(order) - 1
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if holds(order[middle]) else (middle + 1, high)
    return order[high]


class Radar:
    """Reads and tries the commits of one checkout."""

    def __init__(self, checkout: Path, work: Path, root: Path, tested: radar_facts.Tree) -> None:
        """Find out what ours uses. tested: the DeepSpeed of our tests."""
        self._checkout, self._work = checkout, work
        self._reader = radar_facts.Reader(root)
        self._judge = Judge(root, self._reader.used, self._reader.facts(tested))

    def read(self, target: Target) -> list[Finding]:
        """Return what the sources say."""
        return self._judge.findings(self._facts(target.former), self._facts(target.name))

    def _facts(self, name: str) -> Facts:
        tree = (
            radar_facts.of_folder(Path(name)) if "/" in name else radar_facts.of_commit(self._checkout, name)
        )
        return self._reader.facts(tree)

    def fails(self, check: str, device: str, name: str) -> Mapping[str, str]:
        """Return what fails with a DeepSpeed."""
        folder = Path(name) if "/" in name else radar_checks.export(self._checkout, name, self._work)
        return radar_checks.run(check, device, folder, self._work)

    def differences(
        self, order: Sequence[str], check: str, device: str, bisect: bool
    ) -> Iterator[tuple[str, Finding]]:
        """Yield (commit, or both ends; finding) for what only one end passes."""
        if check == "tests":
            if device not in workspace.read_toml(TESTS)["accelerator"]["on"]:
                return
            order = [name for name in order if "/" not in name]  # A released wheel has none.
        old, new = (self.fails(check, device, name) for name in (order[0], order[-1]))

        def as_at_the_end(item: str, name: str) -> bool:
            return (item in self.fails(check, device, name)) is (item in new)

        for item in sorted(old.keys() ^ new.keys()):
            where, before = f"{order[0]}..{order[-1]}", old
            if bisect:
                where = first(order, functools.partial(as_at_the_end, item))
                before = self.fails(check, device, order[order.index(where) - 1])
            level, says = (
                ("breaks", new[item]) if item in new else ("served", f"mended; it was: {before[item]}")
            )
            yield where, Finding(level, f"{check} on {device}: {item}", " ".join(says.split())[:300])


# --------------------------------------------------------------------------------------------- what is written


def section(target: Target, found: Sequence[Finding], most: int = 12) -> str:
    """Return what a commit does: a part of the page, and the draft of an issue."""
    lines = [f"### {target.short}: {target.title}", ""]
    for level in LEVELS:
        rows = [f"`{each.subject}`: {each.says}" for each in found if each.level == level]
        lines += [f"- {level}: {row}" for row in rows[:most]]
        lines += [f"- {level}: {len(rows) - most} more"] if len(rows) > most else []
    return "\n".join([*lines, ""])


def page(found: Mapping[Target, Sequence[Finding]], known: Iterable[Mapping[str, str]], *parts: str) -> str:
    """Return the page: figures and tables, known breaks, and what each commit does."""
    lines = [
        "# What DeepSpeed's commits do to our accelerators",
        "",
        "Made by `python -m ci.radar`; do not edit.",
        *parts,
    ]
    rows = []
    for row in known:
        rest = [each for target in found if target.short.startswith(row["commit"]) for each in found[target]]
        hit = next((f"`{each.subject}`" for each in rest if row["finds"] in each.subject), "**no**")
        rows.append([row["what"], row["commit"], hit])
    lines += [
        "",
        *printed.table(["known break", "commit or release", "found"], rows),
        "",
        "## What concerns us",
        "",
        *(f"- **{level}**: {meaning}" for level, meaning in LEVELS.items()),
    ]
    return "\n".join([*lines, "", *(section(target, rest) for target, rest in found.items() if rest)])


def main(arguments: Sequence[str] | None = None) -> int:
    """Read, try, write."""
    parser = argparse.ArgumentParser(
        prog="python -m ci.radar", description="What DeepSpeed's commits do to ours."
    )
    parser.add_argument("checkout", type=Path)
    parser.add_argument("targets", nargs="*", default=["HEAD"], metavar="COMMIT | A..B | FOLDER")
    parser.add_argument("--static", action="store_true", help="read the sources only")
    parser.add_argument("--bisect", action="store_true", help="name the commit of what only one end passes")
    parser.add_argument("--accel", choices=DEVICES, action="append", help="a device (default: all)")
    parser.add_argument(
        "--check", choices=radar_checks.CHECKS, action="append", help="a check (default: all)"
    )
    parser.add_argument(
        "--work", type=Path, default=Path("runs/radar"), help="keeps trees, outcomes, drafts of issues"
    )
    parser.add_argument("--record", action="store_true", help=f"write {PAGE}")
    options = parser.parse_args(arguments)
    folder = Path(importlib.util.find_spec("deepspeed").origin).parents[1]  # type: ignore[union-attr, arg-type]
    radar = Radar(options.checkout, options.work, Path.cwd(), radar_facts.of_folder(folder))
    start = time.monotonic()
    chain = targets(options.checkout, options.targets)
    if not chain:
        print("no commits")
        return 0
    found = {target.name: radar.read(target) for target in chain}
    figures = f"{len(chain)} commits and releases were read in {(time.monotonic() - start) / 60:.1f} minutes."
    if not options.static:
        order = [chain[0].former, *(target.name for target in chain)]
        concerned = [0, *(place for place, name in enumerate(order) if found.get(name))]
        for place, following in itertools.pairwise(concerned):
            for where, each in radar.differences(order[place : following + 1], "bridge", "cpu", bisect=True):
                found[where].append(each)
        for check in options.check or radar_checks.CHECKS:
            once = check in radar_checks.ONCE
            for device in ("cpu",) if once else options.accel or DEVICES:
                for where, each in radar.differences(order, check, device, options.bisect or once):
                    found.setdefault(where, []).append(each)
    done = [(target, found.pop(target.name)) for target in chain]
    done += [(Target(where, "between both ends", ""), rest) for where, rest in found.items()]
    work = [(target, rest) for target, rest in done if any(each.level != "served" for each in rest)]
    for target, rest in work:
        draft = options.work / "issues" / f"{target.short}.md"
        draft.parent.mkdir(parents=True, exist_ok=True)
        draft.write_text(section(target, rest, most=100), encoding="utf-8")
        print(section(target, rest))
    figures += f" {sum(bool(rest) for _, rest in done)} concern us; {len(work)} are work for us."
    print(figures)
    if options.record:
        tried = [
            "",
            "Failures of each check, nothing where it was not tried:",
            "",
            *radar_checks.table(
                options.work,
                {Path(end).name for name in (chain[0].former, *found) for end in name.split("..")},
            ),
        ]
        text = page(dict(done), workspace.read_toml(KNOWN)["known"], figures, *tried)
        PAGE.write_text(text, encoding="utf-8")
    return int(bool(work))


if __name__ == "__main__":
    try:
        sys.exit(main())
    except Problem as problem:
        sys.exit(report([problem], ""))
