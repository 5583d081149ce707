# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The record that a vendor package exports, its traits, and the interface of its probe.

A package declares its record as an entry point::

    [project.entry-points."accel.vendors"]
    npu = "accel_npu.vendor:VENDOR"

Only that module of the package is imported, until the probe is called (`evidence`, `confirm`) or the vendor is
chosen (the accelerator class).
"""

from __future__ import annotations

import importlib.metadata
import pkgutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Protocol

from accel_core import cascade
from accel_core.env import Variable


class Support(Enum):
    """Why a device lacks a feature."""

    #: Possible on the device, but not implemented in this package.
    NOT_IMPLEMENTED = "not implemented"
    #: The device or its runtime cannot do it.
    UNSUPPORTED = "unsupported"


@dataclass(frozen=True)
class Trait:
    """One thing that a device cannot do."""

    support: Support
    reason: str

    @classmethod
    def unsupported(cls, reason: str) -> Trait:
        """Return a trait for what the device or its runtime cannot do."""
        return cls(Support.UNSUPPORTED, reason)

    @classmethod
    def not_implemented(cls, reason: str) -> Trait:
        """Return a trait for what is possible on the device but not implemented."""
        return cls(Support.NOT_IMPLEMENTED, reason)


Traits = Mapping[str, Trait]


class Feature(str, Enum):
    """A feature of accelerators. The value is the key of the trait; `sentence` describes the feature.

    A member equals its key: `{Feature.STREAMS: …}` and `{"streams": …}` are the same traits.
    """

    _value_: str
    sentence: str

    def __new__(cls, key: str, sentence: str) -> Feature:
        feature = str.__new__(cls, key)
        feature._value_ = key
        feature.sentence = sentence
        return feature

    def __str__(self) -> str:
        return self._value_

    INDEXED_DEVICES = "indexed_devices", "One process uses several devices, by index."
    STREAMS = "streams", "Work is queued on streams: `Stream` is a class, `stream()` chooses one."
    DEFAULT_STREAM = "default_stream", "`default_stream()` is a stream of its own beside those that are made."
    RECORD_STREAM = "record_stream", "`tensor.record_stream(stream)` keeps memory until that stream is done."
    EVENTS = "events", "Events mark points of a stream and measure the time between them."
    GRAPHS = "graphs", "Work is captured into a graph and replayed."
    PINNED_MEMORY = "pinned_memory", "`pin_memory()` page-locks host memory."
    RESERVED_MEMORY = (
        "reserved_memory",
        "`memory_reserved()` follows what the allocator takes and gives back.",
    )
    MEMORY_PEAKS = "memory_peaks", "The runtime itself keeps the peaks that `max_memory_*()` return."
    BF16 = "bf16", "bfloat16 trains."
    FP16 = "fp16", "float16 trains."
    FP64 = "fp64", "float64 computes."
    TRITON = "triton", "Triton kernels run."
    UNTOUCHED_ENVIRONMENT = "untouched_environment", "Imports and construction leave os.environ as it is."
    UNTOUCHED_SETTINGS = "untouched_settings", "Construction leaves torch's global settings as they are."
    ZERO3_RANKS = "zero3_ranks", "DeepSpeed trains at ZeRO stage 3 over several ranks."
    ALL_REDUCE_MAX = "all_reduce_max", "The backend reduces by maximum."
    ASYNCHRONOUS_ALL_REDUCE = (
        "asynchronous_all_reduce",
        "`all_reduce(async_op=True)` returns a handle to wait for.",
    )
    BROADCAST = "broadcast", "The backend broadcasts."
    ALL_GATHER_INTO_TENSOR = "all_gather_into_tensor", "The backend gathers into one tensor."
    REDUCE_SCATTER_TENSOR = "reduce_scatter_tensor", "The backend reduces and scatters one tensor."
    ALL_TO_ALL_SINGLE = "all_to_all_single", "The backend exchanges parts of one tensor."
    SEND_AND_RECEIVE = "send_and_receive", "The backend sends from rank to rank."
    ALL_GATHER_OBJECT = "all_gather_object", "The backend gathers pickled objects."


ENTRY_POINT_GROUP = "accel.vendors"

#: Version of the interface for which vendor packages are written. Increased when packages for the previous version
#: would no longer work. Version 1 was everything before `Vendor.interface` was required.
INTERFACE_VERSION = 2

#: Marks an omitted priority; an int, so that the field has one type.
_FROM_CASCADE = -(2**63)


@dataclass(frozen=True)
class Evidence:
    """What is known without importing anything.

    runtime:  the vendor's PyTorch runtime is installed in a usable version.
    hardware: there are device files or a driver, with or without a runtime; None if only the runtime can find out.
    reason:   one sentence for the user.
    untested: a warning for when the vendor is chosen, such as a release that was not tried; empty for none.
    """

    runtime: bool
    hardware: bool | None
    reason: str
    untested: str = ""


@dataclass(frozen=True)
class Confirmation:
    """The number of usable devices according to the imported runtime, and the reason in one sentence."""

    devices: int
    reason: str


class Probe(Protocol):
    """Probe for a device; a vendor's probe.py is a module with these two functions."""

    def evidence(self) -> Evidence:
        """Check metadata, files and device files. Must not import a runtime, open a device or print."""
        ...

    def confirm(self) -> Confirmation:
        """Import the runtime and count devices, without opening a device context."""
        ...


@dataclass(frozen=True, kw_only=True)
class Vendor:
    """The record of an accelerator.

    key:          the value of DS_ACCELERATOR that selects it.
    interface:    the INTERFACE_VERSION for which the package was written, as a literal, not the constant.
    accelerator:  dotted name of the class, `package.module:Class`.
    probe:        dotted name of the module or object that has `evidence()` and `confirm()`.
    distribution: the package name for `pip install`.
    requires:     name of the runtime in messages (`torch_npu`).
    install:      how to install the runtime beside the torch that is here, as advice for a user. `{torch}` stands for
                  torch's version, `{release}` for that without the build (`2.13.0`).
    variant:      distinguishes vendors that share a key (`ipex` and `native` for xpu).
    priority:     the present vendor with the highest priority is chosen. Default: that of key and variant in
                  DeepSpeed's cascade (docs/selection.md), whose numbers leave gaps for third parties.
    privateuse1:  the name under which the runtime claims torch's PrivateUse1 slot, if it does.
    yields_to:    keys that are chosen instead of this vendor if they are present, whatever the priorities.
    imports_deepspeed: the class derives from DeepSpeed's own. deepspeed is then imported before it; otherwise
                  the import of deepspeed would need the accelerator that is being constructed.
    variables:    environment variables of the package, listed by `accel env`.

    Raises TypeError for an invalid field.
    """

    key: str
    interface: int
    accelerator: str
    probe: str
    distribution: str
    requires: str
    install: str = ""
    variant: str = ""
    priority: int = _FROM_CASCADE
    privateuse1: str = ""
    yields_to: tuple[str, ...] = ()
    imports_deepspeed: bool = False
    variables: tuple[Variable, ...] = ()
    version: str = field(default="", compare=False)

    def __post_init__(self) -> None:
        # Otherwise the mistake would become visible only during the selection, for all users.
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
        """The key, with the variant if there is one: `xpu (native)`."""
        return f"{self.key} ({self.variant})" if self.variant else self.key

    def evidence(self) -> Evidence:
        """Return the evidence of the probe; imports no runtime."""
        return self._probe().evidence()

    def confirm(self) -> Confirmation:
        """Return the confirmation of the probe, which imports its runtime and counts devices."""
        return self._probe().confirm()

    def how_to_install(self) -> str:
        """Return the advice for installing the runtime beside the installed torch; empty if the record has none."""
        try:
            torch = importlib.metadata.version("torch")
        except importlib.metadata.PackageNotFoundError:
            return f"install torch; then {self._install('<its version>')}" if self.install else ""
        return self._install(torch)

    def _install(self, torch: str) -> str:
        return self.install.replace("{torch}", torch).replace("{release}", torch.partition("+")[0])

    def _probe(self) -> Probe:
        probe: Probe = pkgutil.resolve_name(self.probe)
        return probe
