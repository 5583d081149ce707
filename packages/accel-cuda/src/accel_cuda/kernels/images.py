# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The packaged images, which the build of the wheel makes: a cubin for each architecture, PTX for newer ones."""

from __future__ import annotations

from pathlib import Path

from accel_ops.device.driver_kernels import KernelsUnusable, packaged_file, packaged_table

FOLDER = Path(__file__).parent / "images"
TABLE = "images.json"


def image_for(capability: tuple[int, int]) -> tuple[str, bytes]:
    """Return name (`sm_90`) and contents of the image for a device.

    A cubin runs on its major version, from its minor one on; PTX from its version on. Raises `KernelsUnusable` if
    there is none, or if one is not what the build of the wheel made.
    """
    table: dict[str, dict[str, str]] = packaged_table(FOLDER / TABLE, "images", "images")
    name = _best(list(table), capability)
    if not name:
        raise KernelsUnusable(f"no image for compute capability {capability[0]}.{capability[1]}")
    return name, packaged_file(FOLDER, table[name], f"the image {name}")


def _best(names: list[str], capability: tuple[int, int]) -> str:
    """Return the newest cubin of the major version, else the newest PTX; empty if there is none."""
    number = capability[0] * 10 + capability[1]
    for kind in ("sm", "compute"):
        fitting = []
        for name in names:
            prefix, _, version = name.partition("_")
            if prefix == kind and version.isdigit() and int(version) <= number:
                fitting.append(int(version))
        if kind == "sm":
            fitting = [version for version in fitting if version // 10 == capability[0]]
        if fitting:
            return f"{kind}_{max(fitting)}"
    return ""
