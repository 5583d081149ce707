# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""A machine with the emulated driver, and wheels with stand-ins of images."""

import hashlib
import json
from collections.abc import Iterable
from pathlib import Path

from accel_cuda.kernels import images
from accel_ops.kernel_builders import ARGUMENTS
from accel_sim.driver import emulated


def wheel(folder: Path, contents: dict[str, bytes]) -> None:
    """Write images as the build of the wheel does."""
    table = {}
    for name, content in contents.items():
        (folder / f"{name}.cubin").write_bytes(content)
        table[name] = {"file": f"{name}.cubin", "sha256": hashlib.sha256(content).hexdigest()}
    (folder / images.TABLE).write_text(json.dumps({"images": table}))


def stand_ins(*architectures: int, kernels: Iterable[str] = ARGUMENTS) -> dict[str, bytes]:
    return {f"sm_{number}": emulated.stand_in(number, kernels) for number in architectures}
