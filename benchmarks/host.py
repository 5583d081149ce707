# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Which library of accel-ops the benchmarks of its kernels measure."""

import re
from pathlib import Path

from accel_ops import library


def circumstances() -> dict[str, str]:
    """The library that is measured: where it came from, its compiler, the instructions that are at work."""
    loaded = library.load()
    origin = loaded.reason.partition(":")[0]
    if loaded.functions is None:
        return {"library": origin}
    level = loaded.functions.accel_level()
    return {
        "library": origin,
        "its compiler": _compiler(Path(loaded.functions._name)),
        "instructions": {0: "the baseline's", 5: "SVE"}.get(level, f"x86-64-v{level}"),
    }


def _compiler(binary: Path) -> str:
    # Compilers sign what they make, in the section .comment.
    content = binary.read_bytes() if binary.is_file() else b""
    signed = re.search(rb"GCC: \([^)]*\) [\d.]+|clang version [\d.]+", content)
    return signed[0].decode() if signed else "unknown"
