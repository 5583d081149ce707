# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The builders that serve every device, and the op table of a vendor made of them. Imports no builder."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from accel_core.op_builder import OpTable, names

#: {upstream's name of a builder: dotted name of the class}.
SHARED: dict[str, str] = {
    name: f"{module}:{name}"
    for module, builders in {
        "accel_ops.optimizers.host": [name for name in names.HOST if name.startswith("CPU")],
        "accel_ops.memory": ("PinMemoryBuilder", "UtilsBuilder"),
        "accel_ops.io.builder": names.FILE_IO,
        "accel_ops.optimizers.fused": names.FUSED,
        "accel_ops.inference": names.INFERENCE,
        "accel_ops.torch_fallbacks": [name for name in names.PLAIN if "Quantizer" not in name],
        "accel_ops.quantizers.quantizer": ("QuantizerBuilder",),
        "accel_ops.quantizers.fp_quantizer": ("FPQuantizerBuilder",),
    }.items()
    for name in builders
}


def op_table(own: Mapping[str, Sequence[str]]) -> OpTable:
    """Return a table of the shared builders and of a device's own, which take the place of shared ones.

    own: {module: names of the builders in it}.
    """
    builders = {name: f"{module}:{name}" for module, found in own.items() for name in found}
    return OpTable("accel_ops.builder_names", {**SHARED, **builders})
