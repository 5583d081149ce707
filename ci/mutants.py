# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The page of what the conformance suite notices of mutated accelerators, made of `accel conformance mutate --json`.

python -m ci.mutants record npu.json cpu.json    keep what runs showed, and write the page
python -m ci.mutants write                       write docs/results/mutants.md

Why: the command reports one accelerator; the page keeps eight, and says of a mutant that several share so once.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ci.problem import CheckError, Problem

FOLDER = "docs/results/mutants"
PAGE = "docs/results/mutants.md"
SCHEMA = 1
_INTRODUCTION = """\
# Mutants

What the [conformance suite](conformance.md) notices of accelerators that rules have broken. `accel conformance mutate`
derives variants from the source of a vendor's accelerator class (with what it inherits from accel-core), of its op
builders and of the functions that they load; a variant is killed if a check fails that passes without it. Made by
`python -m ci.mutants write` from the files in [mutants/](mutants); do not edit.

*equivalent*: declared to change nothing that a caller can observe; *broken*: no object can be constructed. Neither
counts: the rate is killed / (killed + survived). *not reached*: the survivors in lines that no check executes, such as
those that need an operating system which the machine lacks; *reached*: the rate without them. *left out*: mutants, of
the whole and not of the sample, that are not judged as they are behind the failure of an inner function of which every
call has failed: of a driver, a library or a compiler that is not here.
"""
#: How the testkit's note of such a survivor begins.
_NOT_REACHED = "no check executes"
_KEPT = (
    "schema",
    "key",
    "accelerator",
    "simulated",
    "versions",
    "options",
    "checks",
    "rules",
    "rate",
    "left_out",
)


def condense(document: Mapping[str, Any]) -> dict[str, Any]:
    """What is kept of a run: the counts, and the survivors. Raises CheckError for a file of something else."""
    if document.get("schema") != SCHEMA or not document.get("key") or "mutants" not in document:
        raise CheckError(
            Problem(
                what="these are not mutants of an accelerator",
                found=f"schema {document.get('schema')}, key {document.get('key')!r}",
                expected=f"what `accel conformance mutate --accel KEY --json FILE` writes, schema {SCHEMA}",
                do="run it by the accelerator's key",
            )
        )
    fields = ("module", "line", "function", "rule", "change", "note")
    survivors = [
        {name: row[name] for name in fields} for row in document["mutants"] if row["outcome"] == "survived"
    ]
    return {**{name: document[name] for name in _KEPT}, "survivors": survivors}


def load(root: Path) -> list[dict[str, Any]]:
    """What is kept, in order of key."""
    return [json.loads(file.read_text(encoding="utf-8")) for file in sorted((root / FOLDER).glob("*.json"))]


def page(kept: Sequence[Mapping[str, Any]]) -> str:
    """The whole page."""
    rules = list(dict.fromkeys(rule for found in kept for rule in found["rules"]))
    head = [
        "accelerator",
        "device",
        "mutants",
        "killed",
        "survived",
        "equivalent",
        "broken",
        "rate",
        "not reached",
        "reached",
        "left out",
        "checks",
        "with",
    ]
    keys = [f"{found['key']}" for found in kept]
    by_rule = [[rule, *(_cell(found["rules"].get(rule)) for found in kept)] for rule in rules]
    parts = [_INTRODUCTION, *_table(head, [_summary(found) for found in kept]), ""]
    parts += ["## By rule", "", "Killed of those that count.", "", *_table(["rule", *keys], by_rule), ""]
    return "\n".join([*parts, *_survivors(kept)]).rstrip("\n") + "\n"


def _summary(found: Mapping[str, Any]) -> list[str]:
    total = {
        name: sum(row[name] for row in found["rules"].values())
        for name in ("killed", "survived", "equivalent", "broken at construction")
    }
    idle = sum(str(row["note"]).startswith(_NOT_REACHED) for row in found["survivors"])
    ran = total["killed"] + total["survived"] - idle
    rates = [_percent(found["rate"]), str(idle), _percent(total["killed"] / ran if ran else None)]
    rates.append(str(found["left_out"]))
    options = found["options"]
    sample = f" (sample, seed {options['seed']})" if options["sample"] else ""
    whole = ", without training" if options["quick"] else ""
    some = f", only {options['checks']}" if options["checks"] else ""
    versions = (
        f"torch {found['versions']['torch'].partition('+')[0]}, deepspeed {found['versions']['deepspeed']}"
    )
    counts = [str(total[name]) for name in total]
    device = "simulated" if found["simulated"] else "real"
    mutants = f"{sum(total.values())}{sample}"
    return [found["key"], device, mutants, *counts, *rates, f"{found['checks']}{whole}{some}", versions]


def _percent(rate: float | None) -> str:
    # Rounded down: 94.96 % has not reached 95 %.
    return "" if rate is None else f"{int(rate * 1000) / 10:.1f} %"


def _cell(row: Mapping[str, int] | None) -> str:
    if row is None or not row["killed"] + row["survived"]:
        return ""
    return f"{row['killed']} of {row['killed'] + row['survived']}"


def _survivors(kept: Sequence[Mapping[str, Any]]) -> list[str]:
    keys: dict[tuple[str, ...], list[str]] = {}
    for found in kept:
        for row in found["survivors"]:
            name = (f"{row['module']}.{row['function']}", row["rule"], " ".join(row["change"]), _reason(row))
            keys.setdefault(name, []).append(found["key"])
    if not keys:
        return []
    rows = [
        [_code(function), rule, _code(change), ", ".join(found), reason]
        for (function, rule, change, reason), found in sorted(keys.items())
    ]
    head = ["function", "rule", "change", "of", "why no check notices"]
    return ["## Survivors", "", *_table(head, rows)]


def _reason(row: Mapping[str, Any]) -> str:
    note = str(row["note"])
    return note.removeprefix("known: ") if note.startswith("known: ") else note.partition(",")[0]


def _code(text: str) -> str:
    return f"``{text.replace('|', chr(92) + '|')}``"


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    return [f"| {' | '.join(row)} |" for row in (head, ["---"] * len(head), *rows)]


def main(arguments: Sequence[str] | None = None, root: Path | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m ci.mutants", description="What the suite notices.")
    actions = parser.add_subparsers(dest="action", required=True)
    actions.add_parser("record").add_argument("results", nargs="+", type=Path, help="files of --json")
    actions.add_parser("write")
    options = parser.parse_args(arguments)
    root = root or Path.cwd()
    try:
        for file in getattr(options, "results", ()):
            found = condense(json.loads(file.read_text(encoding="utf-8")))
            kept = root / FOLDER / f"{found['key'].partition(' ')[0]}.json"
            kept.parent.mkdir(parents=True, exist_ok=True)
            kept.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    except CheckError as error:
        print(error, file=sys.stderr)
        return 2
    (root / PAGE).write_text(page(load(root)), encoding="utf-8")
    print(PAGE)
    return 0


if __name__ == "__main__":
    sys.exit(main())
