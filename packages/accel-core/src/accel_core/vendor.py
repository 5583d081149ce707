# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""What a vendor package exports: one frozen record, and the answers its probe gives.

A package declares it as an entry point::

    [project.entry-points."accel.vendors"]
    npu = "accel_npu.vendor:VENDOR"

Nothing of the package but that module is imported until the vendor is asked (`evidence`, `confirm`) or
chosen (the accelerator class).
"""

from __future__ import annotations

import pkgutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Protocol

from accel_core.env import Variable

ENTRY_POINT_GROUP = "accel.vendors"

#: Version of the interface that vendors are written against. Raised when an accelerator or a probe
#: written for the former version would no longer work.
INTERFACE_VERSION = 1


class Support(Enum):
    """How far a device goes with one feature."""

    FULL = "full"
    #: Possible on the device; this package has not written it yet.
    NOT_IMPLEMENTED = "not implemented"
    #: The device or its runtime can not do it.
    UNSUPPORTED = "unsupported"


@dataclass(frozen=True)
class Trait:
    """One thing that a device can not do, with the reason that users, skips and docs print."""

    support: Support
    reason: str

    @classmethod
    def unsupported(cls, reason: str) -> Trait:
        """The device or its runtime can not do it."""
        return cls(Support.UNSUPPORTED, reason)

    @classmethod
    def not_implemented(cls, reason: str) -> Trait:
        """Possible on the device; not written yet."""
        return cls(Support.NOT_IMPLEMENTED, reason)


Traits = Mapping[str, Trait]


@dataclass(frozen=True)
class Evidence:
    """What can be seen without importing anything.

    runtime:  the vendor's PyTorch runtime is installed in a version that this package works with.
    hardware: device nodes or driver are here; None when that can not be told without the runtime.
    reason:   one sentence a user can read.
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
    """The two questions; a vendor's probe.py is a module with these functions."""

    def evidence(self) -> Evidence:
        """Look at metadata, files and device nodes. Imports no runtime, opens no device, prints nothing."""
        ...

    def confirm(self) -> Confirmation:
        """Import the runtime and count devices, without opening a device context."""
        ...


@dataclass(frozen=True)
class Vendor:
    """An accelerator that can be chosen.

    key:          the value of DS_ACCELERATOR that asks for it.
    accelerator:  dotted name of the class, `package.module:Class`.
    probe:        dotted name of the module or object that answers `evidence()` and `confirm()`.
    priority:     the present vendor with the highest one is chosen; see `accel_core.known` for the
                  cascade's numbers, which have gaps of 100 for third parties.
    distribution: the name to `pip install`.
    requires:     the user's word for the runtime (`torch_npu`), used in messages.
    road:         tells two vendors with one key apart (`ipex` and `native` for xpu).
    privateuse1:  the name under which the runtime claims torch's one PrivateUse1 slot, if it does.
    yields_to:    keys that win over this vendor wherever they are present, whatever the priorities.
    interface:    the INTERFACE_VERSION the package was written for.
    imports_deepspeed: the class derives from DeepSpeed's own; deepspeed is imported before it, because
                  its import would otherwise ask for the accelerator that is being made.
    """

    key: str
    accelerator: str
    probe: str
    priority: int
    distribution: str
    requires: str
    road: str = ""
    privateuse1: str = ""
    yields_to: tuple[str, ...] = ()
    interface: int = INTERFACE_VERSION
    imports_deepspeed: bool = False
    variables: tuple[Variable, ...] = ()
    version: str = field(default="", compare=False)

    def __post_init__(self) -> None:
        # A slip here would surface far away, in the middle of everybody's selection.
        if not (self.key and isinstance(self.key, str) and isinstance(self.priority, int)):
            raise TypeError(f"a vendor needs a key and an integer priority: {self.key!r}, {self.priority!r}")

    @property
    def label(self) -> str:
        """The key, with the road where there are several: `xpu (native)`."""
        return f"{self.key} ({self.road})" if self.road else self.key

    def evidence(self) -> Evidence:
        """Ask the probe what can be seen without imports."""
        return self._probe().evidence()

    def confirm(self) -> Confirmation:
        """Ask the probe to import its runtime and count devices."""
        return self._probe().confirm()

    def _probe(self) -> Probe:
        probe: Probe = pkgutil.resolve_name(self.probe)
        return probe
