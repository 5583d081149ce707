# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The claim of the order matrix: every function that returns the accelerator returns one, with its op builders."""

from typing import Any


def hold(package: str) -> None:
    """Assert it, for the accelerator of this package."""
    import deepspeed.ops.adam.cpu_adam
    import deepspeed.ops.adam.fused_adam
    from deepspeed import accelerator  # not as an attribute: an import that failed before leaves that unset
    from deepspeed.accelerator import real_accelerator
    from deepspeed.ops import op_builder
    from deepspeed.ops.op_builder import all_ops
    from deepspeed.runtime import engine

    import accel_core

    current: Any = accel_core.get_accelerator()
    assert type(current).__module__.partition(".")[0] == package, current
    doors = [deepspeed, accelerator, real_accelerator, engine]
    assert [door.get_accelerator() for door in doors] == [current] * len(doors)
    assert real_accelerator.ds_accelerator is current

    # The names that DeepSpeed's modules have bound stand for the builders of the current accelerator.
    fused = current.get_op_builder("FusedAdamBuilder")
    for module in (op_builder, deepspeed.ops.adam.fused_adam):
        bound = module.FusedAdamBuilder
        assert type(bound()) is fused
        assert bound.NAME == fused.NAME == "fused_adam"
        assert isinstance(fused(), bound)
        assert bound().load().__name__.partition(".")[0] == package
    for module in (op_builder, deepspeed.ops.adam.cpu_adam):
        missing = module.CPUAdamBuilder()
        assert type(missing).__name__ == "NotImplementedBuilder"
        assert isinstance(missing, op_builder.NotImplementedBuilder)
        assert not isinstance(fused(), op_builder.NotImplementedBuilder)
        assert missing.is_compatible() is False

    # ALL_OPS and what is made from it hold this accelerator's builders only.
    ops = dict(all_ops.ALL_OPS)
    ops.pop("deepspeed_not_implemented", None)
    assert {name: type(op) for name, op in ops.items()} == {"fused_adam": fused}
    assert all_ops.accelerator_name == current._name
    compatible = dict(deepspeed.ops.__compatible_ops__)
    assert compatible.pop("deepspeed_not_implemented") is False
    assert compatible == {"fused_adam": True}

    # A class derived from a bound name derives from the builder behind it.
    class Derived(op_builder.FusedAdamBuilder):  # type: ignore[misc,name-defined]
        NAME = "derived"

    for base in (fused, op_builder.FusedAdamBuilder):
        assert issubclass(Derived, base)
        assert isinstance(Derived(), base)


def untouched() -> None:
    """Assert that nothing of the bridge reached DeepSpeed."""
    from deepspeed.accelerator import get_accelerator, real_accelerator
    from deepspeed.ops.op_builder import FusedAdamBuilder

    assert get_accelerator.__module__ == real_accelerator.__name__
    assert FusedAdamBuilder is get_accelerator().get_op_builder("FusedAdamBuilder")
    assert FusedAdamBuilder.__module__.partition(".")[0] == "deepspeed"
    assert type(FusedAdamBuilder).__name__ != "Forwarding"
