# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The accel-acme authors
# SPDX-License-Identifier: Apache-2.0
"""Traits: what the device cannot do, or this package does not implement. Code, conformance skips and docs read them."""

from __future__ import annotations

from accel_core.op_builder.names import cuda_only
from accel_core.vendor import Trait

_LATER = Trait.not_implemented("it is not part of this release")

TRAITS: dict[str, Trait] = {
    **cuda_only(),
    "streams": Trait.unsupported("every call is done when it returns"),
    "pinned_memory": Trait.unsupported("the driver copies from any host memory alike"),
    "graphs": Trait.unsupported("the driver records no work"),
    "triton": _LATER,
}
