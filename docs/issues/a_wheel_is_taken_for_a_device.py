# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Detection takes a package that can be imported for a device."""

import sys
import types

sys.modules["torch_npu"] = types.ModuleType(
    "torch_npu"
)  # an installed wheel, on a machine without the device

try:
    import deepspeed  # noqa: F401
except AttributeError as error:
    print("import deepspeed:", error)
print("chosen:", sys.modules["deepspeed.accelerator.real_accelerator"].ds_accelerator._name)
