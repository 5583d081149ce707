# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The ops of Intel GPUs; what is missing has its reason in `accel_xpu.traits`."""

from accel_core.op_builder import OpTable

TABLE = OpTable(
    package=__name__,
    builders={
        "CPUAdagradBuilder": f"{__name__}.host:CPUAdagradBuilder",
        "CPUAdamBuilder": f"{__name__}.host:CPUAdamBuilder",
        "CPULionBuilder": f"{__name__}.host:CPULionBuilder",
        "FusedAdamBuilder": f"{__name__}.fused:FusedAdamBuilder",
        "FusedLambBuilder": f"{__name__}.fused:FusedLambBuilder",
        "FusedLionBuilder": f"{__name__}.fused:FusedLionBuilder",
        "InferenceBuilder": f"{__name__}.inference:InferenceBuilder",
        "InferenceCoreBuilder": f"{__name__}.inference:InferenceCoreBuilder",
        "PinMemoryBuilder": f"{__name__}.host:PinMemoryBuilder",
        "UtilsBuilder": f"{__name__}.host:UtilsBuilder",
    },
)
