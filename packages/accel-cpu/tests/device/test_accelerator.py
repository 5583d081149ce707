# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The CPU accelerator keeps the interface's one contract: devices, random numbers, streams, graphs."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import accel_cpu
from accel_core.interface import DeepSpeedAccelerator
from accel_cpu.accelerator import CPU_Accelerator
from shared.topologies import build


def test_the_package_exports_the_class_and_the_registration_of_its_backend() -> None:
    assert accel_cpu.CPU_Accelerator is CPU_Accelerator
    assert accel_cpu.__all__ == ["CPU_Accelerator", "register_backend"]
    with pytest.raises(AttributeError, match="no attribute 'GPU_Accelerator'"):
        _ = accel_cpu.GPU_Accelerator


def test_it_is_an_accelerator_with_nothing_left_abstract(cpu: CPU_Accelerator) -> None:
    assert isinstance(cpu, DeepSpeedAccelerator)
    assert (cpu._name, cpu._compile_backend) == ("cpu", "inductor")


def test_the_current_device_is_an_int_under_a_launcher(
    cpu: CPU_Accelerator, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert cpu.current_device() == 0
    monkeypatch.setenv("LOCAL_RANK", "1")
    assert cpu.current_device() == 1
    assert type(cpu.current_device()) is int


def test_a_device_that_was_set_is_the_current_one(
    cpu: CPU_Accelerator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOCAL_RANK", "3")
    cpu.set_device(1)
    assert cpu.current_device() == 1


def test_setting_a_device_by_its_name_leaves_the_index(cpu: CPU_Accelerator) -> None:
    cpu.set_device("cpu")  # type: ignore[arg-type]
    cpu.set_device(torch.device("cpu"))  # type: ignore[arg-type]
    assert cpu.current_device() == 0


@pytest.mark.parametrize("name", ["LOCAL_RANK", "LOCAL_SIZE", "LOCAL_WORLD_SIZE"])
@pytest.mark.parametrize("value", ["two", "-1", "1.5", " 1"])
def test_a_mangled_launcher_variable_is_named(
    cpu: CPU_Accelerator, monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    monkeypatch.setenv(name, value)
    with pytest.raises(ValueError, match=f"(?s){name}={value!r}.*expected.*do:"):
        cpu.current_device() if name == "LOCAL_RANK" else cpu.device_count()


@pytest.mark.parametrize("index", [None, 0, 1])
def test_every_index_is_torch_s_one_cpu_device(cpu: CPU_Accelerator, index: int | None) -> None:
    assert cpu.device(index) == torch.device("cpu")
    assert cpu.device_name(index) == "cpu"
    assert cpu.current_device_name() == "cpu"
    assert torch.ones(2).to(cpu.device(index)).sum() == 2


def test_devices_are_numa_nodes_with_cpus(
    cpu: CPU_Accelerator, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for machine, count in {"two-sockets": 2, "hbm-flat": 2, "snc4-two-sockets": 8, "cxl-memory": 1}.items():
        monkeypatch.setenv("ACCEL_SYSROOT", str(build.write(machine, tmp_path / machine)))
        assert cpu.device_count() == count, machine


@pytest.mark.parametrize("name", ["LOCAL_SIZE", "LOCAL_WORLD_SIZE"])
def test_devices_are_ranks_under_a_launcher(
    cpu: CPU_Accelerator, monkeypatch: pytest.MonkeyPatch, name: str, tmp_path: Path
) -> None:
    monkeypatch.setenv("ACCEL_SYSROOT", str(build.write("snc4-two-sockets", tmp_path)))
    monkeypatch.setenv(name, "3")
    assert cpu.device_count() == 3


@pytest.mark.parametrize("value", ["", "0"])
def test_a_local_size_without_a_number_of_ranks_is_passed_over(
    cpu: CPU_Accelerator, monkeypatch: pytest.MonkeyPatch, value: str
) -> None:
    monkeypatch.setenv("LOCAL_SIZE", value)
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")
    assert cpu.device_count() == 2


def test_work_is_done_when_a_call_returns(cpu: CPU_Accelerator) -> None:
    assert cpu.is_available() is True
    assert cpu.is_synchronized_device() is True
    assert cpu.use_host_timers() is True
    assert cpu.resolves_data_dependency() is True
    assert cpu.handles_memory_backpressure() is True
    cpu.synchronize()
    cpu.synchronize(0)


@pytest.mark.parametrize("index", [None, 0, 1])
def test_a_restored_random_state_repeats_the_numbers(cpu: CPU_Accelerator, index: int | None) -> None:
    with torch.random.fork_rng():
        state = cpu.get_rng_state(index)
        first = torch.rand(4)
        cpu.set_rng_state(state, index)
        assert torch.equal(torch.rand(4), first)


def test_seeding_reaches_the_default_generator(cpu: CPU_Accelerator) -> None:
    with torch.random.fork_rng():
        cpu.manual_seed(11)
        assert cpu.initial_seed() == 11
        cpu.manual_seed_all(12)
        assert cpu.default_generator(1).initial_seed() == 12
        assert cpu.random() is torch.random


def test_there_are_no_streams_and_deepspeed_can_see_it(cpu: CPU_Accelerator) -> None:
    # DeepSpeed asks `Stream is None` (activation offload) and `Event is None` (rollout profiler).
    assert cpu.Stream is None
    assert cpu.Event is None
    assert cpu.current_stream() is None
    assert cpu.default_stream(0) is None


def test_a_stream_context_runs_the_code_inside(cpu: CPU_Accelerator) -> None:
    with cpu.stream(cpu.current_stream()):
        total = torch.ones(3).sum()
    assert total == 3


def test_a_captured_region_computes_at_once(cpu: CPU_Accelerator) -> None:
    graph = cpu.create_graph()
    with cpu.capture_to_graph(graph, pool=None, stream=None):
        total = torch.ones(3).sum()
    cpu.replay_graph(graph)
    assert total == 3
    assert cpu.is_current_stream_capturing() is False


def test_a_lazy_call_is_called_at_once(cpu: CPU_Accelerator) -> None:
    called: list[int] = []
    cpu.lazy_call(lambda: called.append(1))
    assert called == [1]


def test_the_memory_of_the_process_has_the_names_of_deepspeed_s_class(cpu: CPU_Accelerator) -> None:
    block = torch.ones(40 << 20, dtype=torch.uint8)
    assert cpu.get_rss() > block.numel()
    assert cpu.max_mem >= cpu.get_rss() - (8 << 20)
    del block
    assert cpu.reset_rss() <= cpu.max_mem
