# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""A program that asks for evidence where neither torch nor a package made for it can be found.

    python -m accel_testkit.suite.without_torch OUT RECORD...

A record is the value of an entry point, `package.vendor:VENDOR`. OUT gets a JSON object.
"""

from __future__ import annotations

import json
import pkgutil
import sys
import traceback
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any

_HIDDEN = "torch"


class _Without:
    """A finder that knows no module whose name begins with torch's."""

    def __init__(self, finder: Any) -> None:
        self.finder = finder

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return the finder's answer, or None."""
        hidden = name.startswith(_HIDDEN) or not hasattr(self.finder, "find_spec")
        found: ModuleSpec | None = None if hidden else self.finder.find_spec(name, path, target)
        return found


def main(out: str, *records: str) -> None:
    """Write what the records' probes find, or the traceback under `error`."""
    answers: dict[str, Any] = {}
    try:
        for name in [name for name in sys.modules if name.partition(".")[0].startswith(_HIDDEN)]:
            del sys.modules[name]
        sys.meta_path[:] = [_Without(finder) for finder in sys.meta_path]
        vendors = [pkgutil.resolve_name(record) for record in records]
        found = [vendor.evidence() for vendor in vendors]
        answers = {
            "keys": [vendor.key for vendor in vendors],
            "runtime": [evidence.runtime for evidence in found],
            "hardware": [evidence.hardware for evidence in found],
            "reasons": [evidence.reason for evidence in found],
        }
        if _HIDDEN in sys.modules:
            answers["error"] = "evidence() imports torch"
    except (Exception, SystemExit):
        answers["error"] = traceback.format_exc()
    Path(out).write_text(json.dumps(answers), encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
