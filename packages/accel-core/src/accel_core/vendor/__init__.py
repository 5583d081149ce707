# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""What a vendor package declares: its record and its traits; and helpers for its probe. Does not import torch.

`accel_core.vendor.torch_threads` is for packages whose ranks use torch's collectives.
"""

from accel_core.env import JOB_SECRET, Variable
from accel_core.lazy import lazy_exports
from accel_core.vendor.interfaces import core_requirement
from accel_core.vendor.numa import InvalidCpuList, NumaNode, format_cpu_list, parse_cpu_list, usable_nodes
from accel_core.vendor.probing import (
    Bindings,
    Collectives,
    deepspeed_folder,
    device_files,
    distribution_version,
    in_range,
    module_exists,
    runtime_evidence,
    system_root,
    torch_build,
)
from accel_core.vendor.record import (
    ENTRY_POINT_GROUP,
    INTERFACE_VERSION,
    Confirmation,
    Evidence,
    Feature,
    Probe,
    Support,
    Trait,
    Traits,
    Vendor,
)

__all__ = [
    "JOB_SECRET",
    "ENTRY_POINT_GROUP",
    "INTERFACE_VERSION",
    "Bindings",
    "Collectives",
    "Confirmation",
    "Evidence",
    "Feature",
    "InvalidCpuList",
    "NumaNode",
    "Probe",
    "Support",
    "Trait",
    "Traits",
    "Variable",
    "Vendor",
    "core_requirement",
    "deepspeed_folder",
    "device_files",
    "distribution_version",
    "format_cpu_list",
    "in_range",
    "lazy_exports",
    "module_exists",
    "parse_cpu_list",
    "runtime_evidence",
    "system_root",
    "torch_build",
    "usable_nodes",
]
