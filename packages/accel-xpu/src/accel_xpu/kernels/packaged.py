# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The packaged files, which the build of the wheel makes: SPIR-V, and a shim for each major version of libsycl."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from accel_ops.device.driver_kernels import KernelsUnusable, packaged_file, packaged_table
from accel_ops.routes import ARGUMENTS

FOLDER = Path(__file__).parent / "images"
TABLE = "images.json"
#: First bytes of SPIR-V. Drivers end the process for some modules that are damaged behind them, hence the hashes.
_MAGIC = 0x07230203.to_bytes(4, "little")


def modules() -> dict[str, bytes]:
    """Return the SPIR-V modules by the kernel that each has. Raises `KernelsUnusable`."""
    found = {}
    for kernel, entry in _table("modules").items():
        found[kernel] = packaged_file(FOLDER, entry, f"the module of {kernel}")
        if not found[kernel].startswith(_MAGIC) or len(found[kernel]) % 4:
            raise KernelsUnusable(f"the module of {kernel} is not SPIR-V")
    missing = sorted(ARGUMENTS.keys() - found.keys())
    if missing:
        raise KernelsUnusable(f"{len(missing)} kernels are missing, as {missing[0]}")
    return found


def shims() -> list[str]:
    """Return the major versions of libsycl that there is a shim for. Raises `KernelsUnusable`."""
    return list(_table("shims"))


def shim(major: str) -> Path:
    """Return the path of the shim for `libsycl.so.<major>`. Raises `KernelsUnusable`."""
    entry = _table("shims").get(major)
    if entry is None:
        raise KernelsUnusable(f"no shim for libsycl.so.{major}: there are those for {', '.join(shims())}")
    packaged_file(FOLDER, entry, f"the shim for libsycl.so.{major}")
    return FOLDER / str(entry["file"])


def _table(key: str) -> Any:
    return packaged_table(FOLDER / TABLE, key, "SPIR-V")
