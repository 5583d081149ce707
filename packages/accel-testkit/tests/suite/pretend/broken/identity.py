# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Identity and the upstream contract: missing methods, other call shapes, traits that lie."""

from __future__ import annotations

from typing import Any

from accel_good.accelerator import GOOD_Accelerator
from accel_good.traits import TRAITS

from accel_core.vendor import Support, Trait
from broken import EVERYTHING, SHAPES, breaks, broken


@breaks(EVERYTHING)
class ConstructorFails(GOOD_Accelerator):
    def __init__(self) -> None:
        raise OSError("libgood.so: cannot open shared object file")


@breaks(EVERYTHING, "identity.is_an_accelerator")
class NotAnAccelerator:
    """Has the names, and derives from nothing."""

    def __getattr__(self, name: str) -> Any:
        return getattr(GOOD_Accelerator(), name)


@breaks("identity.can_be_constructed_again answers.each_compile_backend_can_be_set")
class Singleton(GOOD_Accelerator):
    _only: Any = None

    def __new__(cls) -> Any:
        cls._only = cls._only or super().__new__(cls)
        return cls._only


def _absent(name: str) -> property:
    def get(self: Any) -> Any:
        raise AttributeError(name)

    return property(get)


@breaks(
    *SHAPES,
    "identity.has_every_method memory.each_device_has_its_figures[memory_reserved]",
    "answers.answer_has_its_type[memory_cached] answers.answer_has_its_type[memory_reserved]",
    "memory.figures_are_in_order memory.figure_follows_tensors[memory_reserved]",
    "memory.asking_leaves_the_cache",
)
class MethodIsMissing(GOOD_Accelerator):
    memory_reserved = _absent("memory_reserved")


broken(
    "OptionalMethodIsMissing",
    *SHAPES,
    "identity.has_every_method pinned_memory.alignment_is_a_number_of_bytes",
    pin_memory_alignment=_absent("pin_memory_alignment"),
)
# As it was on cpu and mps.
broken(
    "ArgumentHasAnotherName",
    *SHAPES,
    create_op_builder=lambda self, op_name: GOOD_Accelerator.create_op_builder(self, op_name),
)
broken("ArgumentIsMissing", *SHAPES, memory_stats=lambda self: GOOD_Accelerator.memory_stats(self))
broken(
    "NameIsNotTorchs",
    "device.answer_is_of_the_current_device device.current_device_name_is_that_of_the_current_device",
    "device.device_with_an_index_keeps_it device.device_without_an_index_is_the_type",
    "identity.name_is_the_torch_device_type op_table.unknown_op_is_refused",
    "identity.deepspeed_takes_it_for_its_accelerator random.seeding_the_device_leaves_the_host_alone",
    device_name=lambda self, device_index=None: "good" if device_index is None else f"good:{device_index}",
)


@breaks("identity.traits_have_reasons")
class TraitHasNoReason(GOOD_Accelerator):
    def __init__(self) -> None:
        super().__init__()
        self.traits = {**TRAITS, "fp8": Trait(Support.UNSUPPORTED, "")}


@breaks("traits.declared_feature_is_missing[streams]")
class TraitLies(GOOD_Accelerator):
    """What it declares missing is there: its checks are skipped, and this one fails."""

    def __init__(self) -> None:
        super().__init__()
        self.traits = {**TRAITS, "streams": Trait(Support.UNSUPPORTED, "nobody has time to test them")}


@breaks("identity.deepspeed_takes_it_for_its_accelerator")
class AttributesAreNotSet(GOOD_Accelerator):
    def __init__(self) -> None:
        super().__init__()
        self._communication_backend_name = None  # type: ignore[assignment]

    def communication_backend_name(self) -> str:
        return "gloo"
