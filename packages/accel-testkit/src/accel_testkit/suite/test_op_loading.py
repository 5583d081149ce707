# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Op loading: what is compatible loads, with upstream's functions; what is not says why."""

from __future__ import annotations

import importlib
import inspect
from types import SimpleNamespace
from typing import Any

import pytest

from accel_core.errors import AccelError
from accel_core.interface import DeepSpeedAccelerator
from accel_core.op_builder.names import UPSTREAM
from accel_testkit.suite import needs, ops
from accel_testkit.suite.expect import Holds, outcome
from accel_testkit.suite.inference_functions import CORE, TRANSFORMER
from accel_testkit.suite.op_steps import STEPS

pytestmark = pytest.mark.tier("device")

#: Upstream's functions of each op that DeepSpeed calls, by the class name of the builder.
FUNCTIONS: dict[str, tuple[str, ...]] = {
    **{name: (step.function,) for name, step in STEPS.items()},
    "CPUAdamBuilder": ("create_adam", "adam_update", "destroy_adam"),
    "CPUAdagradBuilder": ("create_adagrad", "adagrad_update", "destroy_adagrad"),
    "CPULionBuilder": ("create_lion", "lion_update", "destroy_lion"),
    "UtilsBuilder": ("flatten", "unflatten"),
    "PinMemoryBuilder": ("pin_handle",),
    "InferenceBuilder": TRANSFORMER,
    "InferenceCoreBuilder": CORE,
    "QuantizerBuilder": (
        "quantize", "dequantize", "dequantize_fp32", "dequantize_int4_to_half_experimental",
        "dequantize_int8_to_half_experimental", "swizzle_quant", "quantized_reduction",
    ),
    "EvoformerAttnBuilder": ("attention", "attention_bwd"),
    "FPQuantizerBuilder": ("quantize", "dequantize", "selective_dequantize", "get_scales"),
    "PackbitsBuilder": ("packbits", "unpackbits"),
    "RandomLTDBuilder": (
        "token_sort_", "token_gather", "token_scatter_", "mask_gather_bert", "mask_gather_gpt",
    ),
    "SpatialInferenceBuilder": ("nhwc_bias_add", "nhwc_bias_add_add", "nhwc_bias_add_bias_add"),
    "AsyncIOBuilder": ("aio_handle", "aio_read", "aio_write"),
}  # fmt: skip
#: Builders of releases before 0.19.
_FORMER = {"PackbitsBuilder": SimpleNamespace(NAME="pack_bits", BUILD_VAR="DS_BUILD_PACK_BITS")}


@pytest.mark.parametrize("name", needs.ops(UPSTREAM))
def test_compatible_op_loads(accelerator: DeepSpeedAccelerator, name: str) -> None:
    """`is_compatible()` and `load()` agree: the op loads, twice and from two builders, or both say no."""
    builder = accelerator.create_op_builder(name)
    compatible, holds = builder.is_compatible(), Holds()
    for each in (builder, builder, accelerator.create_op_builder(name)):
        op = outcome(each.load)
        loads = not isinstance(op, str)  # which is that of an exception
        holds[f"is_compatible() is {compatible}, and load() gives {op!r:.500}"] = loads == compatible
        for function in FUNCTIONS.get(name, ()) if loads else ():
            holds[f"it has {function}"] = _has(op, function)
    holds.equal("is_compatible() after load()", builder.is_compatible(), compatible)
    holds.expect(name, "answer compatibility() from what load() needs, which has upstream's functions")


def _has(op: Any, name: str) -> bool:
    try:
        return callable(getattr(op, name))
    except Exception:
        return False


def test_unknown_functions_are_missing(accelerator: DeepSpeedAccelerator) -> None:
    """A function that no op has is an AttributeError, also with a float type's ending: DeepSpeed then uses its own."""
    holds = Holds()
    for name, builder in ops.served(accelerator).items():
        op = builder.load() if builder.is_compatible() else None
        for function in ("no_such_function", "no_such_function_fp16", "_no_such_function"):
            try:
                holds[f"{name}.{function} is no {getattr(op, function)!r}"] = False
            except AttributeError as error:
                if isinstance(error, AccelError):
                    what = f"{name}.{function}: it says that {builder.NAME} lacks it: {error.what}"
                    holds[what] = error.what.startswith(f"{builder.NAME} ")
            except Exception as error:
                holds[f"{name}.{function}: AttributeError, and no {type(error).__name__}: {error}"] = False
    holds.expect("an op", "derive it from accel_core.op_builder.OpFunctions, or do not answer every name")


@pytest.mark.tier("host")
@pytest.mark.parametrize("name", [*UPSTREAM, "NoSuchOpBuilder"])
def test_builders_are_new(accelerator: DeepSpeedAccelerator, name: str) -> None:
    """`create_op_builder` gives a new builder at each call, of the one class that `get_op_builder` gives.

    For a name that no op has `get_op_builder` may return None, as DeepSpeed's class for CUDA does.
    """
    builders = [accelerator.create_op_builder(name) for _ in range(2)]
    given = {accelerator.get_op_builder(name) for _ in range(2)}
    classes = (given - (set() if name in UPSTREAM else {None})) | {type(builder) for builder in builders}
    holds = Holds({f"two objects: {builders}": builders[0] is not builders[1]})
    holds[f"one class: {classes}"] = len(classes) == 1
    holds.expect(f"the builder {name!r}", "construct the class at each call, and keep one class for each op")


@pytest.mark.parametrize("name", UPSTREAM)
def test_a_probe_that_fails_is_a_reason(accelerator: DeepSpeedAccelerator, name: str) -> None:
    """A builder may be given another name, and an exception in its probe makes it incompatible, with the reason."""
    base = accelerator.get_op_builder(name)
    if not hasattr(base, "compatibility"):
        return  # DeepSpeed's own builder

    def compatibility(self: Any) -> tuple[bool, str]:
        raise LookupError("no such toolkit")

    builder = type(base.__name__, (base,), {"compatibility": compatibility})("renamed")
    holds = Holds()
    holds.equal("name", builder.name, "renamed")
    holds.equal("is_compatible()", builder.is_compatible(), False)
    for part in ("LookupError", "no such toolkit"):
        holds[f"the reason has {part}: {builder.reason!r}"] = part in builder.reason
    what = f"{name} with a probe that fails"
    holds.expect(what, "derive it from accel_core.op_builder.OpBuilder, and override `compatibility` alone")


@pytest.mark.tier("host")
@pytest.mark.usefixtures("upstream")
def test_names_are_upstream_s(accelerator: DeepSpeedAccelerator) -> None:
    """A builder has the NAME and the BUILD_VAR of DeepSpeed's own builder: the engine and users look for these."""
    holds = Holds()
    for name, stock in {**_FORMER, **_stock_builders()}.items():
        builder = accelerator.create_op_builder(name)
        if not ops.is_missing(builder):
            found = [getattr(builder, key, "") for key in ("NAME", "BUILD_VAR", "name")]
            own, variable = (getattr(stock, key, "") for key in ("NAME", "BUILD_VAR"))
            holds.equal(f"names of {name}", found, [own, variable, own])
    holds.expect("a builder's name", "copy NAME and BUILD_VAR from deepspeed/ops/op_builder")


def _stock_builders() -> dict[str, Any]:
    """DeepSpeed's own builder classes, by name, from the modules that define them."""
    import pkgutil

    package = importlib.import_module("deepspeed.ops.op_builder")
    stock = {}
    for info in pkgutil.iter_modules(package.__path__):
        if info.ispkg or info.name in ("all_ops", "builder"):
            continue
        module = importlib.import_module(f"{package.__name__}.{info.name}")
        for name in UPSTREAM:
            cls = getattr(module, name, None)
            if getattr(cls, "__module__", "") == module.__name__:
                stock[name] = cls
    return stock


@pytest.mark.tier("host")
def test_extension_command_takes_options(accelerator: DeepSpeedAccelerator) -> None:
    """`build_extension()` is a setuptools command class; DeepSpeed's setup.py calls `with_options(use_ninja=False)`."""
    command = accelerator.build_extension()
    options = getattr(command, "with_options", None)
    made = options(use_ninja=False) if callable(options) else None
    holds = Holds({f"{command!r} is a class": inspect.isclass(command)})
    for part, name in ((command, "run"), (made, "initialize_options"), (made, "run")):
        holds[f"{part!r} has {name}()"] = callable(getattr(part, name, None))
    holds.expect("build_extension()", "return torch.utils.cpp_extension.BuildExtension, or a derived class")
