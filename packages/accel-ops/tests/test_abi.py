# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The declarations for ctypes are those of the header."""

import ctypes
import re
from typing import Any

from accel_ops.host import c_interface, library
from shared.children import run

HEADERS = ("accel_ops.h", "accel_io.h")
STRUCTURES = {
    "accel_tensor_lists": c_interface.TensorLists, "accel_adam_options": c_interface.AdamOptions,
    "accel_gradient": c_interface.Gradient,
    "accel_io_options": c_interface.IoOptions, "accel_io_request": c_interface.IoRequest,
    "accel_io_result": c_interface.IoResult, "accel_io_file": c_interface.IoFile,
}  # fmt: skip


SCALARS: dict[Any, str] = {
    ctypes.c_double: "double", ctypes.c_float: "float", ctypes.c_int64: "int64_t", ctypes.c_int32: "int32_t"
}  # fmt: skip


def kinds(declared: str) -> list[str]:
    """The types of arguments, or of a result; all pointers are alike."""
    types = [word.removeprefix("const ").split()[0] for word in declared.split(",") if word.strip() != "void"]
    pointers = ["*" in word for word in declared.split(",")]
    return ["pointer" if pointer else {"int": "int32_t"}.get(kind, kind)
            for kind, pointer in zip(types, pointers, strict=False)]  # fmt: skip


def test_the_declarations_are_those_of_the_header(tmp_path):
    csrc = library.source().folders[0]
    header = "".join((csrc / name).read_text(encoding="utf-8") for name in HEADERS)
    assert re.findall(r"^} (accel_\w+);", header, re.MULTILINE) == list(STRUCTURES)
    for name, value in re.findall(r"\bACCEL_(\w+) = (\d+)", header):
        assert getattr(c_interface, name.replace("IO_U", "U").replace("IO_T", "T")) == int(value)
    functions = re.findall(r"^ACCEL_API ([\w *]+?)(accel_\w+)\(([^)]*)\);", header, re.MULTILINE)
    declared = {name: (kinds(result), kinds(given.strip())) for result, name, given in functions}
    assert declared == {
        name: ([SCALARS[result]], [SCALARS.get(kind, "pointer") for kind in given])
        for name, (result, given) in c_interface.PROTOTYPES.items()
    }
    lines = ["#include <type_traits>", "#include <cstddef>", *(f'#include "{name}"' for name in HEADERS)]
    for name, structure in STRUCTURES.items():
        lines.append(f"static_assert(sizeof({name}) == {ctypes.sizeof(structure)});")
        for field, cls in structure._fields_:
            place, kind = getattr(structure, field), SCALARS.get(cls)
            same = f"offsetof({name}, {field}) == {place.offset} && sizeof({name}::{field}) == {place.size}"
            same += f" && std::is_same_v<decltype({name}::{field}), {kind}>" if kind else ""
            lines.append(f"static_assert({same});")
    program = tmp_path / "declared.cpp"
    program.write_text("\n".join(lines))
    run("c++", "-std=c++17", "-fsyntax-only", f"-I{csrc}", program, check=True)
