# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The ops of CUDA devices: DeepSpeed's own sources, and plain torch for some where there is no compiler."""

from accel_core.op_builder import OpTable
from accel_core.op_builder.names import UPSTREAM

_HOST = ("CPUAdagradBuilder", "CPUAdamBuilder", "CPULionBuilder", "PinMemoryBuilder", "UtilsBuilder")
_FUSED = ("FusedAdamBuilder", "FusedLambBuilder", "FusedLionBuilder")
_INFERENCE = ("InferenceBuilder", "InferenceCoreBuilder")
_ROOMS = {
    **dict.fromkeys(UPSTREAM, "kernels"),
    **dict.fromkeys(_HOST, "host"),
    **dict.fromkeys(_FUSED, "fused"),
    **dict.fromkeys(_INFERENCE, "inference"),
}

TABLE = OpTable(
    package=__name__,
    builders={name: f"{__name__}.{room}:{name}" for name, room in _ROOMS.items()},
)
