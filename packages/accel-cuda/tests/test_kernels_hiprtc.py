# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The real hipRTC, where one is installed: it compiles the kernels without a device."""

import ctypes
from pathlib import Path

import pytest

from accel_cuda.kernels import compiled_here, rtc
from accel_ops.kernel_builders import ARGUMENTS

#: Debian's: `apt install libamdhip64-5`.
LIBRARY = "libamdhip64.so.5"


def installed() -> bool:
    try:
        return hasattr(ctypes.CDLL(LIBRARY), "hiprtcCreateProgram")
    except OSError:
        return False


@pytest.mark.slow
@pytest.mark.skipif(not installed(), reason=f"not run: no {LIBRARY}")
@pytest.mark.parametrize("target", ["gfx90a", "gfx1030"])
def test_hiprtc_compiles_all_kernels(target: str) -> None:
    source = rtc.flattened(compiled_here.ENTRY, compiled_here._HEADERS)
    image = rtc.compiled(rtc.HIPRTC, Path(LIBRARY), source, target)
    assert (image[:4], image[18]) == (b"\x7fELF", 224)
    assert all(f"{kernel}.kd".encode() in image for kernel in ARGUMENTS)


@pytest.mark.slow
@pytest.mark.skipif(not installed(), reason=f"not run: no {LIBRARY}")
def test_source_that_is_wrong_is_an_error_with_the_compiler_s_words() -> None:
    with pytest.raises(RuntimeError, match="unknown type name 'nothing'"):
        rtc.compiled(rtc.HIPRTC, Path(LIBRARY), "nothing here;", "gfx90a")
