# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Devices by name. A capacity is what torch reports as the device's total; where no report is public, it is the
published figure in decimal gigabytes, which is the smaller reading."""

from __future__ import annotations

import difflib
from dataclasses import replace

from accel_core.errors import InvalidInput
from accel_rehearse.record import DeviceModel
from accel_sim import vendors

_GB, _GIB = 10**9, 1 << 30
#: Memory of the context, of loaded kernels and of the collectives' buffers. An assumption: it was not measured.
RESERVE = 2 * _GIB


def _profile(name: str, capacity: float, per_node: int, source: str) -> DeviceModel:
    vendor = name.partition(":")[0]
    return DeviceModel(name, vendor, int(capacity), per_node, RESERVE, source)


_GITHUB = "https://github.com"
PROFILES = tuple(
    _profile(*row)
    for row in (
        ("npu:910b-64", 60.96 * _GIB, 8, f"{_GITHUB}/vllm-project/vllm-ascend/issues/1127 (8 x 910B2, 64 GB)"),
        ("npu:910b-32", 32 * _GB, 8, f"{_GITHUB}/vllm-project/vllm-ascend/issues/8746 (8 x 910B4, 32 GB)"),
        (
            "hpu:gaudi2", 94.62 * _GIB, 8,
            "https://huggingface.co/ndavidson/Phi-2-openassistant/blob/main/train_results.json",
        ),
        ("hpu:gaudi3", 126.5 * _GIB, 8, f"{_GITHUB}/vllm-project/vllm-gaudi/issues/1736"),
        (
            "xpu:max1550", 64 * _GB, 12,
            "https://glennklockwood.com/garden/processors/pvc (128 GB in two stacks; a device is one of them)",
        ),
        (
            "xpu:max1100", 48 * _GB, 8,
            "https://geektopia.es/es/technology/2023/04/11/noticias/"
            "intel-no-lanzara-la-max-1350-para-centros-de-datos-y-se-centrara-en-una-nueva-max-1450.html (48 GB)",
        ),
        ("cuda:a100-40", 39.50 * _GIB, 8, f"{_GITHUB}/TianheWu/CoSeR/issues/10"),
        ("cuda:a100-80", 79.14 * _GIB, 8, f"{_GITHUB}/lianqi1008/Control-GIC/issues/6"),
        ("cuda:h100-80", 79.11 * _GIB, 8, f"{_GITHUB}/vllm-project/vllm/issues/27508"),
        (
            "cuda:h200", 139.80 * _GIB, 8,
            "https://massivegrid.com/blog/nvidia-h100-vs-h200-key-differences-in-performance-memory-ai-power"
            " (141 GB; torch's messages say 139.80 GiB)",
        ),
        (
            "mlu:370", 24 * _GB, 8,
            "http://guangxilong.com/c/032129635H022.html (MLU370-X8: 48 GB in two chips; a device is one of them)",
        ),
    )
)  # fmt: skip


def profile(text: str, memory: int | None = None) -> DeviceModel:
    """Return the profile of `npu:910b-64`, or of a vendor's key alone with `memory`. Raises `InvalidInput`.

    memory: bytes of a device, instead of the profile's.
    """
    name = text.strip().lower()
    for known in PROFILES:
        if known.name == name:
            return (
                known if memory is None else replace(known, capacity=memory, source="the command's --memory")
            )
    bare = {vendor.key for vendor in vendors.VENDORS}
    if name in bare and memory is not None:
        return _profile(name, memory, 8, "the command's --memory")
    names = [known.name for known in PROFILES]
    close = [known for known in names if name and known.startswith(name)]
    close += difflib.get_close_matches(name, names, n=1)
    raise InvalidInput(
        f"the device to rehearse on is not known: {text!r:.60}{' without --memory' if name in bare else ''}; expected "
        f"{', '.join(names)}, or one of {', '.join(sorted(bare))} with --memory",
        do=f"name it: accel rehearse {close[0] if close else names[0]} -- train.py",
    )
