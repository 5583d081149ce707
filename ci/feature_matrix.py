# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The table of what works on which accelerator, made of results of accel-testkit.

python -m ci.feature_matrix record suite.json engine.json    keep what runs with --results showed, and write the pages
python -m ci.feature_matrix compare suite.json engine.json   does a run show what is kept? exits with 1 if not
python -m ci.feature_matrix write                            write docs/results/conformance.md and the README's table

Why: pytest reports one run; these pages keep the runs of eight devices, and compare a new run with what was kept.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from ci import workspace
from ci.features import checklist, page, results
from ci.features.results import PASSED, Results
from ci.problem import CheckError, Problem, report

#: Traits that are the machine's, not the package's.
_OF_THE_MACHINE = {"bf16", "fp16"}


def record(root: Path, new: Results) -> None:
    """Keep a run, over what was kept of the accelerator before."""
    old = next((kept for kept in results.load(root) if kept.key == new.key), None)
    file = root / results.FOLDER / f"{new.key}.json"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(results.text(results.merged(old, new)), encoding="utf-8")


def written(root: Path) -> Iterator[tuple[Path, str]]:
    """The pages and the text that each should have."""
    kept = results.load(root)
    yield root / page.PAGE, page.page(checklist.load(root), kept)
    readme = root / "README.md"
    yield readme, page.in_readme(readme.read_text(encoding="utf-8"), workspace.load(root).values(), kept)


def differences(root: Path, new: Results, partial: bool = False) -> list[Problem]:
    """What is kept of the accelerator and not shown by this run, and the reverse; partial: of the checks that ran."""
    old = next((kept for kept in results.load(root) if kept.key == new.key), None)
    claimed, shown = _outcomes(old), _outcomes(new)
    # A run of the suite says nothing about the engine, and the reverse.
    kinds = {name.partition(" ")[0] for name in shown}
    names = set(shown) if partial else {*shown, *(n for n in claimed if n.partition(" ")[0] in kinds)}
    wrong = [
        f"{name}: {claimed.get(name, 'not kept')}, now {shown.get(name, 'not run')}"
        for name in sorted(names)
        if not _agree(claimed.get(name, ""), shown.get(name, ""))
    ]
    if not wrong:
        return []
    return [
        Problem(
            what=f"{results.FOLDER}/{new.key}.json is not what this run showed",
            found="; ".join(wrong),
            expected="the same outcomes",
            do="mend what failed, or `python -m ci.feature_matrix record` the results and commit them",
        )
    ]


def _agree(claimed: str, shown: str) -> bool:
    """One processor has a type that another lacks."""
    return claimed == shown or ({claimed, shown} & _OF_THE_MACHINE != set() and PASSED in (claimed, shown))


def _outcomes(found: Results | None) -> Mapping[str, str]:
    if found is None:
        return {}
    engine = {f"engine {name}": str(about["outcome"]) for name, about in found.engine.items()}
    return {**{f"suite {name}": outcome for name, outcome in found.checks.items()}, **engine}


def main(arguments: Sequence[str] | None = None, root: Path | None = None) -> int:
    options = _options(arguments)
    root = root or Path.cwd()
    try:
        if options.action == "write":
            return _write(root)
        new = results.condense(_read(file) for file in options.results)
        if options.action == "compare":
            return report(differences(root, new), f"{new.key}: what is kept is what this run showed")
        record(root, new)
        return _write(root)
    except CheckError as error:
        print(error, file=sys.stderr)
        return 2


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m ci.feature_matrix", description="What works on which device."
    )
    actions = parser.add_subparsers(dest="action", required=True)
    for action in ("record", "compare"):
        actions.add_parser(action).add_argument("results", nargs="+", type=Path, help="files of --results")
    actions.add_parser("write")
    return parser.parse_args(arguments)


def _read(file: Path) -> Mapping[str, Any]:
    document: Mapping[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    return document


def _write(root: Path) -> int:
    for file, text in written(root):
        file.write_text(text, encoding="utf-8")
        print(file.relative_to(root))
    return 0


if __name__ == "__main__":
    sys.exit(main())
