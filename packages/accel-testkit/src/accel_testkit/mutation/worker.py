# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The process with the device: collects the suite and runs mutants. Its standard output is one JSON object a line.

    python -m accel_testkit.mutation.worker WISH OPTION...

WISH: JSON of a `session.Wish`; OPTION: of the suite, as --accel npu.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from accel_testkit.mutation.session import MutationSession, Wish

#: They write where children write, or take time in each.
_PLUGINS = (
    "cacheprovider",
    "logging",
    "unraisableexception",
    "threadexception",
    "junitxml",
    "doctest",
)


def main(arguments: Sequence[str]) -> int:
    """Run the mutants; returns pytest's exit status."""
    wish = json.loads(arguments[0])
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)

    def tell(event: dict[str, Any]) -> None:
        answers.write(json.dumps(event) + "\n")
        answers.flush()

    plugin = MutationSession(
        Wish(**{**wish, "known": tuple(wish["known"]), "also": tuple(wish["also"])}), tell
    )
    with tempfile.TemporaryDirectory() as folder:
        settings = Path(folder, "pytest.ini")
        settings.write_text("[pytest]\n", encoding="utf-8")
        options = [
            "-c",
            str(settings),
            "--rootdir",
            folder,
            "-q",
            "--capture=no",
            "-p",
            "accel_testkit.plugin",
        ]
        off = [option for name in _PLUGINS for option in ("-p", f"no:{name}")]
        command = [*options, *off, *arguments[1:], "--pyargs", "accel_testkit.suite"]
        return int(pytest.main(command, plugins=[plugin]))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
