# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Ops: tables that name nothing, builders that raise or lie, arithmetic that is off."""

from __future__ import annotations

import itertools
import subprocess
from types import SimpleNamespace
from typing import Any, ClassVar

from accel_good.accelerator import GOOD_Accelerator
from accel_good.op_builder import TABLE, optimizers
from accel_good.traits import TRAITS

from accel_core.op_builder import OpBuilder, OpTable
from accel_core.vendor import Support, Trait
from broken import answers, breaks, broken


def _with(**builders: str) -> type[GOOD_Accelerator]:
    """A class whose op table has these entries too."""

    class Changed(GOOD_Accelerator):
        def __init__(self) -> None:
            super().__init__()
            self.op_table = OpTable(TABLE.package, {**TABLE, **builders})

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


_STEPS = "op_numerics.optimizer_steps_are_right"
_ADAM = (f"{_STEPS}[FusedAdam-AdamW]", f"{_STEPS}[FusedAdam-Adam]")
_HARMLESS = "op_table.asking_for_compatibility_is_harmless"
_BUILDERS: dict[str, tuple[str, ...]] = {
    "RaisingBuilder": (_HARMLESS, *_ADAM),
    "StartingBuilder": (_HARMLESS,),
    "UnsureBuilder": (_HARMLESS, *_ADAM),
    "IncompatibleBuilder": _ADAM,
    "NamelessBuilder": ("op_table.builders_tell_about_themselves",),
    "VarlessBuilder": ("op_table.builders_tell_about_themselves",),
    "RenamedBuilder": ("identity.deepspeed_s_builders_are_this_device_s",),
}
for _name, _fails in _BUILDERS.items():
    breaks(*_fails, name=_name)(_with(FusedAdamBuilder=f"broken.ops:{_name}"))
#: DeepSpeed asks for every op when the accelerator is set, so none of these gets so far.
_SETTING = (
    _STEPS,
    "identity.deepspeed_s_builders_are_this_device_s",
    "identity.deepspeed_takes_it_for_its_accelerator",
    "identity.deepspeed_takes_it_for_its_accelerator",
    "identity.has_every_method_of_upstream",
    "identity.deepspeed_s_builders_are_this_device_s",
)
#: The checks that ask for the builders of all ops that are served.
_SERVED = (
    "package.sources_are_installed",
    "op_table.builders_tell_about_themselves",
    "op_table.every_op_has_a_builder",
    "op_table.served_ops_are_not_declared_missing",
)
breaks(
    *_SETTING,
    *_SERVED,
    _HARMLESS,
    "op_loading.builders_are_new",
    "op_table.missing_ops_have_reasons",
    "op_table.package_of_builders_can_be_imported",
    "op_table.subclass_has_the_ops_of_its_class",
    name="TableNamesNoModule",
)(_with(FusedAdamBuilder="accel_good.op_builder.fused:FusedAdamBuilder"))
answers(
    {"op_builder_dir": "accel_good.ops"},
    *_SETTING,
    *_SERVED,
    "op_table.package_of_builders_can_be_imported",
)
# A package that can be imported, of other builders.
broken(
    "PackageOfBuildersIsAnother",
    "op_table.package_of_builders_can_be_imported",
    op_builder_dir=lambda self: "accel_ops.op_builder",
)


@breaks("op_table.subclass_has_the_ops_of_its_class")
class PackageIsThatOfSelf(GOOD_Accelerator):
    """Right for its own class, which is where the builders are."""

    def op_builder_dir(self) -> str:
        own = type(self) is PackageIsThatOfSelf
        return super().op_builder_dir() if own else f"{type(self).__module__}.op_builder"


@breaks(
    "op_table.missing_ops_have_reasons op_file_io.functions_without_a_handle_transfer",
    "op_file_io.handle_tells_what_it_was_given op_file_io.locked_tensors_can_be_transferred",
    "op_file_io.reads_in_flight_each_fill_their_tensor op_file_io.requests_that_fail_say_so",
    "op_file_io.writes_leave_the_rest_of_a_file",
)
class MissingOpHasNoTrait(GOOD_Accelerator):
    def __init__(self) -> None:
        super().__init__()
        self.traits = {name: trait for name, trait in TRAITS.items() if name != "AsyncIOBuilder"}


@breaks("op_table.served_ops_are_not_declared_missing")
class ServedOpIsDeclaredMissing(GOOD_Accelerator):
    def __init__(self) -> None:
        super().__init__()
        self.traits = {
            **TRAITS,
            "CPULionBuilder": Trait(Support.NOT_IMPLEMENTED, "it came with this release"),
        }


answers(
    {"create_op_builder": None},
    _STEPS,
    _HARMLESS,
    "op_loading.builders_are_new",
    "op_table.every_op_has_a_builder",
    "op_table.missing_ops_have_reasons",
    "op_table.unknown_op_is_refused",
    "identity.deepspeed_s_builders_are_this_device_s",
)
answers({"build_extension": None}, "op_loading.extension_command_takes_options")
# As it was on cuda and hpu.
broken(
    "MissingOpIsNone",
    "op_table.asking_for_compatibility_is_harmless op_loading.builders_are_new",
    "op_table.every_op_has_a_builder op_table.missing_ops_have_reasons op_table.unknown_op_is_refused",
    "identity.deepspeed_s_builders_are_this_device_s",
    create_op_builder=lambda self, class_name: (
        GOOD_Accelerator.create_op_builder(self, class_name) if class_name in TABLE else None
    ),
)
broken(
    "ClassAndInstanceDiffer",
    "op_numerics.optimizer_steps_are_right op_loading.builders_are_new",
    "identity.deepspeed_s_builders_are_this_device_s",
    get_op_builder=lambda self, class_name: OpBuilder,
    create_op_builder=lambda self, class_name: GOOD_Accelerator.get_op_builder(self, class_name)(),
)


class LoadingBuilder(OpBuilder):
    """Stands for any op, and loads an empty module."""

    NAME = "deepspeed_not_implemented"

    def compatibility(self) -> tuple[bool, str]:
        return False, "nothing is here"

    def load(self, verbose: bool = True) -> Any:
        return SimpleNamespace()


broken(
    "UnknownOpLoads",
    "op_table.unknown_op_is_refused",
    get_op_builder=lambda self, class_name: (
        LoadingBuilder
        if class_name == "NoSuchOpBuilder"
        else GOOD_Accelerator.get_op_builder(self, class_name)
    ),
)


def _uncorrected(*args: Any) -> None:
    """Adam without its bias correction."""
    optimizers.multi_tensor_adam(*args[:9], 0, *args[10:])


def _always_decoupled(*args: Any) -> None:
    optimizers.multi_tensor_adam(*args[:8], 1, *args[9:])


class UncorrectedBuilder(optimizers.FusedAdamBuilder):
    FUNCTIONS: ClassVar[dict[str, Any]] = {"multi_tensor_adam": _uncorrected}


class DecoupledBuilder(optimizers.FusedAdamBuilder):
    FUNCTIONS: ClassVar[dict[str, Any]] = {"multi_tensor_adam": _always_decoupled}


class StepsByTwoBuilder(optimizers.CPUAdamBuilder):
    FUNCTIONS: ClassVar[dict[str, Any]] = {
        **optimizers.CPUAdamBuilder.FUNCTIONS,
        "adam_update": lambda op, step, *args: optimizers._adam_update(op, step + 1, *args),
    }


class ForgetfulAdagradBuilder(optimizers.CPUAdagradBuilder):
    FUNCTIONS: ClassVar[dict[str, Any]] = {
        **optimizers.CPUAdagradBuilder.FUNCTIONS,
        "adagrad_update": lambda op, step, lr, eps, decay, param, grad, squares: optimizers._adagrad_update(
            op, step, lr, eps, decay, param, grad, squares.zero_()
        ),
    }


class SignlessLionBuilder(optimizers.CPULionBuilder):
    FUNCTIONS: ClassVar[dict[str, Any]] = {
        **optimizers.CPULionBuilder.FUNCTIONS,
        "lion_update": lambda op, step, lr, b1, b2, decay, *tensors: optimizers._lion_update(
            op, step, lr, b2, b1, decay, *tensors
        ),
    }


breaks(*_ADAM, name="AdamIsNotCorrected")(_with(FusedAdamBuilder="broken.ops:UncorrectedBuilder"))
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
