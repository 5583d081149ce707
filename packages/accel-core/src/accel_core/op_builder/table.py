# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The op table of a vendor: upstream's builder name -> dotted name of the class, imported at first use."""

from __future__ import annotations

import pkgutil
from collections.abc import Iterator, Mapping
from typing import Any

from accel_core.errors import InvalidOpTable
from accel_core.op_builder.not_implemented import NotImplementedBuilder
from accel_core.vendor import Trait


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

        Raises InvalidOpTable if the class cannot be imported.
        """
        if class_name not in self._builders:
            return self._not_implemented(class_name, device, traits)
        target = self._builders[class_name]
        try:
            builder: type[Any] = pkgutil.resolve_name(target)
        except (ImportError, AttributeError, ValueError) as error:
            raise InvalidOpTable(
                what=f"the builder {class_name} of {device} cannot be imported",
                found=f"{target}: {type(error).__name__}: {error}",
                expected="an op builder class under that dotted name",
                do=f"reinstall the vendor package that provides {self.package}",
            ) from error
        return builder

    def _not_implemented(
        self, name: str, device: str, traits: Mapping[str, Trait]
    ) -> type[NotImplementedBuilder]:
        trait = traits.get(name)
        why = f"{trait.support.value}: {trait.reason}" if trait else NotImplementedBuilder.why
        return NotImplementedBuilder.of(name, device, why, tuple(sorted(self._builders)))
