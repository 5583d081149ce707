# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""In a child: `python -m accel_core.cli.try_op BUILDER [--run]` loads, and runs, one op of the accelerator."""

from __future__ import annotations

import argparse
import time
from pathlib import Path

from accel_core.cli import child
from accel_core.errors import in_short


def main() -> None:
    """Answer with the sentence what was done, or the error; and the seconds that loading took."""
    parser = argparse.ArgumentParser()
    parser.add_argument("builder")
    parser.add_argument("--run", action="store_true")
    parser.add_argument("--answer", type=Path)
    args = parser.parse_args()
    from accel_core.api import get_accelerator

    accelerator = get_accelerator()
    builder = accelerator.create_op_builder(args.builder)
    began = time.perf_counter()
    try:
        op = builder.load(verbose=False)
        seconds = time.perf_counter() - began
        done = "loaded"
        if args.run:
            from accel_core.op_builder import self_test

            done = self_test.run(builder.name, op, accelerator.device())
    except Exception as error:
        child.write(args.answer, ok=False, reason=f"{type(error).__name__}: {in_short(error)}")
    else:
        # Asked after loading: an op that could not be compiled may serve in plain torch.
        reason = "; ".join(filter(None, [done, getattr(builder, "reason", "")]))
        child.write(args.answer, ok=True, reason=reason, seconds=round(seconds, 3))
    child.leave()


if __name__ == "__main__":
    main()
