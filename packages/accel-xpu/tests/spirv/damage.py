# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Modules of SPIR-V that are wrong, with right hashes."""

import hashlib
import json
import shutil
import struct
from pathlib import Path

from accel_xpu.kernels import packaged

#: Numbers of instructions with two operands, from the specification.
ADD, SUBTRACT, MULTIPLY, DIVIDE, LESS, GREATER = 129, 131, 133, 136, 184, 186


def rewrite(folder: Path, contents: dict[str, bytes]) -> None:
    """Write modules with right hashes in the place of the installed ones."""
    shutil.copytree(packaged.FOLDER, folder)
    table = json.loads((folder / packaged.TABLE).read_text())
    for name, content in contents.items():
        (folder / f"{name}.spv").write_bytes(content)
        table["modules"][name]["sha256"] = hashlib.sha256(content).hexdigest()
    (folder / packaged.TABLE).write_text(json.dumps(table))


def replaced(module: bytes, wanted: int, other: int, last: bool) -> bytes:
    """Return a module with another number in the place of the first or the last such instruction."""
    words = list(struct.unpack(f"<{len(module) // 4}I", module))
    places, place = [], 5
    while place < len(words):
        if words[place] & 0xFFFF == wanted:
            places.append(place)
        place += words[place] >> 16
    chosen = places[-1 if last else 0]
    words[chosen] += other - wanted
    return struct.pack(f"<{len(words)}I", *words)
