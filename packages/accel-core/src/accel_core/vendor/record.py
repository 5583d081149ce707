# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""What a vendor package exports: one frozen record, and the probe that it names.

A package declares it as an entry point::

    [project.entry-points."accel.vendors"]
    npu = "accel_npu.vendor:VENDOR"

Nothing of the package but that module is imported until the probe is called (`evidence`, `confirm`) or
the vendor is chosen (the accelerator class).
"""

from __future__ import annotations

import pkgutil
from dataclasses import dataclass, field
from typing import Protocol

from accel_core import cascade
from accel_core.env import Variable

ENTRY_POINT_GROUP = "accel.vendors"

#: Version of the interface that vendors are written against. Raised when a package written for the
#: former version would no longer work. Version 1 was everything before `Vendor.interface` was required.
INTERFACE_VERSION = 2

#: No package means this number, and it is an integer to whoever reads the record.
_FROM_CASCADE = -(2**63)


@dataclass(frozen=True)
class Evidence:
    """What can be seen without importing anything.

    runtime:  the vendor's PyTorch runtime is installed in a version that this package works with.
    hardware: device files or driver are here; None when that cannot be seen without the runtime.
    reason:   one sentence for the user.
    """

    runtime: bool
    hardware: bool | None
    reason: str


@dataclass(frozen=True)
class Confirmation:
    """What the imported runtime says: the number of usable devices, and one sentence."""

    devices: int
    reason: str


class Probe(Protocol):
    """Whether the device is there; a vendor's probe.py is a module with these two functions."""

    def evidence(self) -> Evidence:
        """Look at metadata, files and device files. Imports no runtime, opens no device, prints nothing."""
        ...

    def confirm(self) -> Confirmation:
        """Import the runtime and count devices, without opening a device context."""
        ...


@dataclass(frozen=True, kw_only=True)
class Vendor:
    """An accelerator that can be chosen.

    key:          the value of DS_ACCELERATOR that selects it.
    interface:    the INTERFACE_VERSION that the package was written for: a literal number, not the constant.
    accelerator:  dotted name of the class, `package.module:Class`.
    probe:        dotted name of the module or object that has `evidence()` and `confirm()`.
    distribution: the name to `pip install`.
    requires:     the user's word for the runtime (`torch_npu`), used in messages.
    variant:      distinguishes vendors that share a key (`ipex` and `native` for xpu).
    priority:     the present vendor with the highest one is chosen. Default: the place of key and variant in
                  DeepSpeed's cascade (docs/selection.md), whose numbers leave gaps for third parties.
    privateuse1:  the name under which the runtime claims torch's one PrivateUse1 slot, if it does.
    yields_to:    keys that win over this vendor wherever they are present, whatever the priorities.
    imports_deepspeed: the class derives from DeepSpeed's own; deepspeed is imported before it, because
                  its import would otherwise ask for the accelerator that is being made.
    variables:    environment variables of the package, listed by `accel env`.

    Raises TypeError for a field that cannot be right.
    """

    key: str
    interface: int
    accelerator: str
    probe: str
    distribution: str
    requires: str
    variant: str = ""
    priority: int = _FROM_CASCADE
    privateuse1: str = ""
    yields_to: tuple[str, ...] = ()
    imports_deepspeed: bool = False
    variables: tuple[Variable, ...] = ()
    version: str = field(default="", compare=False)

    def __post_init__(self) -> None:
        # A mistake here would surface far away, in the middle of everybody's selection.
        if not (self.key and isinstance(self.key, str)):
            raise TypeError(f"a vendor needs a key: {self.key!r}")
        if self.priority == _FROM_CASCADE:
            object.__setattr__(self, "priority", self._cascade_priority())
        for name in ("priority", "interface"):
            value = getattr(self, name)
            if type(value) is not int:
                raise TypeError(f"the {name} of the vendor {self.key!r} has to be an integer, not {value!r}")

    def _cascade_priority(self) -> int:
        try:
            return cascade.priority(self.key, self.variant)
        except KeyError:
            raise TypeError(
                f"the vendor {self.label!r} needs a priority: DeepSpeed's cascade has no such key"
            ) from None

    @property
    def label(self) -> str:
        """The key, with the variant where there is one: `xpu (native)`."""
        return f"{self.key} ({self.variant})" if self.variant else self.key

    def evidence(self) -> Evidence:
        """Return what the probe sees without imports."""
        return self._probe().evidence()

    def confirm(self) -> Confirmation:
        """Let the probe import its runtime and count devices."""
        return self._probe().confirm()

    def _probe(self) -> Probe:
        probe: Probe = pkgutil.resolve_name(self.probe)
        return probe
