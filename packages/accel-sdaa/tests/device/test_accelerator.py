# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Where SDAA_Accelerator differs, where DeepSpeed's own class was wrong, and a torch_sdaa that lacks names."""

import pytest
import torch

from accel_core.errors import FunctionNotImplemented
from accel_sdaa import SDAA_Accelerator

#: Nobody outside DeepSpeed was seen to use these, or hardly anybody.
UNCONFIRMED = (
    "_lazy_call", "current_device", "default_generators", "device", "get_rng_state", "initial_seed",
    "max_memory_cached", "memory_cached", "memory_reserved", "reset_max_memory_allocated",
    "reset_max_memory_cached", "set_rng_state",
)  # fmt: skip


@pytest.fixture
def sdaa() -> SDAA_Accelerator:
    return SDAA_Accelerator()


@pytest.fixture
def bare(sdaa: SDAA_Accelerator, monkeypatch: pytest.MonkeyPatch) -> SDAA_Accelerator:
    """On a torch_sdaa without any name that is not confirmed."""
    for name in UNCONFIRMED:
        monkeypatch.delattr(sdaa.device_module, name)
    return SDAA_Accelerator()


def test_names(sdaa):
    assert sdaa.device_name(1) == "sdaa:1"
    assert (sdaa._name, sdaa._communication_backend_name) == ("sdaa", "tccl")
    assert torch.distributed.Backend.backend_capability["tccl"] == ["sdaa"]
    assert sdaa.visible_devices_envs() == ["SDAA_VISIBLE_DEVICES"]
    assert not sdaa.is_triton_supported()


def test_a_runtime_that_has_every_name_is_called_as_it_is(sdaa):
    import torch_sdaa

    assert sdaa.device_module is torch_sdaa.sdaa


def test_devices_without_the_names(bare):
    bare.set_device(1)
    assert bare.current_device() == 1
    assert bare.current_device_name() == "sdaa:1"
    bare.set_device(0)
    assert bare.device_count() == 2


def test_random_states_without_the_names(bare):
    bare.manual_seed_all(5)
    first = bare.get_rng_state(0)
    bare.set_device(1)
    state = bare.get_rng_state()
    drawn = torch.rand(4, device="sdaa:1")
    bare.set_rng_state(state)
    assert torch.equal(torch.rand(4, device="sdaa:1"), drawn)
    bare.set_rng_state(state, 1)
    assert torch.equal(torch.rand(4, device="sdaa:1"), drawn)
    bare.set_device(0)
    assert torch.equal(bare.get_rng_state(0), first)


def test_memory_and_callbacks_without_the_names(bare):
    kept = torch.empty(1 << 20, device="sdaa")
    assert bare.memory_reserved() >= bare.memory_allocated() >= kept.nbytes
    assert bare.memory_cached() == bare.memory_reserved(0)
    bare.reset_max_memory_allocated()
    called: list[int] = []
    bare.lazy_call(lambda: called.append(1))
    assert called == [1]


def test_names_that_nothing_public_stands_in_for_are_reported(bare):
    for call in (bare.initial_seed, lambda: bare.default_generator(0)):
        with pytest.raises(
            FunctionNotImplemented, match=r"the accelerator needs torch\.sdaa\.(initial|default)"
        ):
            call()
