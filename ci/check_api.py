# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Does a change break a vendor package that was written against the public packages of accel-core?

    python -m ci.check_api [--require-base]

The public packages are compared with those of the last release (tag accel-core-v*), and before the first one with
the commit that stands in [tool.accel.api] of pyproject.toml. A change that is intended stands with its reason in
packages/accel-core/breaking-changes.toml, below the interface number that it comes with. Where the clone lacks that
commit nothing is compared, and the program says so; --require-base makes that a failure.
Why: griffe finds what breaks; it has no list of intended changes, nor our interface number.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import griffe

from ci import git, public_api
from ci.problem import CheckError, Problem, report
from ci.public_api import CORE_SOURCE, Member
from ci.workspace import CORE

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

INTENDED = f"packages/{CORE}/breaking-changes.toml"
FRAGMENTS = f"packages/{CORE}/changelog.d"


def breaking(packages: Sequence[str], old: griffe.Module, new: griffe.Module) -> dict[str, str]:
    """Public name of each thing whose change breaks a caller, a parameter in brackets -> what changed."""
    before, after = public_names(old, packages), public_names(new, packages)
    spelled = {m.canonical_path: name for name, m in (*before.items(), *after.items())}
    found: dict[str, str] = {}
    for name, was in before.items():
        now = public_api.member(new, name)
        if now is None or not now.is_public:
            found[name] = "removed" if now is None else "not public any more"
            continue
        for breakage in griffe.find_breaking_changes(_holder(was), _holder(now)):
            if breakage.kind is griffe.BreakageKind.ATTRIBUTE_CHANGED_VALUE:
                continue  # said by some releases of griffe only; a caller reads the value
            values = (breakage.new_value, breakage.old_value)
            parameter = next((f"({v.name})" for v in values if isinstance(v, griffe.Parameter)), "")
            key = _spell(breakage.obj.canonical_path, spelled) + parameter
            kinds = dict.fromkeys((*filter(None, found.get(key, "").split("; ")), breakage.kind.value))
            found[key] = "; ".join(kinds)
    return found


def public_names(core: griffe.Module, packages: Sequence[str]) -> dict[str, Member]:
    """Dotted name, as vendors import it -> what it means."""
    return {
        f"{module.path}.{name}": member
        for module, names in public_api.sections(core, packages)
        for name, member in names.items()
    }


def _holder(member: Member) -> griffe.Module:
    """A module with one name for it. griffe does not compare a class with a name for one: both sides are names."""
    module = griffe.Module("holder")
    module.exports = ["it"]
    module.set_member(
        "it", griffe.Alias("it", member.final_target if isinstance(member, griffe.Alias) else member)
    )
    return module


def _spell(path: str, spelled: Mapping[str, str]) -> str:
    """A path of the sources as vendors write it."""
    known = path
    while known not in spelled and "." in known:
        known = known.rpartition(".")[0]
    return spelled.get(known, known) + path[len(known) :]


def check(root: Path, base: str, released: bool) -> Iterator[Problem]:
    """Breaking changes since `base` that are not listed with a reason, and the list's own mistakes."""
    packages = public_api.settings(root).packages
    with tempfile.TemporaryDirectory(prefix="accel-api-") as folder:
        old = public_api.load(git.export(root, base, CORE_SOURCE, Path(folder)))
        new = public_api.load(root / CORE_SOURCE)
        found = breaking(packages, old, new)
        numbers = public_api.number(old), public_api.number(new)
    listed = intended(root)
    current = listed.get(numbers[1], {})
    for name in sorted(name for name in found if not {name, _function(name)} & current.keys()):
        yield Problem(
            what=f"a change of {name} breaks vendor packages",
            found=f"{found[name]}, since {base}",
            expected="what a vendor package may use stays, or the change is intended and listed",
            do=f'take it back, or add to [{numbers[1]}] of {INTENDED}: "{name}" = "<reason>"',
        )
    there = found.keys() | set(map(_function, found))
    stale = {name: n for n, table in listed.items() for name in table if n != numbers[1] or name not in there}
    for name, number in sorted(stale.items()):
        yield Problem(
            what=f"{INTENDED} lists a change that does not break anything",
            found=f"{name} below [{number}]; the interface number is {numbers[1]}, compared with {base}",
            expected=f"below [{numbers[1]}], changes since {base}",
            do="remove the line",
        )
    if current and not stale:
        yield from _announced(root, base, numbers if released else None)


def _function(name: str) -> str:
    """Without the parameter in brackets: a function may be listed once for all of its parameters."""
    return name.partition("(")[0]


def _announced(root: Path, base: str, numbers: tuple[str, str] | None) -> Iterator[Problem]:
    """With intended changes: a new interface number since the last release, and a word to users in the changelog."""
    if numbers and numbers[0] == numbers[1]:
        yield Problem(
            what="breaking changes without a new interface number",
            found=f"INTERFACE_VERSION is {numbers[1]} here and in {base}",
            expected="a higher number, so that core refuses a vendor package that was written for the old one",
            do="raise it in accel_core.vendor and in every vendor package",
        )
    fragments = [path.name for path in (root / FRAGMENTS).glob("*.removal.md")]
    if not fragments:
        yield Problem(
            what="breaking changes that the changelog does not mention",
            found=f"no *.removal.md in {FRAGMENTS}",
            expected="a fragment of that type, which names what was renamed or removed",
            do=f"add {FRAGMENTS}/<issue>.removal.md",
        )


def intended(root: Path) -> dict[str, Mapping[str, str]]:
    """Interface number, as a text -> name -> reason. Raises CheckError for a reason that says nothing."""
    file = root / INTENDED
    if not file.exists():
        return {}
    tables: dict[str, Mapping[str, str]] = tomllib.loads(file.read_text(encoding="utf-8"))
    empty = [name for table in tables.values() for name, reason in table.items() if not str(reason).strip()]
    if empty:
        raise CheckError(
            Problem(
                what=f"{INTENDED} lists changes without a reason",
                found=", ".join(empty),
                expected='"<name>" = "<reason>"',
                do="say why vendor packages have to change",
            )
        )
    return tables


def main(arguments: Sequence[str] | None = None, root: Path | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m ci.check_api", description="Does a change break vendor packages?"
    )
    parser.add_argument("--require-base", action="store_true", help="fail where the clone lacks the base")
    options = parser.parse_args(arguments)
    root = root or Path.cwd()
    try:
        released = list(git.releases(root, CORE).values())[-1:]
        base = released[0] if released else public_api.settings(root).base
        if git.try_commit(root, base) is None:
            print(
                f"not run: this clone lacks {base}, which the public packages of {CORE} are compared with; "
                "git fetch --unshallow --tags brings it"
            )
            return 1 if options.require_base else 0
        return report(
            list(check(root, base, bool(released))), f"no unlisted breaking change of {CORE} since {base}"
        )
    except CheckError as error:
        print(error, file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
