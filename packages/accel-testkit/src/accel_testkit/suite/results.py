# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The results of a run, check by check: a summary on the terminal, and JSON for the docs' feature matrix."""

from __future__ import annotations

import json
import platform
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from accel_core.vendor import distribution_version
from accel_testkit.suite.target import Target

#: Raised when the written file changes its meaning.
SCHEMA = 1
PROPERTY = "accel-check"
TRAIT = "accel-trait"
#: All that the vendor declares; kept by the check of the declaration.
TRAITS = "accel-traits"
#: What a check measured, as plain data: it stands in the check's row.
FIGURES = "accel-figures"
_DISTRIBUTIONS = ("accel-testkit", "accel-core", "torch", "deepspeed")


def tier(item: pytest.Item) -> str:
    """Return the tier of a check: that of the function, else that of its file."""
    marker = item.get_closest_marker("tier")
    return str(marker.args[0]) if marker else ""


def describe(item: pytest.Item) -> dict[str, str]:
    """Return the id, tier and sentence of a check."""
    file, name = item.path.stem.removeprefix("test_"), item.name
    doc = getattr(getattr(item, "function", None), "__doc__", None) or ""
    return {
        "id": f"{file}.{name.removeprefix('test_')}",
        "tier": tier(item),
        "sentence": " ".join(doc.split()),
    }


@dataclass(eq=False)  # pytest keeps its plug-ins in sets
class Recorder:
    """Records a run; the worst phase of a check is its outcome."""

    target: Target
    tiers: tuple[str, ...]
    path: Path | None
    checks: dict[str, dict[str, Any]] = field(default_factory=dict)
    traits: dict[str, str] = field(default_factory=dict)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Keep the outcome of one phase of a check."""
        properties: dict[str, Any] = dict(report.user_properties)
        if PROPERTY not in properties:
            return
        about = properties[PROPERTY]
        row = self.checks.setdefault(about["id"], {**about, "outcome": "passed", "trait": "", "reason": ""})
        if report.failed:
            row.update(outcome="failed", reason=_last_words(report))
        elif report.skipped:
            row.update(outcome="skipped", **properties.get(TRAIT, {"reason": report.longreprtext}))
        self.traits |= properties.get(TRAITS, {})
        if FIGURES in properties:
            row["figures"] = properties[FIGURES]

    def pytest_sessionfinish(self) -> None:
        """Write the file, if one was asked for."""
        if self.path is not None:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self.path.write_text(json.dumps(self.document(), indent=1) + "\n", encoding="utf-8")

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """List the skipped checks with the traits that declare them missing."""
        skipped: dict[str, list[str]] = {}
        for row in self.checks.values():
            if row["outcome"] == "skipped":
                skipped.setdefault(f"{row['trait']}: {row['reason']}", []).append(row["id"])
        terminalreporter.section(f"conformance of {self.target.accelerator}")
        for reason, names in skipped.items():
            terminalreporter.write_line(f"declared {reason}")
            terminalreporter.write_line(f"  skips {', '.join(names)}")
        if self.target.vendor is None:
            terminalreporter.write_line("not run: checks of the vendor's record and package (no --accel KEY)")
        for note in notes():
            terminalreporter.write_line(note)

    def document(self) -> dict[str, Any]:
        """Return the results as plain data."""
        vendor = self.target.vendor
        names = [*_DISTRIBUTIONS, *([vendor.distribution] if vendor else [])]
        return {
            "schema": SCHEMA,
            "accelerator": self.target.accelerator,
            "key": vendor.label if vendor else "",
            "tiers": list(self.tiers),
            "simulated": bool(simulated()),
            "notes": notes(),
            "versions": {
                "python": platform.python_version(),
                **{name: distribution_version(name) or "" for name in names},
            },
            "traits": dict(sorted(self.traits.items())),
            "checks": [self.checks[name] for name in sorted(self.checks)],
        }


def simulated() -> str:
    """Return the key of the vendor whose device is simulated in this process; empty on a real one."""
    module: Any = sys.modules.get("accel_testkit.sim.simulation")
    simulation = module.current() if module is not None else None
    return simulation.vendor.key if simulation is not None else ""


def notes() -> list[str]:
    """Return notes for a reader of the results: that the device is simulated."""
    key = simulated()
    return (
        [f"simulated {key}: shows wiring, contracts and numerics, not speed or the vendor's driver"]
        if key
        else []
    )


def _last_words(report: pytest.TestReport) -> str:
    crash = getattr(report.longrepr, "reprcrash", None)
    return str(crash.message if crash is not None else report.longreprtext).removeprefix("Failed: ")
