# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Ops: tables that name nothing, builders that raise or lie, forgotten arguments, silent failures."""

import subprocess
from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any, ClassVar

import torch
from accel_good.accelerator import GOOD_Accelerator
from accel_good.op_builder import TABLE, optimizers
from accel_good.traits import TRAITS
from setuptools.command.build_ext import build_ext

from accel_core.op_builder import OpTable
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


class NamelessBuilder(optimizers.FusedAdamBuilder):
    NAME = "cpu_adam"


_STEPS = "op_numerics.optimizer_steps_are_right"
_ADAM = (f"{_STEPS}[FusedAdam-AdamW]", f"{_STEPS}[FusedAdam-Adam]")
_HARMLESS = "op_table.asking_for_compatibility_is_harmless"
_BUILDERS: dict[str, tuple[str, ...]] = {
    "RaisingBuilder": (_HARMLESS, *_ADAM),
    "StartingBuilder": (_HARMLESS,),
    "NamelessBuilder": ("op_table.builders_tell_about_themselves",),
}
for _name, _fails in _BUILDERS.items():
    breaks(*_fails, name=_name)(_with(FusedAdamBuilder=f"broken.ops:{_name}"))
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


@breaks("op_table.missing_ops_have_reasons")
class MissingOpHasNoTrait(GOOD_Accelerator):
    def __init__(self) -> None:
        super().__init__()
        self.traits = {name: trait for name, trait in TRAITS.items() if name != "AsyncIOBuilder"}


# As it was on cuda and hpu.
broken(
    "MissingOpIsNone",
    "op_table.asking_for_compatibility_is_harmless op_loading.builders_are_new",
    "op_table.missing_ops_have_reasons op_table.unknown_op_is_refused",
    "identity.deepspeed_s_builders_are_this_device_s",
    create_op_builder=lambda self, class_name: (
        GOOD_Accelerator.create_op_builder(self, class_name) if class_name in TABLE else None
    ),
)


def _uncorrected(*args: Any) -> None:
    """Adam without its bias correction."""
    optimizers.multi_tensor_adam(*args[:9], 0, *args[10:])


class UncorrectedBuilder(optimizers.FusedAdamBuilder):
    FUNCTIONS: ClassVar[dict[str, Any]] = {"multi_tensor_adam": _uncorrected}


breaks(*_ADAM, name="AdamIsNotCorrected")(_with(FusedAdamBuilder="broken.ops:UncorrectedBuilder"))


# --- what the checks of ops notice: forgotten arguments, wrong layouts, caches that are shared or never reset

_STEP = "op_steps.every_step_is_right"
_SHARED = "op_steps.optimizers_do_not_share_anything"


def with_builder(builder: str, **changes: Any) -> type[GOOD_Accelerator]:
    """A class in which one builder has other attributes."""

    class Changed(GOOD_Accelerator):
        _changed: type | None = None

        def get_op_builder(self, class_name: str) -> Any:
            cls = super().get_op_builder(class_name)
            if class_name != builder:
                return cls
            kind = type(self)
            kind._changed = kind._changed or type(builder, (cls,), {**changes, "__module__": cls.__module__})
            return kind._changed

    return Changed


class _Changed:
    """A loaded op with some functions replaced; each gets the true op first."""

    def __init__(self, op: Any, functions: dict[str, Callable[..., Any]]) -> None:
        self.op = op
        self.__dict__.update({name: partial(function, op) for name, function in functions.items()})

    def __getattr__(self, name: str) -> Any:
        return getattr(self.op, name)


def register_calls(builder: str, name: str, *fails: str, **functions: Callable[..., Any]) -> None:
    """Register a variant in which functions of a loaded op are replaced."""

    def load(self: Any, verbose: bool = True) -> Any:
        return _Changed(super(type(self), self).load(verbose), functions)

    breaks(*fails, name=name)(with_builder(builder, load=load))


def replaces(builder: str, function: str, *fails: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Register a variant of the decorated function's name, in which it is a function of a loaded op."""

    def register(replacement: Callable[..., Any]) -> Callable[..., Any]:
        register_calls(builder, replacement.__name__, *fails, **{function: replacement})
        return replacement

    return register


@replaces(
    "FusedAdamBuilder", "multi_tensor_adam", f"{_STEP}[FusedAdamBuilder-Adam] {_SHARED}[FusedAdamBuilder]"
)
def AdamKeepsTheFirstRate(op: Any, chunk: int, flag: Any, lists: Any, lr: float, *rest: Any) -> None:
    op.first_rate = getattr(op, "first_rate", lr)
    op.multi_tensor_adam(chunk, flag, lists, op.first_rate, *rest)


register_calls(
    "FusedLambBuilder",
    "LambReturnsNothing",
    "op_steps.lamb_returns_its_ratio_and_fills_its_copy",
    lamb=lambda op, *arguments: (op.lamb(*arguments), None)[1],
)
register_calls(
    "FusedLionBuilder",
    "StridesAreForgotten",
    "op_steps.every_form_is_stepped[gaps-FusedLionBuilder]",
    "op_steps.every_form_is_stepped[channels last-FusedLionBuilder]",
    multi_tensor_lion=lambda op, chunk, flag, lists, *rest: op.multi_tensor_lion(
        chunk, flag, [[tensor.contiguous() for tensor in tensors] for tensors in lists], *rest
    ),
)
register_calls(
    "CPUAdamBuilder",
    "RollbackDoesNothing",
    "op_host.adam_can_take_a_step_back",
    adam_rollback=lambda op, *arguments: 0,
)


_gone: set[int] = set()


def _destroyed(op: Any, number: int) -> None:
    if number in _gone:
        raise KeyError(number)
    _gone.add(number)


register_calls(
    "CPULionBuilder",
    "DestroyingTwiceFails",
    "op_host.optimizers_can_be_destroyed_twice[CPULionBuilder]",
    destroy_lion=_destroyed,
    create_lion=lambda op, number, *a: (_gone.discard(number), op.create_lion(number, *a)),
)
register_calls(
    "UtilsBuilder",
    "PartsAreCopies",
    "op_host.tensors_are_flattened",
    unflatten=lambda op, flat, tensors: [part.clone() for part in op.unflatten(flat, tensors)],
)


@replaces(
    "PinMemoryBuilder",
    "pin_handle",
    "op_host.locked_memory_is_locked_until_freed op_host.handles_share_their_memory",
)
def HandlesKnowTheirOwn(op: Any) -> Any:
    mine: list[int] = []
    handle = op.pin_handle()

    def new(size: int, example: torch.Tensor) -> torch.Tensor:
        block: torch.Tensor = handle.new_cpu_locked_tensor(size, example)
        mine.append(block.data_ptr())
        return block

    return SimpleNamespace(
        new_cpu_locked_tensor=new,
        free_cpu_locked_tensor=lambda tensor: tensor.data_ptr() in mine,
        free_cpu_locked_tensor_by_ptr=lambda address: address in mine,
        is_pinned=lambda tensor: tensor.data_ptr() in mine,
    )


register_calls(
    "InferenceBuilder",
    "CacheIsNeverReset",
    "op_attention.cache_can_be_reset op_inference_forms.what_there_is_not_is_refused",
    reset_cache=lambda op: None,
)
register_calls(
    "InferenceBuilder",
    "BatchIsRepeated",
    "op_attention.cache_can_be_repeated",
    repeat_kv_cache_fp32=lambda op, batch, times: [
        rows.unflatten(0, (batch, times)).transpose(0, 1).flatten(0, 1)
        for rows in op.repeat_kv_cache_fp32(batch, times)
    ],
)
register_calls(
    "InferenceBuilder",
    "WindowIsOneWider",
    "op_attention.attention_is_right[window-fp32]",
    "op_attention.attention_is_right[alibi, grouped heads, window-fp32]",
    softmax_context_fp32=lambda op, *a: op.softmax_context_fp32(*a[:10], a[10] + bool(a[10]), *a[11:]),
)

_NORMS = [
    f"op_inference.functions_are_right[norms of the core-{dtype}]" for dtype in ("fp32", "fp16", "bf16")
]
register_calls(
    "InferenceCoreBuilder",
    "PreNormIsForgotten",
    *_NORMS,
    "op_norm_extremes.residuals_may_be_written_over",
    pre_layer_norm=lambda op, *tensors: None,
)

_LOADED: dict[type, Any] = {}


def _load_once(self: Any, verbose: bool = True) -> Any:
    kind = type(self)
    _LOADED[kind] = _LOADED.get(kind) or super(kind, self).load(verbose)
    return _LOADED[kind]


breaks(
    "op_attention.two_ops_share_no_cache op_inference_forms.what_there_is_not_is_refused",
    name="LoadedOpsAreOne",
)(with_builder("InferenceBuilder", load=_load_once))
breaks("op_loading.compatible_op_loads[UtilsBuilder]", name="OpIsRefusedAndLoads")(
    with_builder("UtilsBuilder", compatibility=lambda self: (False, "it was never tried out"))
)
breaks("op_loading.a_probe_that_fails_is_a_reason[UtilsBuilder]", name="ProbesRaise")(
    with_builder("UtilsBuilder", is_compatible=lambda self, verbose=False: self.compatibility()[0])
)
breaks("op_loading.names_are_upstream_s", name="OpHasAnotherName")(
    with_builder("FusedLambBuilder", NAME="lamb")
)
answers({"build_extension": build_ext}, "op_loading.extension_command_takes_options")


@breaks("op_loading.builders_are_new")
class BuildersAreKept(GOOD_Accelerator):
    def create_op_builder(self, class_name: str) -> Any:
        kept = self.__dict__.setdefault("_kept", {})
        return kept.setdefault(class_name, super().create_op_builder(class_name))


# --- what the checks of the runtime's operators notice: one that has to be there, one tried for nothing, a blind trial

_OP = "rms_norm"
_library = torch.library.Library("accel_broken", "FRAGMENT")
_library.define(f"{_OP}(Tensor x, Tensor gamma, float epsilon) -> Tensor")


def _computed(x: torch.Tensor, gamma: torch.Tensor, epsilon: float) -> torch.Tensor:
    return (x.float() * (x.float().square().mean(-1, keepdim=True) + epsilon).rsqrt()).to(x.dtype) * gamma


_library.impl(_OP, _computed, "CompositeExplicitAutograd")


def _norm(output: torch.Tensor, x: torch.Tensor, gamma: torch.Tensor, epsilon: float) -> None:
    output.copy_(torch.ops.accel_broken.rms_norm(x, gamma, epsilon))


def _tried() -> bool:
    try:
        torch.ops.accel_broken.rms_norm(torch.ones(2, 4), torch.ones(4), 1e-3)
    except Exception:
        return False
    return True


def _over_it(self: Any, verbose: bool = True) -> Any:
    op = super(type(self), self).load(verbose)
    op.rms_norm = _norm
    return op


def _tried_only(self: Any, verbose: bool = True) -> Any:
    _tried()
    return super(type(self), self).load(verbose)


def _tried_blindly(self: Any, verbose: bool = True) -> Any:
    return _over_it(self, verbose) if _tried() else super(type(self), self).load(verbose)


def _told(self: Any) -> tuple[bool, str]:
    return True, f"plain torch, or {_OP}"


def _register(name: str, load: Any, *fails: str) -> None:
    kind = with_builder("InferenceCoreBuilder", load=load, compatibility=_told)
    breaks(*(f"op_runtime.{check}" for check in fails), name=name)(kind)


_register("OperatorHasToBeThere", _over_it, "op_serves_without_the_runtime_s[InferenceCoreBuilder]")
_register("OperatorIsTriedForNothing", _tried_only, "operator_that_works_is_used[InferenceCoreBuilder]")
_register("TrialIsBlind", _tried_blindly, "operator_that_is_wrong_is_not_used")
