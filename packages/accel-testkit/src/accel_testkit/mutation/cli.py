# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""`accel conformance mutate --accel npu`: how many broken variants of an accelerator does the suite notice?"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

from accel_core.selection.discover import discover
from accel_testkit.mutation import equivalents, report, tree
from accel_testkit.sim import build, settings, stub_packages, vendors

_EXPLAINED = (
    "Derive broken variants (mutants) of an accelerator class, its op builders and their functions by rules on"
    " their source, and run the checks of the conformance suite that execute the changed lines, up to the first"
    " that fails. A mutant that no check notices shows what the suite does not see."
)
#: Of the worker's output, where it ended early, in characters.
_SHOWN = 4000
#: What a run of the suite in the same shell may have set, and a simulated device of another key.
_FOREIGN = ("PYTEST_ADDOPTS", "PYTEST_PLUGINS")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    parser.description = "Tools around the conformance suite (pytest --pyargs accel_testkit.suite)."
    commands = parser.add_subparsers(metavar="tool", dest="tool", required=True)
    mutate = commands.add_parser(
        "mutate", help="what the suite notices of broken variants", description=_EXPLAINED
    )
    which = mutate.add_mutually_exclusive_group(required=True)
    which.add_argument(
        "--accel", metavar="KEY", help="an installed vendor; simulated if its runtime is not installed"
    )
    which.add_argument("--accel-class", metavar="PACKAGE.MODULE:CLASS", help="a class without a package")
    mutate.add_argument(
        "--quick", action="store_true", help="without the checks that take long: the training"
    )
    mutate.add_argument(
        "--checks", default="", metavar="EXPRESSION", help="only checks with these names, as for pytest -k"
    )
    mutate.add_argument("--sample", type=_positive, metavar="N", help="only N mutants, chosen at random")
    mutate.add_argument("--seed", type=int, default=0, help="of the choice (default 0)")
    mutate.add_argument(
        "--only", default="", metavar="TEXT", help="only where module, function or rule has this text"
    )
    mutate.add_argument(
        "--also",
        action="append",
        default=[],
        metavar="PACKAGE",
        help="mutate this package, too, such as accel_host",
    )
    mutate.add_argument("--jobs", type=_positive, default=os.cpu_count() or 1, help="mutants at a time")
    mutate.add_argument("--json", type=Path, metavar="FILE", help="write everything as JSON")
    mutate.add_argument(
        "--known", type=Path, action="append", default=[], metavar="FILE",
        help="JSON: mutants of this vendor that change nothing, or are known, with reasons",
    )  # fmt: skip
    mutate.add_argument(
        "--at-least", type=float, metavar="PERCENT", help="exit with 1 if fewer of the mutants are noticed"
    )


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{number} is less than 1")
    return number


def run(args: argparse.Namespace) -> int:
    """Run the mutants and print what became of them; returns 1 below --at-least, 2 if the run is incomplete or void."""
    try:
        equivalents.load(args.known)
    except (OSError, ValueError) as error:
        sys.stderr.write(f"accel: --known: {error}\n")
        return 2
    names = ("quick", "checks", "sample", "seed", "only", "also")
    collected = report.Report({name: getattr(args, name) for name in names})
    with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as output:
        status = _follow(args, collected, output)
        if not collected.complete:
            output.seek(0)
            sys.stderr.write(output.read()[-_SHOWN:])
    if collected.changed:
        sys.stderr.write(f"accel: {tree.refusal(collected.changed)}\n")
        return 2
    document = collected.document()
    if args.json is not None:
        args.json.parent.mkdir(parents=True, exist_ok=True)
        args.json.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    if not collected.complete:
        why = f"the worker ended with {status} before it had judged every mutant; its output above says why"
        sys.stderr.write(f"accel: {why}\n")
        return 2
    sys.stdout.write("\n".join(_text(document, collected.failed)) + "\n")
    noticed = document["rate"]
    too_few = args.at_least is not None and (noticed is None or noticed * 100 < args.at_least)
    return 1 if too_few else 0


def _follow(args: argparse.Namespace, collected: report.Report, output: IO[str]) -> int:
    """Run the worker and collect its events; returns its exit status."""
    wish = {
        "jobs": args.jobs,
        "sample": args.sample,
        "seed": args.seed,
        "only": args.only,
        "also": args.also,
        "known": [str(file.resolve()) for file in args.known],
    }
    target = ["--accel", args.accel] if args.accel else ["--accel-class", args.accel_class]
    options = [*target, *(["--quick"] if args.quick else []), *(["-k", args.checks] if args.checks else [])]
    command = [
        sys.executable,
        "-W",
        "ignore",
        "-m",
        "accel_testkit.mutation.worker",
        json.dumps(wish),
        *options,
    ]
    environment = _environment(args.accel or "")
    with subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=output, text=True
    ) as worker:
        assert worker.stdout is not None
        for line in worker.stdout:
            collected.add(json.loads(line))
            _progress(collected)
    if sys.stderr.isatty():
        sys.stderr.write("\n")
    return worker.returncode


def _environment(key: str) -> Mapping[str, str]:
    """Return the environment of the worker: with a simulated device if the vendor's runtime is not here."""
    base = {name: value for name, value in os.environ.items() if name not in _FOREIGN}
    base["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    # Several children share the processors.
    base.setdefault("OMP_NUM_THREADS", "1")
    variants = [vendor for vendor in discover().vendors if key in (vendor.key, vendor.label)]
    here = any(vendor.evidence().runtime for vendor in variants)
    if here or not variants or settings.DEVICE.get():
        return base
    if variants[0].key not in {vendor.key for vendor in vendors.VENDORS}:
        return base
    build.library()
    return stub_packages.environment(variants[0].key, base=base)


def _progress(collected: report.Report) -> None:
    if not sys.stderr.isatty():
        return
    if collected.count is None:
        text = f"{collected.checks} checks run without a mutant"
    else:
        outcomes = [row["outcome"] for row in collected.rows]
        text = f"{len(outcomes)} of {collected.count} mutants, {outcomes.count('survived')} survived"
    sys.stderr.write(f"\r{text:<60}")
    sys.stderr.flush()


def _text(document: Mapping[str, Any], failed: Mapping[str, str]) -> list[str]:
    rows = document["mutants"]
    lines = [*report.survivors(rows), ""] if document["rate"] != 1 else []
    lines += report.table(document["rules"])
    lines += ["", f"{report.percent(document['rate'])} of the mutants that change something are noticed"]
    lines.append(f"by {document['checks']} checks of {document['accelerator']}")
    lines += document["notes"]
    for name, text in failed.items():
        lines.append(f"{name} fails without a mutant, and is left out: {(text.splitlines() or [''])[-1]}")
    if document["unsteady"]:
        lines.append(f"depend on what ran before them: {', '.join(document['unsteady'])}")
    return lines
