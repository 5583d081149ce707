# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The declarations of a vendor package, its record and its traits, and helpers for its probe. Does not import torch.

A package declares its record as an entry point::

    [project.entry-points."accel.vendors"]
    npu = "accel_npu.vendor:VENDOR"

Only that module of the package is imported, until the probe is called (`evidence`, `confirm`) or the vendor is
chosen (the accelerator class). `accel_core.vendor.torch_threads` is for packages whose ranks use torch's collectives,
`accel_core.vendor.host_collectives` for runtimes without collectives.
"""

from __future__ import annotations

import functools
import importlib
import importlib.metadata
import importlib.util
import os
import pkgutil
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from enum import Enum
from importlib.machinery import ModuleSpec
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from packaging.specifiers import SpecifierSet
from packaging.version import InvalidVersion, Version

from accel_core import activate
from accel_core.activate import lazy_exports
from accel_core.devices import known_device, known_devices
from accel_core.env import JOB_SECRET, Variable, system_root
from accel_core.install import distribution_version
from accel_core.launchers import launched
from accel_core.vendor.numa import (
    InvalidCpuList,
    NumaNode,
    format_cpu_list,
    parse_cpu_list,
    text_of,
    usable_nodes,
)
from accel_core.vendor.visible import VisibleDevices

__all__ = [
    "JOB_SECRET",
    "ENTRY_POINT_GROUP",
    "INTERFACE_VERSION",
    "SUPPORTED_INTERFACES",
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
    "VisibleDevices",
    "deepspeed_folder",
    "device_files",
    "distribution_version",
    "format_cpu_list",
    "found_devices",
    "in_range",
    "known_device",
    "lacks_library",
    "launched",
    "lazy_exports",
    "module_exists",
    "parse_cpu_list",
    "runtime_evidence",
    "system_root",
    "torch_build",
    "usable_nodes",
]


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
    VISIBLE_DEVICES = "visible_devices", "An environment variable restricts a process to some devices."
    STREAMS = "streams", "Work is queued on streams: `Stream` is a class, `stream()` chooses one."
    DEFAULT_STREAM = "default_stream", "`default_stream()` differs from all streams that are created."
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

#: Versions of the packages that core accepts.
SUPPORTED_INTERFACES = range(INTERFACE_VERSION, INTERFACE_VERSION + 1)

#: Marks an omitted priority; an int, so that the field has one type.
_UNSTATED = -(2**63)


@dataclass(frozen=True)
class Evidence:
    """Facts known without importing anything.

    runtime:  the vendor's PyTorch runtime is installed in a usable version.
    hardware: a device file was found. None if only the runtime can find out: device files may be missing or have
              other names, so a missing file proves nothing about a runtime that can be imported.
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


#: Types of fields of a record; the others are tuples.
_KINDS = {"str": str, "int": int, "bool": bool}
#: What a record takes from the table of devices, and what it has to state for a key that is not there.
_FROM_TABLE = ("distribution", "requires", "install", "priority", "privateuse1", "yields_to")
_REQUIRED = ("distribution", "requires", "priority")


@dataclass(frozen=True, kw_only=True)
class Vendor:
    """The record of an accelerator.

    What is omitted is as in the table of devices (`known_device`) for key and variant. A third party's key is in no
    table: its record states distribution, requires and priority.

    key:          the value of DS_ACCELERATOR that selects it.
    interface:    the INTERFACE_VERSION for which the package was written, as a literal, not the constant.
    accelerator:  dotted name of the class, `package.module:Class`.
    probe:        dotted name of the module or object that has `evidence()` and `confirm()`.
    distribution: the package name for `pip install`.
    requires:     name of the runtime in messages (`torch_npu`).
    install:      how to install the runtime for the installed torch, as advice for a user. `{torch}` stands for
                  torch's version, `{release}` for that without the build (`2.13.0`).
    variant:      distinguishes vendors that share a key (`ipex` and `native` for xpu).
    priority:     the present vendor with the highest priority is chosen. The table's numbers leave gaps for third
                  parties (docs/selection.md). One below 0 is chosen by DS_ACCELERATOR only.
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
    distribution: str = ""
    requires: str = ""
    install: str = ""
    variant: str = ""
    priority: int = _UNSTATED
    privateuse1: str = ""
    yields_to: tuple[str, ...] = ()
    imports_deepspeed: bool = False
    variables: tuple[Variable, ...] = ()
    version: str = field(default="", compare=False)

    def __post_init__(self) -> None:
        # Otherwise the mistake would become visible only during the selection, for all users.
        if not (self.key and isinstance(self.key, str)):
            raise TypeError(f"a vendor needs a key: {self.key!r}")
        known = next((device for device in known_devices(self.key) if device.variant == self.variant), None)
        for name in _FROM_TABLE:
            if getattr(self, name) in ("", (), _UNSTATED):
                if known is None and name in _REQUIRED:
                    raise TypeError(f"the vendor {self.label!r} needs {name}: no table has this key")
                object.__setattr__(self, name, getattr(known, name, getattr(self, name)))
        for each in fields(self):
            value, kind = getattr(self, each.name), _KINDS.get(str(each.type), tuple)
            item = Variable if each.name == "variables" else str
            parts = value if isinstance(value, tuple) else ()
            if type(value) is not kind or not all(isinstance(part, item) for part in parts):
                raise TypeError(
                    f"{each.name} of the vendor {self.key!r} has to be {each.type}, not {value!r}"
                )

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
        """Return the advice for installing the runtime for the installed torch; empty if the record has none."""
        torch = distribution_version("torch")
        version = torch or "<its version>"
        advice = self.install.replace("{torch}", version).replace("{release}", version.partition("+")[0])
        return f"install torch; then {advice}" if advice and not torch else advice

    def _probe(self) -> Probe:
        probe: Probe = resolve(self.probe)
        return probe


_ASSIGNED = re.compile(r"""^(\w+)\s*(?::[^=\n]+)?=\s*["']([^"'\n]*)["']""", re.MULTILINE)


def declaring_package(point: importlib.metadata.EntryPoint) -> tuple[str, str]:
    """Return name and version of the package that declares an entry point."""
    dist = point.dist
    return (dist.name, dist.version) if dist is not None else (point.value.partition(".")[0], "")


def resolve(name: str) -> Any:
    """Return the object of a dotted name, imported; raises what the import of its module raises.

    pkgutil takes a module that cannot be imported for an attribute that its package lacks.
    """
    try:
        return pkgutil.resolve_name(name)
    except AttributeError as error:
        try:
            importlib.import_module(name.partition(":")[0])
        except ModuleNotFoundError as missing:
            if not f"{name}.".startswith(f"{missing.name}."):
                raise
        raise error from None


def module_exists(name: str) -> bool:
    """Return whether a top-level module can be found. Does not import it."""
    try:
        return importlib.util.find_spec(name.partition(".")[0]) is not None
    except (ImportError, ValueError, AttributeError):
        # ValueError: a module without a spec was put into sys.modules. It can be imported.
        return name in sys.modules


def deepspeed_folder() -> Path | None:
    """Return the folder of the installed deepspeed, None if it is not installed. Does not import it."""
    if "deepspeed" in sys.modules:
        spec = getattr(sys.modules["deepspeed"], "__spec__", None)
    else:
        # Not importlib.util.find_spec, which would have our own finder register the hooks.
        finders = (finder for finder in sys.meta_path if finder is not activate.DeepSpeedImportFinder)
        spec = next(filter(None, map(_finds_deepspeed, finders)), None)
    return None if spec is None or spec.origin is None else Path(spec.origin).parent


def _finds_deepspeed(finder: Any) -> ModuleSpec | None:
    find = getattr(finder, "find_spec", None)
    found: ModuleSpec | None = find("deepspeed", None) if find else None
    return found


def in_range(version: str, specifier: str) -> bool:
    """Return whether a version is in a range such as `>=2.1,<2.15`; pre-releases and local versions count."""
    try:
        return SpecifierSet(specifier).contains(Version(version).public, prereleases=True)
    except InvalidVersion:
        return False


def device_files(patterns: Iterable[str]) -> list[Path]:
    """Return the device files that match glob patterns relative to the root (`dev/davinci[0-9]*`), sorted."""
    root = system_root()
    return sorted(file for pattern in patterns for file in root.glob(pattern))


#: Ends the sentence about device files that exist and cannot be opened.
NO_PERMISSION = "but this user may not open it"
#: Number of patterns that the sentence lists.
_NAMED = 3


def found_devices(patterns: Sequence[str], pci_vendor: str = "") -> tuple[bool, str]:
    """Return whether a device file exists, and a sentence that names it, or the glob patterns.

    pci_vendor: of this device, such as `0x8086`, for files that devices of several makers have. /sys names the maker.
    """
    files = device_files(patterns)
    ours = [file for file in files if pci_vendor in ("", _maker(file)) or not _maker(file)]
    usable = [file for file in ours if os.access(file, os.R_OK | os.W_OK)]
    if ours:
        return True, f"{usable[0]} exists" if usable else f"{ours[0]} exists, {NO_PERMISSION}"
    more = [f"{len(patterns) - _NAMED} more"] if len(patterns) > _NAMED else []
    others = f"; {files[0]} is of PCI vendor {_maker(files[0])}, not {pci_vendor}" if files else ""
    return False, f"no device file {' or '.join([*patterns[:_NAMED], *more])}{others}"


def _maker(file: Path) -> str:
    """Return the PCI vendor of a device file from /sys; empty if unknown."""
    found = system_root().glob(f"sys/class/*/{file.name}/device/vendor")
    return next((text_of(vendor).strip() for vendor in found), "")


def runtime_evidence(
    runtime: str,
    specifier: str,
    files: Sequence[str],
    *notes: str,
    distribution: str = "",
    pci_vendor: str = "",
    built_for: str = "",
) -> Evidence:
    """Return the evidence for a device whose runtime is a distribution; imports nothing.

    runtime:      module of the runtime (`torch_npu`).
    specifier:    range of the releases that were tested; others are used with a warning.
    files:        glob patterns of its device files, relative to the root.
    notes:        additional sentences for the reason.
    distribution: name of the distribution, if it is not that of the module.
    pci_vendor:   as in `found_devices`.
    built_for:    pattern of a version that names its torch, with groups for major and minor. A release for another
                  torch is imported only if there is a device file: that import fails, and the run ends.
    """
    name = distribution or runtime
    version = distribution_version(name)
    present, found = found_devices(files, pci_vendor)
    if version is None:
        return Evidence(False, present, f"{name} is not installed" + (f"; {found}" if present else ""))
    built, torch = re.search(built_for, version), distribution_version("torch") or ""
    wanted = ".".join(str(int(part)) for part in (built.groups() if built else ()))
    if wanted and not in_range(torch, f"=={wanted}.*"):
        text = f"{name} {version} is built for torch {wanted}; this is torch {torch}"
        return Evidence(present, present, f"{text}; {found}")
    untested = "" if in_range(version, specifier) else f"{name} {version} was not tested; {specifier} was"
    reason = "; ".join((untested or f"{name} {version}", *notes, found))
    return Evidence(True, present or None, reason, untested)


def lacks_library(module: str, pattern: str) -> bool:
    """Return whether a package has a folder `lib` in which no file matches the pattern. Does not import it."""
    imported = sys.modules.get(module)
    spec = importlib.util.find_spec(module) if imported is None else imported.__spec__
    folders = [Path(place, "lib") for place in (spec and spec.submodule_search_locations) or ()]
    return any(map(Path.is_dir, folders)) and not any(next(folder.glob(pattern), None) for folder in folders)


def torch_build(attribute: str) -> str | None:
    """Return a field of `torch.version` (`cuda`, `hip`, `xpu`), from the file if torch is not imported.

    A recorded machine (ACCEL_SYSROOT) may have its own torch/version.py.
    """
    recorded = system_root() / "torch" / "version.py"
    if recorded.is_file():
        return _texts_in(recorded).get(attribute)
    torch = sys.modules.get("torch")
    if torch is not None:
        value = getattr(getattr(torch, "version", None), attribute, None)
        return None if value is None else str(value)
    spec = importlib.util.find_spec("torch")
    if spec is None or spec.origin is None:
        return None
    return _texts_in(Path(spec.origin).with_name("version.py")).get(attribute)


def _texts_in(version_file: Path) -> dict[str, str]:
    """Return the texts that are assigned in a `version.py`: `cuda: Optional[str] = '12.4'`."""
    try:
        text = version_file.read_text(encoding="utf-8")
    except OSError:
        return {}
    return dict(_ASSIGNED.findall(text))


class Collectives(NamedTuple):
    """A backend name for `torch.distributed.init_process_group`, and the reason for it."""

    backend: str
    reason: str


@dataclass(frozen=True)
class Bindings:
    """A package whose import registers a backend of torch.distributed.

    module:       name of the module.
    distribution: name of the distribution, for its version.
    backend:      name of the backend that it registers.
    device:       torch device type that the backend has to support.
    """

    module: str
    distribution: str
    backend: str
    device: str

    def fault(self) -> str | None:
        """Return why the backend cannot be used; None if it can. Does not raise.

        The first call imports the package; the result is cached.
        """
        return _fault(self)

    def or_else(self, otherwise: str) -> Collectives:
        """Return this backend if it can be used, else the other one with the reason."""
        fault = self.fault()
        if fault is None:
            return Collectives(self.backend, f"{self.module} is installed and serves this torch")
        return Collectives(otherwise, fault)


@functools.cache
def _fault(bindings: Bindings) -> str | None:
    module = bindings.module
    try:
        if importlib.util.find_spec(module) is None:
            return f"{module} is not installed"
        # Checked before the import: native code built for another torch may end the process.
        if mismatch := _mismatch(module, distribution_version(bindings.distribution)):
            return mismatch
        imported = importlib.import_module(module)
        if mismatch := _mismatch(module, getattr(imported, "__version__", None)):
            return mismatch
    except (Exception, SystemExit) as error:
        return f"{module} fails to import: {type(error).__name__}: {error}"
    return _unregistered(bindings)


def _mismatch(module: str, version: str | None) -> str | None:
    if version is None:
        return None
    import torch

    try:
        same = Version(version).release[:2] == Version(torch.__version__).release[:2]
    except InvalidVersion as error:
        return f"{module} has no readable version: {error}"
    return None if same else f"{module} {version} is built for another torch than {torch.__version__}"


def _unregistered(bindings: Bindings) -> str | None:
    from torch import distributed

    name = bindings.backend
    if not (distributed.is_available() and distributed.is_backend_available(name)):
        return f"{bindings.module} is imported but registers no backend named {name}"
    devices = distributed.Backend.backend_capability.get(name, [bindings.device])
    if bindings.device not in devices:
        return f"{bindings.module} registers {name} for {', '.join(devices)}, not for {bindings.device}"
    return None
