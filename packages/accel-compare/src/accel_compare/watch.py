# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Records what a program computes, from inside of it: modules, gradients, optimizer steps and collectives.

`activate` is an entry point of torch, which calls it at the end of `import torch`; without ACCEL_COMPARE, set by
`accel compare`, it does nothing. Each rank and each process of a launcher is reached this way.
"""

from __future__ import annotations

import os


def activate() -> None:
    """Begin to record if `accel compare` started this process."""
    if os.environ.get("ACCEL_COMPARE"):
        from accel_compare import recorder

        recorder.start(os.environ["ACCEL_COMPARE"])
