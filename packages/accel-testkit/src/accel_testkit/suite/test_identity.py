# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Identity: an accelerator in every method, by the names and call shapes that callers use."""

from __future__ import annotations

import inspect
from typing import Any

import pytest
import torch

from accel_core.interface import DeepSpeedAccelerator
from accel_core.selection.current import ACCELERATOR_BASES
from accel_core.vendor import Support, Trait, Traits
from accel_testkit.suite.call_signatures import public_members, signature_problem
from accel_testkit.suite.expect import expect, expect_type
from accel_testkit.suite.target import Target

pytestmark = pytest.mark.tier("host")


def test_is_an_accelerator(accelerator: Any) -> None:
    """The object derives from accel_core's DeepSpeedAccelerator, or from DeepSpeed's own."""
    expect(
        isinstance(accelerator, tuple(ACCELERATOR_BASES)),
        "the object is not an accelerator",
        found=f"{type(accelerator).__name__}, derived from {type(accelerator).__mro__[1].__name__}",
        expected="accel_core.DeepSpeedAccelerator among its bases",
        do="derive from accel_core.TorchDeviceAccelerator",
    )


def test_can_be_constructed_again(target: Target, accelerator: DeepSpeedAccelerator) -> None:
    """A second object of the class works beside the first, for the same devices."""
    again = target.construct()
    expect(
        again is not accelerator and again.device_name() == accelerator.device_name(),
        "the class cannot be constructed twice",
        found=f"{again!r} for {again.device_name()}, after {accelerator!r}",
        expected="a new object for the same device type",
        do="register runtimes once, at import, and keep the constructor free of global state",
    )


def test_has_every_method(accelerator: DeepSpeedAccelerator) -> None:
    """Every public name of the interface is there."""
    missing = [name for name in public_members() if not hasattr(accelerator, name)]
    expect(
        not missing,
        "the accelerator lacks methods",
        found=", ".join(missing),
        expected="every public name of accel_core.DeepSpeedAccelerator",
        do="derive from accel_core.TorchDeviceAccelerator, and remove no attribute",
    )


def test_call_shapes_are_the_interface_s(accelerator: DeepSpeedAccelerator) -> None:
    """Every method takes the interface's arguments, by position and by name, with a default where it has one."""
    misfits = [
        text
        for name, member in public_members().items()
        if inspect.isfunction(member)
        and (text := signature_problem(member, getattr(accelerator, name, None)))
    ]
    expect(
        not misfits,
        "methods cannot be called as the interface says",
        found="; ".join(misfits),
        expected="the parameters of accel_core.DeepSpeedAccelerator, and at most optional ones beside them",
        do="copy the signature from the interface",
    )


def test_name_is_the_torch_device_type(accelerator: DeepSpeedAccelerator) -> None:
    """`device_name()` is a device type that torch knows, and the type of `device()`."""
    name = accelerator.device_name()
    expect_type(name, str, "device_name()", do='return the device type, such as "npu"')
    try:
        known = torch.device(name).type == name == torch.device(accelerator.device()).type
    except (RuntimeError, TypeError):
        known = False
    expect(
        known,
        "device_name() is not torch's name of the device type",
        found=f"device_name() {name!r}, device() {accelerator.device()!r}",
        expected="a name that torch.device() takes, without an index, and the type of device()",
        do="use the name under which the runtime registers with torch",
    )


def test_traits_have_reasons(traits: Traits) -> None:
    """Every declared trait is a Trait with a sentence why: users, skips and docs print it."""
    bad = [
        name
        for name, trait in traits.items()
        if not isinstance(trait, Trait)
        or not isinstance(trait.support, Support)
        or len(trait.reason.split()) < 2
    ]
    expect(
        not bad,
        "traits without a reason",
        found=", ".join(bad),
        expected="accel_core.Trait(Support, sentence) for each",
        do="say in traits.py what the device or its runtime lacks",
    )
