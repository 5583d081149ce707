# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The ops of the toy."""

from accel_core.op_builder import OpTable

TABLE = OpTable(package=__name__, builders={"FusedAdamBuilder": f"{__name__}.fused_adam:FusedAdamBuilder"})
