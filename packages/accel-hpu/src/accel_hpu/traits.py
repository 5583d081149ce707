# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Traits: what Gaudi cannot do, or this package does not implement."""

from __future__ import annotations

from accel_core.op_builder.names import cuda_only
from accel_core.vendor import Feature, Trait

TRAITS: dict[str, Trait] = {
    **cuda_only(),
    Feature.INDEXED_DEVICES: Trait.unsupported(
        "a process has one Gaudi, which its launcher chose; device() and device_name() drop the index"
    ),
    Feature.RESERVED_MEMORY: Trait.unsupported(
        "Habana's allocator takes the whole device when it starts; memory_reserved() is always all of it"
    ),
    Feature.UNTOUCHED_ENVIRONMENT: Trait.unsupported(
        "importing Habana's runtime sets TORCHINDUCTOR_COMPILE_THREADS, and it reads PT_HPU_LAZY_ACC_PAR_MODE and "
        "PT_HPU_ENABLE_REFINE_DYNAMIC_SHAPES from the environment, where construction sets them"
    ),
    Feature.UNTOUCHED_SETTINGS: Trait.unsupported("DeepSpeed needs deterministic algorithms on Gaudi"),
    Feature.TRITON: Trait.unsupported("stock Triton does not compile for Gaudi"),
}

_EAGER: dict[str, Trait] = {
    Feature.GRAPHS: Trait.unsupported("Habana has HPUGraph in lazy mode only, and PT_HPU_LAZY_MODE is 0")
}


def of_mode(lazy: bool) -> dict[str, Trait]:
    """Return the traits in lazy or eager mode; the mode is that of the whole process."""
    return TRAITS if lazy else {**TRAITS, **_EAGER}
