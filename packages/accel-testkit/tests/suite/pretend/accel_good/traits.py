# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""What the pretended device cannot do."""

from accel_core.op_builder.names import cuda_only
from accel_core.vendor import Support, Trait

TRAITS = {
    "record_stream": Trait.unsupported("torch records streams of device memory, and this is host memory"),
    "triton": Trait.unsupported("Triton compiles for GPUs"),
    "AsyncIOBuilder": Trait(Support.NOT_IMPLEMENTED, "nobody wrote file I/O for a device that is pretended"),
    **cuda_only(),
}
