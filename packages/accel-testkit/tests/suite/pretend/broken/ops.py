# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Ops: tables that name nothing, builders that raise or lie, arithmetic that is off."""

from __future__ import annotations

import itertools
import subprocess
from types import SimpleNamespace
from typing import Any

from accel_core.op_builder import OpBuilder, OpTable
from accel_core.vendor import Support, Trait
from accel_good.accelerator import GOOD_Accelerator
from accel_good.op_builder import TABLE, optimizers
from accel_good.traits import TRAITS

from broken import answers, breaks


def _with(**builders: str) -> type[GOOD_Accelerator]:
    """A class whose op table has these entries too."""

    class Changed(GOOD_Accelerator):
        def __init__(self) -> None:
            super().__init__()
            self._ops = OpTable(TABLE.package, {**TABLE, **builders})

    return Changed


class RaisingBuilder(optimizers.FusedAdamBuilder):
    def is_compatible(self, verbose: bool = False) -> bool:
        raise FileNotFoundError("/usr/local/good/version.txt")


class StartingBuilder(optimizers.FusedAdamBuilder):
    def is_compatible(self, verbose: bool = False) -> bool:
        return subprocess.run(["true"], check=False).returncode == 0


class UnsureBuilder(optimizers.FusedAdamBuilder):
    def is_compatible(self, verbose: bool = False) -> Any:
        return None


class IncompatibleBuilder(optimizers.FusedAdamBuilder):
    def compatibility(self) -> tuple[bool, str]:
        return False, "the compiler of the pretended device is not on PATH"


class NamelessBuilder(optimizers.FusedAdamBuilder):
    NAME = "cpu_adam"


class VarlessBuilder(optimizers.FusedAdamBuilder):
    BUILD_VAR = ""


class RenamedBuilder(optimizers.FusedAdamBuilder):
    """Has another name at each construction."""

    _count = itertools.count()

    def __init__(self, name: str | None = None) -> None:
        super().__init__(f"fused_adam_{next(self._count)}")


_RENAMED = {
    "RaisingBuilder": ("op_table.asking_for_compatibility_is_harmless",),
    "StartingBuilder": ("op_table.asking_for_compatibility_is_harmless",),
    "UnsureBuilder": ("op_table.asking_for_compatibility_is_harmless",),
    "IncompatibleBuilder": (),
    "NamelessBuilder": ("op_table.builders_tell_about_themselves",),
    "VarlessBuilder": ("op_table.builders_tell_about_themselves",),
    "RenamedBuilder": ("upstream_contract.op_report_lists_the_table",),
}
for _name, _fails in _RENAMED.items():
    breaks(*_fails, name=_name)(_with(FusedAdamBuilder=f"broken.ops:{_name}"))
breaks(name="TableNamesNoModule")(_with(FusedAdamBuilder="accel_good.op_builder.fused:FusedAdamBuilder"))


@breaks("op_table.missing_ops_have_reasons")
class MissingOpHasNoTrait(GOOD_Accelerator):
    def __init__(self) -> None:
        super().__init__()
        self._traits = {name: trait for name, trait in TRAITS.items() if name != "UtilsBuilder"}


@breaks()
class ServedOpIsDeclaredMissing(GOOD_Accelerator):
    def __init__(self) -> None:
        super().__init__()
        self._traits = {**TRAITS, "CPULionBuilder": Trait(Support.NOT_IMPLEMENTED, "it came with this release")}


answers({"create_op_builder": None})
answers({"build_extension": None}, "op_table.extensions_can_be_built")
answers({"op_builder_dir": "accel_good.ops"})


@breaks()
class MissingOpIsNone(GOOD_Accelerator):
    """As it was on cuda and hpu."""

    def create_op_builder(self, class_name: str) -> Any:
        return super().create_op_builder(class_name) if class_name in TABLE else None


@breaks()
class ClassAndInstanceDiffer(GOOD_Accelerator):
    def get_op_builder(self, class_name: str) -> Any:
        return OpBuilder

    def create_op_builder(self, class_name: str) -> Any:
        return super().get_op_builder(class_name)()


class LoadingBuilder(OpBuilder):
    """Stands for any op, and loads an empty module."""

    NAME = "deepspeed_not_implemented"

    def compatibility(self) -> tuple[bool, str]:
        return False, "nothing is here"

    def load(self, verbose: bool = True) -> Any:
        return SimpleNamespace()


@breaks("op_table.unknown_op_is_refused")
class UnknownOpLoads(GOOD_Accelerator):
    def get_op_builder(self, class_name: str) -> Any:
        return LoadingBuilder if class_name == "NoSuchOpBuilder" else super().get_op_builder(class_name)


def _uncorrected(*args: Any) -> None:
    """Adam without its bias correction."""
    optimizers.multi_tensor_adam(*args[:9], 0, *args[10:])


def _always_decoupled(*args: Any) -> None:
    optimizers.multi_tensor_adam(*args[:8], 1, *args[9:])


class UncorrectedBuilder(optimizers.FusedAdamBuilder):
    FUNCTIONS = {"multi_tensor_adam": _uncorrected}


class DecoupledBuilder(optimizers.FusedAdamBuilder):
    FUNCTIONS = {"multi_tensor_adam": _always_decoupled}


class StepsByTwoBuilder(optimizers.CPUAdamBuilder):
    FUNCTIONS = {
        **optimizers.CPUAdamBuilder.FUNCTIONS,
        "adam_update": lambda op, step, *args: optimizers._adam_update(op, step + 1, *args),
    }


class ForgetfulAdagradBuilder(optimizers.CPUAdagradBuilder):
    FUNCTIONS = {
        **optimizers.CPUAdagradBuilder.FUNCTIONS,
        "adagrad_update": lambda op, step, lr, eps, decay, param, grad, squares: optimizers._adagrad_update(
            op, step, lr, eps, decay, param, grad, squares.zero_()
        ),
    }


class SignlessLionBuilder(optimizers.CPULionBuilder):
    FUNCTIONS = {
        **optimizers.CPULionBuilder.FUNCTIONS,
        "lion_update": lambda op, step, lr, b1, b2, decay, *tensors: optimizers._lion_update(
            op, step, lr, b2, b1, decay, *tensors
        ),
    }


_STEPS = "op_numerics.optimizer_steps_are_right"
breaks(f"{_STEPS}[FusedAdam-AdamW]", f"{_STEPS}[FusedAdam-Adam]", name="AdamIsNotCorrected")(
    _with(FusedAdamBuilder="broken.ops:UncorrectedBuilder")
)
breaks(f"{_STEPS}[FusedAdam-Adam]", name="DecayIsAlwaysDecoupled")(
    _with(FusedAdamBuilder="broken.ops:DecoupledBuilder")
)
breaks(f"{_STEPS}[CPUAdam-AdamW]", f"{_STEPS}[CPUAdam-Adam]", name="AdamMiscounts")(
    _with(CPUAdamBuilder="broken.ops:StepsByTwoBuilder")
)
breaks(f"{_STEPS}[CPUAdagrad]", name="AdagradForgets")(
    _with(CPUAdagradBuilder="broken.ops:ForgetfulAdagradBuilder")
)
breaks(f"{_STEPS}[CPULion]", name="LionSwapsItsBetas")(_with(CPULionBuilder="broken.ops:SignlessLionBuilder"))
