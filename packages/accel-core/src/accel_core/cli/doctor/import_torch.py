# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""In a child: `import torch`, and then perhaps each of its backend extensions, one by one."""

from __future__ import annotations

import argparse
import importlib.metadata
import traceback
from pathlib import Path
from typing import Any

from accel_core.cli import child
from accel_core.cli.packages import TORCH_GROUP
from accel_core.selection.confirm import privateuse1_holder


def main() -> None:
    """Answer with torch's version and who holds PrivateUse1, or with the error and whose it is."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--answer", type=Path)
    parser.add_argument("--each", action="store_true", help="call the backend extensions that torch did not")
    args = parser.parse_args()
    answer: dict[str, Any] = {"version": "", "culprit": "", "reason": "", "error": ""}
    try:
        import torch

        answer["version"] = str(torch.__version__)
        for point in importlib.metadata.entry_points(group=TORCH_GROUP) if args.each else ():
            # Written first: the extension may take the process down with it.
            answer["culprit"] = point.name
            child.write(args.answer, **answer)
            point.load()()
        answer["culprit"] = ""
    except BaseException as error:
        answer.update(reason=_reason(error), error="".join(traceback.format_exception(error)))
    child.write(args.answer, **answer, claimed=privateuse1_holder())
    child.leave()


def _reason(error: BaseException) -> str:
    # torch wraps what an extension raised; the cause tells more.
    root = error
    while root.__cause__ is not None:
        root = root.__cause__
    first = str(root).strip().partition("\n")[0]
    return f"{type(root).__name__}: {first}" if first else type(root).__name__


if __name__ == "__main__":
    main()
