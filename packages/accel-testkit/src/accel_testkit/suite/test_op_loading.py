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
from accel_testkit.suite.expect import expect
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
        "quantize",
        "dequantize",
        "dequantize_fp32",
        "dequantize_int4_to_half_experimental",
        "dequantize_int8_to_half_experimental",
        "swizzle_quant",
        "quantized_reduction",
    ),
    "EvoformerAttnBuilder": ("attention", "attention_bwd"),
    "FPQuantizerBuilder": ("quantize", "dequantize", "selective_dequantize", "get_scales"),
    "PackbitsBuilder": ("packbits", "unpackbits"),
    "RandomLTDBuilder": (
        "token_sort_",
        "token_gather",
        "token_scatter_",
        "mask_gather_bert",
        "mask_gather_gpt",
    ),
    "SpatialInferenceBuilder": ("nhwc_bias_add", "nhwc_bias_add_add", "nhwc_bias_add_bias_add"),
    "AsyncIOBuilder": ("aio_handle", "aio_read", "aio_write"),
}
#: Builders of releases before 0.19.
_FORMER = {"PackbitsBuilder": SimpleNamespace(NAME="pack_bits", BUILD_VAR="DS_BUILD_PACK_BITS")}


@pytest.mark.parametrize("name", needs.ops(UPSTREAM))
def test_compatible_op_loads(accelerator: DeepSpeedAccelerator, name: str) -> None:
    """`is_compatible()` and `load()` agree: the op loads, twice and from two builders, or both say no."""
    builder = accelerator.create_op_builder(name)
    compatible = builder.is_compatible()
    problems = []
    for each in (builder, builder, accelerator.create_op_builder(name)):
        try:
            op = each.load()
            lacks = [function for function in FUNCTIONS.get(name, ()) if not _has(op, function)]
            loaded = f"it loads without {', '.join(lacks)}" if lacks else "it loads"
        except Exception as error:
            loaded = f"load() raises {type(error).__name__}: {error}"
        if loaded != "it loads" if compatible else loaded.startswith("it loads"):
            problems.append(loaded)
    expect(
        not problems and builder.is_compatible() == compatible,
        f"{name} contradicts itself",
        found=f"is_compatible() {compatible}, then {builder.is_compatible()}; {'; '.join(problems)}",
        expected="True and an object with upstream's functions, or False and an exception",
        do="answer compatibility() from what load() needs",
    )


def _has(op: Any, name: str) -> bool:
    try:
        return callable(getattr(op, name))
    except Exception:
        return False


def test_unknown_functions_are_missing(accelerator: DeepSpeedAccelerator) -> None:
    """A function that no op has is an AttributeError, also with a float type's ending: DeepSpeed then uses its own."""
    answers = []
    for name, builder in ops.served(accelerator).items():
        op = builder.load() if builder.is_compatible() else None
        for function in ("no_such_function", "no_such_function_fp16", "_no_such_function"):
            try:
                answers.append(f"{name}.{function}: {getattr(op, function)!r}")
            except AttributeError as error:
                if isinstance(error, AccelError) and not error.what.startswith(f"{builder.NAME} "):
                    answers.append(
                        f"{name}.{function}: does not say that {builder.NAME} lacks it: {error.what}"
                    )
            except Exception as error:
                answers.append(f"{name}.{function}: {type(error).__name__}: {error}")
    expect(
        not answers,
        "ops have functions that nobody wrote",
        found="; ".join(answers),
        expected="AttributeError",
        do="derive the op from accel_core.op_builder.OpFunctions, or do not answer every name",
    )


@pytest.mark.tier("host")
@pytest.mark.parametrize("name", [*UPSTREAM, "NoSuchOpBuilder"])
def test_builders_are_new(accelerator: DeepSpeedAccelerator, name: str) -> None:
    """`create_op_builder` gives a new builder at each call, of the one class that `get_op_builder` gives.

    For a name that no op has `get_op_builder` may return None, as DeepSpeed's class for CUDA does.
    """
    builders = [accelerator.create_op_builder(name) for _ in range(2)]
    given = {accelerator.get_op_builder(name) for _ in range(2)}
    classes = (given - (set() if name in UPSTREAM else {None})) | {type(builder) for builder in builders}
    expect(
        builders[0] is not builders[1] and len(classes) == 1,
        f"create_op_builder({name!r}) and get_op_builder({name!r}) are no class and new objects of it",
        found=f"{builders}, of {classes}",
        expected="one class, and two objects",
        do="construct the class at each call, and keep one class for each op",
    )


@pytest.mark.parametrize("name", UPSTREAM)
def test_a_probe_that_fails_is_a_reason(accelerator: DeepSpeedAccelerator, name: str) -> None:
    """A builder may be given another name, and an exception in its probe makes it incompatible, with the reason."""
    base = accelerator.get_op_builder(name)
    if not hasattr(base, "compatibility"):
        return  # DeepSpeed's own builder

    def compatibility(self: Any) -> tuple[bool, str]:
        raise LookupError("no such toolkit")

    builder = type(base.__name__, (base,), {"compatibility": compatibility})("renamed")
    found = builder.name, builder.is_compatible(), builder.reason
    expect(
        found[:2] == ("renamed", False) and "LookupError" in found[2] and "no such toolkit" in found[2],
        f"{name} does not survive a failing probe",
        found=f"name {found[0]!r}, is_compatible() {found[1]}, reason {found[2]!r}",
        expected="the name 'renamed', False, and a reason with the exception",
        do="derive it from accel_core.op_builder.OpBuilder, and override `compatibility` alone",
    )


@pytest.mark.tier("host")
@pytest.mark.usefixtures("upstream")
def test_names_are_upstream_s(accelerator: DeepSpeedAccelerator) -> None:
    """A builder has the NAME and the BUILD_VAR of DeepSpeed's own builder: the engine and users look for these."""
    wrong = []
    for name, stock in {**_FORMER, **_stock_builders()}.items():
        builder = accelerator.create_op_builder(name)
        if ops.is_missing(builder):
            continue
        found, wanted = (
            [getattr(each, key, "") for key in ("NAME", "BUILD_VAR")] for each in (builder, stock)
        )
        if found != wanted or builder.name != stock.NAME:
            wrong.append(f"{name}: {found}, name {builder.name!r}; DeepSpeed's: {wanted}")
    expect(
        not wrong,
        "builders have other names than DeepSpeed's",
        found="; ".join(wrong),
        expected="the same NAME and BUILD_VAR",
        do="copy them from deepspeed/ops/op_builder",
    )


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
    expect(
        inspect.isclass(command)
        and callable(getattr(command, "run", None))
        and callable(getattr(made, "initialize_options", None))
        and callable(getattr(made, "run", None)),
        "build_extension() is no setuptools command, or takes no options",
        found=f"{command!r}, with_options(use_ninja=False) {made!r}",
        expected="a command class such as torch.utils.cpp_extension.BuildExtension",
        do="return torch's class, or one derived from it",
    )
