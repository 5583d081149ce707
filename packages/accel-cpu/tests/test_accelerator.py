# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The CPU accelerator keeps the interface's one contract, also where upstream's CPU accelerator does not."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import accel_cpu
from accel_core.interface import DeepSpeedAccelerator
from accel_cpu import collectives
from accel_cpu.accelerator import CPU_Accelerator
from accel_cpu.collectives import Collectives

TOPOLOGIES = Path(__file__).parents[3] / "shared" / "topologies"
LAUNCHER = ("LOCAL_RANK", "LOCAL_SIZE", "LOCAL_WORLD_SIZE", "ACCEL_SYSROOT", "CUDA_VISIBLE_DEVICES")


@pytest.fixture(autouse=True)
def no_launcher(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in LAUNCHER:
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def cpu() -> CPU_Accelerator:
    return CPU_Accelerator()


def test_the_package_exports_the_class_and_nothing_else() -> None:
    assert accel_cpu.CPU_Accelerator is CPU_Accelerator
    assert accel_cpu.__all__ == ["CPU_Accelerator"]
    with pytest.raises(AttributeError, match="no attribute 'GPU_Accelerator'"):
        _ = accel_cpu.GPU_Accelerator


def test_it_is_an_accelerator_with_nothing_left_abstract(cpu: CPU_Accelerator) -> None:
    assert isinstance(cpu, DeepSpeedAccelerator)
    assert (cpu._name, cpu._compile_backend) == ("cpu", "inductor")


# ------------------------------------------------------------------------------------------- devices


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


def test_devices_are_numa_nodes_with_cpus(cpu: CPU_Accelerator, monkeypatch: pytest.MonkeyPatch) -> None:
    for machine, count in {"two-sockets": 2, "hbm-flat": 2, "snc4-two-sockets": 8, "cxl-memory": 1}.items():
        monkeypatch.setenv("ACCEL_SYSROOT", str(TOPOLOGIES / machine))
        assert cpu.device_count() == count, machine


@pytest.mark.parametrize("name", ["LOCAL_SIZE", "LOCAL_WORLD_SIZE"])
def test_devices_are_ranks_under_a_launcher(
    cpu: CPU_Accelerator, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setenv("ACCEL_SYSROOT", str(TOPOLOGIES / "snc4-two-sockets"))
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


# -------------------------------------------------------------------------------------------- random


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


# --------------------------------------------------------------------------- streams, events, graphs


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


# -------------------------------------------------------------------------------------------- memory


@pytest.mark.parametrize("index", [None, 0])
def test_memory_figures_are_bytes(cpu: CPU_Accelerator, index: int | None) -> None:
    figures = [
        cpu.memory_allocated(index),
        cpu.max_memory_allocated(index),
        cpu.memory_cached(index),
        cpu.max_memory_cached(index),
        cpu.memory_reserved(index),
        cpu.max_memory_reserved(index),
        cpu.total_memory(index),
        cpu.available_memory(index),
    ]
    assert all(type(figure) is int and figure > 1 << 20 for figure in figures)
    assert cpu.memory_allocated(index) < cpu.total_memory(index)
    assert cpu.available_memory(index) < cpu.total_memory(index)


def test_memory_stats_have_torch_s_keys(cpu: CPU_Accelerator) -> None:
    stats = cpu.memory_stats()
    for kind in ("allocated_bytes", "reserved_bytes"):
        assert type(stats[f"{kind}.all.current"]) is int
        assert stats[f"{kind}.all.peak"] >= stats[f"{kind}.all.current"] > 0


@pytest.mark.parametrize(
    "reset", ["reset_peak_memory_stats", "reset_max_memory_allocated", "reset_max_memory_cached"]
)
def test_every_reset_starts_the_peak_anew(cpu: CPU_Accelerator, reset: str) -> None:
    size = 200 << 20
    block = torch.ones(size, dtype=torch.uint8)
    with_block = cpu.max_memory_allocated()
    del block
    getattr(cpu, reset)()
    assert cpu.max_memory_allocated() < with_block - size // 2
    cpu.empty_cache()


# -------------------------------------------------------------------------------- dtypes and tensors


def test_dtypes(cpu: CPU_Accelerator) -> None:
    assert cpu.is_bf16_supported() is True
    assert cpu.is_fp64_supported() is True
    assert cpu.is_triton_supported() is False
    fp16 = cpu.is_fp16_supported()
    assert type(fp16) is bool
    assert cpu.supported_dtypes()[0] is torch.float32
    assert torch.bfloat16 in cpu.supported_dtypes()
    assert (torch.float16 in cpu.supported_dtypes()) is fp16


@pytest.mark.parametrize("answer", [True, False, None])
def test_fp16_is_what_onednn_says_as_a_bool(
    cpu: CPU_Accelerator, monkeypatch: pytest.MonkeyPatch, answer: bool | None
) -> None:
    monkeypatch.setattr(torch.ops.mkldnn, "_is_mkldnn_fp16_supported", lambda: answer, raising=False)
    assert cpu.is_fp16_supported() is bool(answer)


@pytest.mark.parametrize("error", [AttributeError("no such op"), RuntimeError("built without oneDNN")])
def test_fp16_without_onednn(cpu: CPU_Accelerator, monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    def refuse() -> bool:
        raise error

    monkeypatch.setattr(torch.ops.mkldnn, "_is_mkldnn_fp16_supported", refuse, raising=False)
    assert cpu.is_fp16_supported() is False


@pytest.mark.parametrize(
    ("name", "dtype"),
    [
        ("BFloat16Tensor", torch.bfloat16),
        ("ByteTensor", torch.uint8),
        ("DoubleTensor", torch.float64),
        ("FloatTensor", torch.float32),
        ("HalfTensor", torch.float16),
        ("IntTensor", torch.int32),
        ("LongTensor", torch.int64),
    ],
)
def test_typed_constructors_take_data_or_a_shape(cpu: CPU_Accelerator, name: str, dtype: torch.dtype) -> None:
    kind = getattr(cpu, name)
    assert torch.equal(kind([1, 2]), torch.tensor([1, 2], dtype=dtype))
    assert kind(3).shape == (3,)
    assert kind(2, 3).dtype is dtype
    assert isinstance(torch.zeros(1, dtype=dtype), kind)


def test_on_accelerator(cpu: CPU_Accelerator) -> None:
    assert cpu.on_accelerator(torch.ones(1)) is True
    assert cpu.on_accelerator(torch.ones(1, device="meta")) is False


# ------------------------------------------------------------------------------------- pinned memory


def test_pinning_gives_the_tensor_itself_in_every_call_shape(cpu: CPU_Accelerator) -> None:
    tensor = torch.arange(6.0).reshape(2, 3)
    assert cpu.pin_memory(tensor) is tensor
    assert cpu.pin_memory(tensor, make_copy=False, match_shape=False) is tensor
    assert cpu.pin_memory(tensor, 0) is tensor  # DeepSpeed 0.18: align_bytes
    assert cpu.pin_memory(tensor, align_bytes=0) is tensor
    assert cpu.is_pinned(tensor) is False


def test_empty_pinned_memory_is_plain_memory(cpu: CPU_Accelerator) -> None:
    fresh = cpu.pin_empty(2, 3, dtype=torch.float64)
    assert (fresh.shape, fresh.dtype) == ((2, 3), torch.float64)
    assert cpu.pin_empty_like(fresh, dtype=torch.int32).dtype is torch.int32
    assert cpu.is_pinned(fresh) is False


# ------------------------------------------------------------------------------------------ launching


def test_the_collectives_are_chosen_at_the_first_call(
    cpu: CPU_Accelerator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(collectives, "choose", lambda: Collectives("ccl", "pretend"))
    assert cpu.communication_backend_name() == "ccl"


def test_the_visible_devices_variable_is_the_cpu_s_own(cpu: CPU_Accelerator) -> None:
    assert cpu.visible_devices_envs() == ["ACCEL_CPU_VISIBLE_DEVICES"]
    environment: dict[str, str] = {}
    cpu.set_visible_devices_envs(environment, [0, 2])
    assert environment == {"ACCEL_CPU_VISIBLE_DEVICES": "0,2"}


@pytest.mark.parametrize(
    "name",
    [
        "OMP_NUM_THREADS",
        "KMP_AFFINITY",
        "CCL_WORKER_COUNT",
        "FI_PROVIDER",
        "I_MPI_ROOT",
        "GLOO_SOCKET_IFNAME",
        "LD_LIBRARY_PATH",
        "LD_PRELOAD",
        "PATH",
        "DS_ACCELERATOR",
        "ACCEL_STRICT",
    ],
)
def test_what_a_remote_rank_needs_is_exported(cpu: CPU_Accelerator, name: str) -> None:
    assert any(name.startswith(prefix) for prefix in cpu.export_envs())


@pytest.mark.parametrize("name", ["LOCAL_RANK", "LOCAL_SIZE", "HOME", "HOSTNAME", "CUDA_VISIBLE_DEVICES"])
def test_what_belongs_to_one_machine_is_not_exported(cpu: CPU_Accelerator, name: str) -> None:
    assert not any(name.startswith(prefix) for prefix in cpu.export_envs())


def test_compile_backends(cpu: CPU_Accelerator) -> None:
    assert cpu.get_compile_backend() == "inductor"
    cpu.set_compile_backend("eager")
    assert cpu.get_compile_backend() == "eager"
    with pytest.raises(ValueError, match="no-such-backend"):
        cpu.set_compile_backend("no-such-backend")
    assert cpu.get_compile_backend() == "eager"
