# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Native libraries of vendor packages: C++ sources with a C interface, compiled once per machine.

`build_library(source)` returns the path of the library, compiled into the user's cache if it is not there, and
`load_library(path, ctypes.CDLL)` loads it. Between the two calls a path says nothing of the file: load it by
`load_library`, which checks it again and loads a copy that nobody can change.
"""

from accel_core.native.build import forget as forget_library
from accel_core.native.build import library as build_library
from accel_core.native.build import load as load_library
from accel_core.native.build import private as build_for_this_process
from accel_core.native.build import published as built_library
from accel_core.native.compiler import Source as NativeSource
from accel_core.native.compiler import find as find_compiler

__all__ = [
    "NativeSource",
    "build_for_this_process",
    "build_library",
    "built_library",
    "find_compiler",
    "forget_library",
    "load_library",
]
