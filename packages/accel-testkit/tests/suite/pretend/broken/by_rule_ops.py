# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""What the checks of ops notice: forgotten arguments, wrong layouts, caches that are shared or never reset."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any

import torch
from accel_good.accelerator import GOOD_Accelerator
from setuptools.command.build_ext import build_ext

from broken import answers, breaks

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


def _first_rate(op: Any, chunk: int, flag: Any, lists: Any, lr: float, *rest: Any) -> None:
    op.first_rate = getattr(op, "first_rate", lr)
    op.multi_tensor_adam(chunk, flag, lists, op.first_rate, *rest)


register_calls(
    "FusedAdamBuilder", "AdamKeepsTheFirstRate", f"{_STEP}[FusedAdamBuilder-Adam]", f"{_SHARED}[FusedAdamBuilder]",
    multi_tensor_adam=_first_rate,
)  # fmt: skip
register_calls(
    "FusedLambBuilder", "LambTrustsEveryUpdate", _STEP, _SHARED, "op_steps.lamb_returns_its_ratio_and_fills_its_copy",
    "op_steps.every_form_is_stepped[norm of 1-FusedLambBuilder]",
    lamb=lambda op, *a: op.lamb(*a[:8], 1.0, 1.0, *a[10:]),
)  # fmt: skip
register_calls(
    "FusedLambBuilder", "LambReturnsNothing", "op_steps.lamb_returns_its_ratio_and_fills_its_copy",
    lamb=lambda op, *arguments: (op.lamb(*arguments), None)[1],
)  # fmt: skip
register_calls(
    "FusedLionBuilder", "StridesAreForgotten", "op_steps.every_form_is_stepped[gaps-FusedLionBuilder]",
    "op_steps.every_form_is_stepped[channels last-FusedLionBuilder]",
    multi_tensor_lion=lambda op, chunk, flag, lists, *rest: op.multi_tensor_lion(
        chunk, flag, [[tensor.contiguous() for tensor in tensors] for tensors in lists], *rest
    ),
)  # fmt: skip
register_calls(
    "CPUAdamBuilder", "OneModeForAllAdams", f"{_SHARED}[CPUAdamBuilder]",
    create_adam=lambda op, number, *a: [op.create_adam(n, *a) for n in range(number - 1, number + 2)],
)  # fmt: skip
register_calls(
    "CPUAdamBuilder", "RollbackDoesNothing", "op_host.adam_can_take_a_step_back",
    adam_rollback=lambda op, *arguments: 0,
)  # fmt: skip


_gone: set[int] = set()


def _destroyed(op: Any, number: int) -> None:
    if number in _gone:
        raise KeyError(number)
    _gone.add(number)


register_calls(
    "CPULionBuilder", "DestroyingTwiceFails", "op_host.optimizers_can_be_destroyed_twice[CPULionBuilder]",
    destroy_lion=_destroyed,
    create_lion=lambda op, number, *a: (_gone.discard(number), op.create_lion(number, *a)),
)  # fmt: skip
register_calls(
    "UtilsBuilder", "PartsAreCopies", "op_host.tensors_are_flattened",
    unflatten=lambda op, flat, tensors: [part.clone() for part in op.unflatten(flat, tensors)],
)  # fmt: skip


def _locked(op: Any) -> Any:
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
    "PinMemoryBuilder", "HandlesKnowTheirOwn", "op_host.locked_memory_is_locked_until_freed",
    "op_host.handles_share_their_memory", pin_handle=_locked,
)  # fmt: skip
register_calls(
    "InferenceBuilder", "CacheIsNeverReset", "op_attention.cache_can_be_reset",
    "op_inference_forms.what_there_is_not_is_refused",
    reset_cache=lambda op: None,
)  # fmt: skip
register_calls(
    "InferenceBuilder", "BatchIsRepeated", "op_attention.cache_can_be_repeated",
    repeat_kv_cache_fp32=lambda op, batch, times: [
        rows.unflatten(0, (batch, times)).transpose(0, 1).flatten(0, 1)
        for rows in op.repeat_kv_cache_fp32(batch, times)
    ],
)  # fmt: skip
register_calls(
    "InferenceBuilder", "WindowIsOneWider", "op_attention.attention_is_right[window-fp32]",
    "op_attention.attention_is_right[alibi, grouped heads, window-fp32]",
    softmax_context_fp32=lambda op, *a: op.softmax_context_fp32(*a[:10], a[10] + bool(a[10]), *a[11:]),
)  # fmt: skip
register_calls(
    "InferenceCoreBuilder", "BiasIsForgotten", "op_inference.functions_are_right[activations of the core-fp32]",
    "op_inference.functions_are_right[activations of the core-fp16]",
    "op_inference.functions_are_right[activations of the core-bf16]",
    bias_activation=lambda op, x, bias, kind: op.bias_activation(x, None, kind),
)  # fmt: skip
register_calls(
    "InferenceBuilder", "OffsetIsForgotten", "op_inference.functions_are_right[apply_rotary_pos_emb-fp32]",
    "op_inference.functions_are_right[apply_rotary_pos_emb-fp16]",
    "op_inference.functions_are_right[apply_rotary_pos_emb-bf16]",
    apply_rotary_pos_emb=lambda op, query, key, width, offset, *rest: op.apply_rotary_pos_emb(
        query, key, width, 0, *rest
    ),
)  # fmt: skip

_NORMS = [
    f"op_inference.functions_are_right[norms of the core-{dtype}]" for dtype in ("fp32", "fp16", "bf16")
]
register_calls(
    "InferenceCoreBuilder",
    "PostNormIsForgotten",
    *_NORMS,
    "op_norm_extremes.norms_may_be_written_over_their_inputs",
    post_layer_norm=lambda op, *tensors: None,
)
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
    "op_attention.two_ops_share_no_cache",
    "op_inference_forms.what_there_is_not_is_refused",
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
