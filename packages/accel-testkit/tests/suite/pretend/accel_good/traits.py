# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""What the pretended device cannot do."""

from accel_core.op_builder.names import FUSED, HOST, INFERENCE, PLAIN, UPSTREAM
from accel_core.vendor import Support, Trait

SERVED = {*HOST, *FUSED, *INFERENCE, *PLAIN}
_NO_KERNEL = "nobody wrote a kernel for a device that is pretended"

TRAITS = {
    "record_stream": Trait(
        Support.UNSUPPORTED, "torch records streams of device memory, and this is host memory"
    ),
    "triton": Trait(Support.UNSUPPORTED, "Triton compiles for GPUs"),
    **{name: Trait(Support.NOT_IMPLEMENTED, _NO_KERNEL) for name in UPSTREAM if name not in SERVED},
}
