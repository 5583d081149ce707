# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Base classes of op builders and of loaded ops, the builder of an op that a device does not have, and the op table."""

from __future__ import annotations

import pkgutil
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from enum import Enum
from functools import cache
from typing import Any, ClassVar

from accel_core.errors import FunctionNotImplemented, InvalidVendor, OpNotImplemented
from accel_core.vendor import Trait

__all__ = ["Implementation", "NotImplementedBuilder", "OpBuilder", "OpFunctions", "OpTable"]


class Implementation(Enum):
    """Implementations of ops. A builder's `implementations` has those that `load` tries, in order."""

    IMAGE = "image"
    SPIRV = "spir-v"
    COMPILED = "compiled here"
    TORCH_FUSED = "torch fused"
    VENDOR_OP = "vendor's op"
    HOST = "host library"
    UPSTREAM = "DeepSpeed's source"
    PLAIN = "plain torch"

    @property
    def meaning(self) -> str:
        """A sentence for the documentation."""
        return _MEANINGS[self]


_MEANINGS = {
    Implementation.IMAGE: "our kernels, as machine code for this device in the wheel",
    Implementation.SPIRV: "our kernels, as SPIR-V in the wheel",
    Implementation.COMPILED: "our source in the wheel, compiled once on this machine",
    Implementation.TORCH_FUSED: "torch's own fused operator",
    Implementation.VENDOR_OP: "operators of the vendor's runtime (`torch.ops.npu.…`), for the functions that have one",
    Implementation.HOST: "a library that runs on the host: compiled in the wheel, or of the system",
    Implementation.UPSTREAM: "the source in the installed DeepSpeed, compiled on this machine by the device's compiler",
    Implementation.PLAIN: "torch's operators",
}


class OpBuilder(ABC):
    """Builder of one op: `load` returns an object with upstream's functions.

    `NAME` is upstream's name of the op (`cpu_adam`), `BUILD_VAR` its build switch. `IMPLEMENTATIONS` is what `load`
    tries, in order; a class with its own `load` states it. `is_compatible` starts no process, compiles nothing
    and does not raise; `reason` explains its result.
    """

    NAME: ClassVar[str]
    BUILD_VAR: ClassVar[str] = ""
    IMPLEMENTATIONS: ClassVar[tuple[Implementation, ...]] = ()

    def __init__(self, name: str | None = None) -> None:
        self.name = self.NAME if name is None else name
        self.error_log: str | None = None

    @property
    def reason(self) -> str:
        """Why the op can or cannot be loaded; after `load`, where it was loaded from. One sentence."""
        return self._decision()[1]

    @classmethod
    def implementations(cls) -> tuple[Implementation, ...]:
        """Return what `load` tries to compute the op with, in order, where the device and its runtime have it."""
        return cls.IMPLEMENTATIONS

    def is_compatible(self, verbose: bool = False) -> bool:
        """Return whether `load` will succeed on this machine."""
        return self._decision()[0]

    def _decision(self) -> tuple[bool, str]:
        try:
            return self.compatibility()
        except Exception as error:
            # An exception here would make `import deepspeed` fail.
            return False, f"the probe of {self.name} failed with {type(error).__name__}: {error}"

    @abstractmethod
    def compatibility(self) -> tuple[bool, str]:
        """Return whether the op can be loaded, and the reason. Must be cheap and start no process."""

    @abstractmethod
    def load(self, verbose: bool = True) -> Any:
        """Return an object with the op's functions; raises AccelError with the cause if it cannot be loaded."""

    def prepare(self) -> None:
        """Do what `load` leaves to the op's first use; `accel ops build` calls it. Most builders leave nothing."""

    def absolute_name(self) -> str:
        """Return the dotted name under which DeepSpeed prints the op."""
        return f"{type(self).__module__}.{self.name}"

    def sources(self) -> list[str]:
        """Return the native source files; empty if the op is not compiled."""
        return []


_TYPES = ("fp32", "fp16", "bf16")


class OpFunctions:
    """An op whose methods have upstream's names.

    OP:    upstream's name of the op.
    TYPED: functions that upstream has once per float type, such as `mlp_gemm_fp16`; here one method is for all.
    Other names raise AttributeError, for which DeepSpeed falls back to its own torch code.
    """

    OP: ClassVar[str]
    TYPED: ClassVar[frozenset[str]] = frozenset()

    def __getattr__(self, name: str) -> Any:
        base, _, dtype = name.rpartition("_")
        if dtype in _TYPES and base in self.TYPED:
            return getattr(self, base)
        raise FunctionNotImplemented(
            f"{self.OP} has no function {name}: a call on an accelerator that implements only part of "
            f"this op; expected one of {', '.join(self._names())}",
            do="disable the feature that needs it, or let DeepSpeed use its own torch code for it",
        )

    def _names(self) -> list[str]:
        return sorted(name for name in dir(type(self)) if name[0] != "_" and not name.isupper())


class NotImplementedBuilder(OpBuilder):
    """A builder that is never compatible; `load` raises the reason, with the ops that the device has.

    `NAME` is the key with which DeepSpeed 0.18 looks up such builders.
    """

    NAME = "deepspeed_not_implemented"
    BUILD_VAR = "DS_BUILD_NOT_IMPLEMENTED"

    op: ClassVar[str] = "this op"
    device: ClassVar[str] = "this accelerator"
    why: ClassVar[str] = "nobody has written it for this device"
    available: ClassVar[tuple[str, ...]] = ()

    @classmethod
    @cache
    def of(cls, op: str, device: str, why: str, available: tuple[str, ...]) -> type[NotImplementedBuilder]:
        """Return the class for one op of one device: the same for the same arguments."""
        if op == cls.__name__:
            return cls  # DeepSpeed looks up this name, for `isinstance(builder, …)`
        facts = {"op": op, "device": device, "why": why, "available": available}
        return type(cls.__name__, (cls,), {**facts, "__module__": cls.__module__})

    def compatibility(self) -> tuple[bool, str]:
        """Return False, and the reason."""
        return False, f"{self.op} on {self.device}: {self.why}"

    def load(self, verbose: bool = True) -> Any:
        """Raise OpNotImplemented."""
        raise OpNotImplemented(
            f"{self.op} cannot be loaded on {self.device}: {self.why}; expected one of the ops there are: "
            f"{', '.join(self.available) or 'none'}",
            do=f"turn the feature that needs {self.op} off in the DeepSpeed config, or use another accelerator",
        )


class OpTable(Mapping[str, str]):
    """A read-only mapping `{"CPUAdamBuilder": "accel_cpu.op_builder.cpu_adam:CPUAdamBuilder"}`.

    package: what `op_builder_dir()` returns. DeepSpeed imports every module of that package and takes the names that
        end in Builder; in that of `accel_ops.table` they are those of the current accelerator.
    """

    def __init__(self, package: str, builders: Mapping[str, str]) -> None:
        self.package = package
        self._builders = dict(builders)

    def __getitem__(self, class_name: str) -> str:
        return self._builders[class_name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._builders)

    def __len__(self) -> int:
        return len(self._builders)

    def builder(self, class_name: str, device: str, traits: Mapping[str, Trait]) -> type[Any]:
        """Return the class for a builder name; a NotImplementedBuilder with the trait's reason if it is missing.

        Raises InvalidVendor if the class cannot be imported.
        """
        if class_name not in self._builders:
            trait = traits.get(class_name)
            why = f"{trait.support.value}: {trait.reason}" if trait else NotImplementedBuilder.why
            return NotImplementedBuilder.of(class_name, device, why, tuple(sorted(self._builders)))
        target = self._builders[class_name]
        try:
            builder: type[Any] = pkgutil.resolve_name(target)
        except (ImportError, AttributeError, ValueError) as error:
            raise InvalidVendor(
                f"the builder {class_name} of {device} cannot be imported: {target}: {type(error).__name__}: "
                f"{error}",
                do=f"reinstall the vendor package that provides {self.package}",
            ) from error
        return builder
