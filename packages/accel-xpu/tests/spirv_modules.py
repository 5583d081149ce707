# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""What a SPIR-V module says of its kernels."""

import struct
from collections.abc import Iterator

# Numbers of instructions and of an execution mode, from the specification.
_ENTRY_POINT, _EXECUTION_MODE, _INT, _FLOAT, _POINTER, _FUNCTION, _PARAMETER = 15, 16, 21, 22, 32, 54, 55
_ARRAY, _STRUCT, _CONSTANT = 28, 30, 43
#: Memory of a function: a struct that is an argument lies there.
_FUNCTION_MEMORY = 7
_CONTRACTION_OFF = 31


class _Layouts:
    """Bytes and alignment of types; a pointer counts as 0 unless it is that of a struct by value."""

    def __init__(self) -> None:
        self.of: dict[int, tuple[int, int]] = {}
        self._constants: dict[int, int] = {}

    def see(self, number: int, words: tuple[int, ...]) -> None:
        if number in (_INT, _FLOAT):
            self.of[words[0]] = words[1] // 8, words[1] // 8
        elif number == _CONSTANT:
            self._constants[words[1]] = words[2]
        elif number == _ARRAY and words[1] in self.of:
            size, alignment = self.of[words[1]]
            self.of[words[0]] = size * self._constants[words[2]], alignment
        elif number == _STRUCT and all(member in self.of for member in words[1:]):
            end, widest = 0, 1
            for size, alignment in (self.of[member] for member in words[1:]):
                end = -(-end // alignment) * alignment + size
                widest = max(widest, alignment)
            self.of[words[0]] = -(-end // widest) * widest, widest
        elif number == _POINTER:
            self.of[words[0]] = self.of.get(words[2], (0, 1)) if words[1] == _FUNCTION_MEMORY else (0, 1)


def kernels(module: bytes) -> dict[str, list[int]]:
    """Return for each kernel the sizes of its arguments: 0 for a pointer, else bytes."""
    names: dict[int, str] = {}
    layouts = _Layouts()
    arguments: dict[int, list[int]] = {}
    function = 0
    for number, words in _instructions(module):
        layouts.see(number, words)
        if number == _ENTRY_POINT:
            text = struct.pack(f"<{len(words) - 2}I", *words[2:])
            names[words[1]] = text.partition(b"\0")[0].decode()
        elif number == _FUNCTION:
            function = words[1]
        elif number == _PARAMETER:
            arguments.setdefault(function, []).append(layouts.of[words[0]][0])
    return {name: arguments[function] for function, name in names.items()}


def contraction_is_off(module: bytes) -> bool:
    """Return whether all kernels say that a * b + c is rounded twice."""
    modes = [words[0] for number, words in _instructions(module) if number == _EXECUTION_MODE
             and words[1] == _CONTRACTION_OFF]  # fmt: skip
    return set(modes) == {words[1] for number, words in _instructions(module) if number == _ENTRY_POINT}


def _instructions(module: bytes) -> Iterator[tuple[int, tuple[int, ...]]]:
    words = struct.unpack(f"<{len(module) // 4}I", module)
    place = 5
    while place < len(words):
        length, number = words[place] >> 16, words[place] & 0xFFFF
        yield number, words[place + 1 : place + length]
        place += length
