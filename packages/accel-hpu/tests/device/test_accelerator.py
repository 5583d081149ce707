# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""HPU_Accelerator on the simulated device: what it answers differently from other devices."""

import os

import pytest
import torch
from habana_frameworks.torch import hpu
from habana_frameworks.torch.utils import experimental

from accel_core.errors import InvalidDevice
from accel_hpu import settings
from accel_hpu.accelerator import HPU_Accelerator

LAZY = os.environ.get("PT_HPU_LAZY_MODE", "1") != "0"


@pytest.fixture(scope="module")
def accelerator() -> HPU_Accelerator:
    return HPU_Accelerator()


@pytest.mark.parametrize("device", [0, 1, "hpu", torch.device("hpu")])
def test_every_local_rank_can_take_its_device(accelerator, device):
    accelerator.set_device(device)
    assert accelerator.current_device() == 0


@pytest.mark.parametrize("name", ["default_generator", "current_stream", "default_stream"])
def test_only_the_process_s_own_device_is_asked(accelerator, name):
    """T18, T19: upstream raises IndexError for a generator, and answers for another device elsewhere."""
    for own in (0, "hpu", torch.device("hpu", 0)):
        getattr(accelerator, name)(own)
    for other in (1, "hpu:1", torch.device("hpu", 1)):
        with pytest.raises(InvalidDevice, match="index 1"):
            getattr(accelerator, name)(other)


def test_statistics_have_habana_s_keys_beside_torch_s(accelerator):
    """T19; the suite reads torch's."""
    assert accelerator.memory_stats().keys() >= {"InUse", "MaxInUse", "Limit"}


def test_graphs_are_there_in_lazy_mode_only(accelerator):
    """D5: upstream's are an AttributeError in eager mode."""
    assert hpu.is_lazy() is LAZY
    assert ("graphs" in accelerator.traits) is not LAZY
    assert (accelerator.create_graph() is not None) is LAZY
    with accelerator.capture_to_graph(None):
        assert not accelerator.is_current_stream_capturing()


def test_fp16_is_asked_of_the_device(monkeypatch):
    """The first Gaudi has none."""
    monkeypatch.setattr(experimental, "_is_fp16_supported", lambda: False)
    first = HPU_Accelerator()
    assert first.is_fp16_supported() is False
    assert first.supported_dtypes() == [torch.float32, torch.bfloat16]


def test_habana_s_compiler_is_asked_for_also_where_it_is_not_registered(accelerator):
    """torch.compile then says that there is no such backend; a silent `eager` would compile nothing."""
    assert accelerator.get_compile_backend() == "hpu_backend"
    other = HPU_Accelerator()
    other.set_compile_backend("eager")
    assert (other.get_compile_backend(), accelerator.get_compile_backend()) == ("eager", "hpu_backend")


def test_memory_is_pinned_for_hpu(monkeypatch):
    """A torch whose own accelerator is another one needs the device by name. The suite has the usual one."""
    monkeypatch.setattr(torch.accelerator, "current_accelerator", lambda: torch.device("cuda"))
    reported = []
    monkeypatch.setattr(torch.Tensor, "pin_memory", lambda self, *device: reported.append(device) or self)
    HPU_Accelerator().pin_memory(torch.ones(3))
    assert reported == [("hpu",)]


@pytest.mark.parametrize(("error", "warns"), [(OSError, True), (KeyboardInterrupt, False)])
def test_a_failed_construction_leaves_nothing_behind(error, warns, monkeypatch):
    """T23, T24."""
    for name in settings.VARIABLES:
        monkeypatch.delenv(name, raising=False)
    torch.use_deterministic_algorithms(warns, warn_only=warns)
    monkeypatch.setattr(settings.deterministic, "fill_uninitialized_memory", True)

    def fail():
        raise error("libSynapse.so")

    monkeypatch.setattr(hpu, "is_lazy", fail)
    with pytest.raises(error, match=r"libSynapse\.so"):
        HPU_Accelerator()
    assert torch.are_deterministic_algorithms_enabled() is warns
    assert torch.is_deterministic_algorithms_warn_only_enabled() is warns
    assert settings.deterministic.fill_uninitialized_memory
    assert not settings.VARIABLES.keys() & os.environ.keys()


def test_construction_sets_what_the_runtime_reads(monkeypatch):
    for name in settings.VARIABLES:
        monkeypatch.delenv(name, raising=False)
    HPU_Accelerator()
    assert {name: os.environ[name] for name in settings.VARIABLES} == settings.VARIABLES
    assert torch.are_deterministic_algorithms_enabled()
    assert not settings.deterministic.fill_uninitialized_memory


def test_launchers_find_habana_s_variables(accelerator):
    """T28, T29."""
    written: dict[str, str] = {}
    accelerator.set_visible_devices_envs(written, [4, 5])
    assert "HABANA_VISIBLE_MODULES" not in written  # as DeepSpeed (#5929): module ids are not 0 to n-1
    exported = accelerator.export_envs()
    for name in ("HLS_MODULE_ID", "HABANA_VISIBLE_MODULES"):  # each rank, and each node, has its own
        assert not any(name.startswith(prefix) for prefix in exported)
