# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Child process of one part: leaves its rows for the parent, after each what there is."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

from accel_testkit.bench.table import row
from accel_testkit.verify.steps import answer


def main(part: str, disk: str, build: bool) -> int:
    """Measure; returns 0."""
    rows: list[dict[str, Any]] = []
    state: dict[str, Any] = {"found": "", "table": rows}
    answer(state | {"incomplete": True})
    # A part sets variables before DeepSpeed is imported, so the others are not imported beside it.
    module = importlib.import_module(f"accel_testkit.bench.{part}")
    for what, size, found in module.measure(build, Path(disk)):
        rows.append(row(what, size, found))
        answer(state | {"found": what, "incomplete": True})
    answer(state | {"found": f"{len(rows)} measurements"})
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2], "--compile" in sys.argv[3:]))
