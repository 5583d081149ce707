# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The vendor's backend of torch.distributed: gloo on the host memory of the device's tensors."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from accel_sim.simulation import Simulation

#: Backends that torch creates by class instead of by registration.
_BUILT_IN = {"nccl": "NCCL", "xccl": "XCCL"}


def register(simulation: Simulation) -> None:
    """Register the backend under the vendor's name."""
    import torch.distributed as dist

    name = simulation.vendor.collectives
    if not dist.is_available() or name == "gloo":
        return
    if name in _BUILT_IN:
        _replace_class(simulation, _BUILT_IN[name])
    else:

        def create(options: Any, _backend_options: Any = None) -> Any:
            return _backend(
                simulation, options.store, options.group_rank, options.group_size, options.timeout
            )

        dist.Backend.register_backend(name, create, extended_api=True, devices=[simulation.type])
    if simulation.type in ("hpu", "xpu"):
        _name_object_device(simulation)


def _backend(simulation: Simulation, store: Any, rank: int, size: int, timeout: timedelta) -> Any:
    from torch.distributed import ProcessGroupGloo

    gloo = ProcessGroupGloo(store, rank, size, timeout=timeout)
    return simulation.native.make_backend(gloo, simulation.vendor.collectives)


def _replace_class(simulation: Simulation, upper: str) -> None:
    import torch.distributed as dist
    from torch.distributed import distributed_c10d

    class _Meta(type):
        def __instancecheck__(cls, value: object) -> bool:
            return _is_ours(value, upper)

        def __call__(cls, store: Any, rank: int, size: int, options: Any) -> Any:
            return _backend(simulation, store, rank, size, options._timeout)

    class Options:
        """The options that torch fills in for its own backend."""

        def __init__(self, *_arguments: Any, **_options: Any) -> None:
            self._timeout = timedelta(minutes=10)

    group = _Meta(f"ProcessGroup{upper}", (), {"Options": Options})
    for module in (dist, distributed_c10d):
        setattr(module, f"ProcessGroup{upper}", group)
    setattr(distributed_c10d, f"_{upper}_AVAILABLE", True)


def _is_ours(value: object, upper: str) -> bool:
    name = getattr(value, "name", None)
    return callable(name) and str(name()).upper() == upper


def _name_object_device(simulation: Simulation) -> None:
    # The collectives of these types run under PrivateUse1's kernels (csrc/collectives.cpp), for which the
    # group lists that type too. Objects must still be sent on the type that exists.
    from torch.distributed import distributed_c10d

    ask = distributed_c10d._get_object_coll_device

    def device(group: Any = None) -> str:
        found = ask(group)
        return simulation.type if found == "privateuseone" else found

    distributed_c10d._get_object_coll_device = device
