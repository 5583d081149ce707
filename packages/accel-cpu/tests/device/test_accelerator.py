# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""What is the CPU's own: record and probe, devices that launchers and NUMA nodes count, memory of process and machine.

The conformance suite has what holds for every accelerator.
"""

import subprocess
import sys
from pathlib import Path

import psutil
import pytest
import torch

from accel_cpu import memory
from accel_cpu.accelerator import CPU_Accelerator
from accel_cpu.memory import Limit
from accel_cpu.vendor import VENDOR
from shared.topologies import build


def test_evidence_and_count_import_no_torch() -> None:
    ask = (
        "import sys; from accel_cpu.vendor import VENDOR; VENDOR.evidence(); VENDOR.confirm();"
        "assert not {'torch', 'psutil', 'accel_cpu.accelerator'} & set(sys.modules), 'too much is imported'"
    )
    done = subprocess.run([sys.executable, "-c", ask], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_current_device_is_the_local_rank(cpu: CPU_Accelerator, monkeypatch: pytest.MonkeyPatch) -> None:
    assert cpu.current_device() == 0
    monkeypatch.setenv("LOCAL_RANK", "3")
    assert cpu.current_device() == 3
    for named in ("cpu", torch.device("cpu")):  # which name no index
        cpu.set_device(named)  # type: ignore[arg-type]
    assert cpu.current_device() == 3
    cpu.set_device(1)
    assert cpu.current_device() == 1
    assert type(cpu.current_device()) is int


@pytest.mark.parametrize("name", ["LOCAL_RANK", "LOCAL_SIZE", "LOCAL_WORLD_SIZE"])
@pytest.mark.parametrize("value", ["two", "-1", "1.5", " 1"])
def test_mangled_launcher_variable_is_named(cpu, monkeypatch, name: str, value: str) -> None:
    monkeypatch.setenv(name, value)
    with pytest.raises(ValueError, match=f"(?s){name}={value!r}; expected .*; "):
        cpu.current_device() if name == "LOCAL_RANK" else cpu.device_count()


@pytest.mark.parametrize(
    ("machine", "count"), [("two-sockets", 2), ("hbm-flat", 2), ("snc4-two-sockets", 8), ("cxl-memory", 1)]
)
def test_devices_are_numa_nodes_or_ranks(cpu, monkeypatch, tmp_path, machine: str, count: int) -> None:
    monkeypatch.setenv("ACCEL_SYSROOT", str(build.write(machine, tmp_path)))
    assert cpu.device_count() == count
    assert VENDOR.confirm().reason.startswith(f"NUMA nodes with usable CPUs: {count} (")
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "3")
    for passed_over in ("", "0"):
        monkeypatch.setenv("LOCAL_SIZE", passed_over)
        assert cpu.device_count() == 3
    monkeypatch.setenv("LOCAL_SIZE", "5")
    assert cpu.device_count() == 5
    for name in ("LOCAL_SIZE", "LOCAL_WORLD_SIZE"):
        monkeypatch.delenv(name)
    for kind, rank, size in (("PMI", "RANK", "SIZE"), ("MPI", "LOCALRANKID", "LOCALNRANKS")):
        monkeypatch.setenv(f"{kind}_{rank}", "1")
        monkeypatch.setenv(f"{kind}_{size}", "4")
    assert (cpu.device_count(), cpu.current_device()) == (4, 1)
    assert "launcher" in VENDOR.confirm().reason


@pytest.mark.parametrize(
    "answer", [True, False, None, AttributeError("no such op"), RuntimeError("built without oneDNN")]
)
def test_fp16_is_what_onednn_supports(cpu, monkeypatch, answer: bool | Exception | None) -> None:
    def ask() -> object:
        if isinstance(answer, Exception):
            raise answer
        return answer

    monkeypatch.setattr(torch.ops.mkldnn, "_is_mkldnn_fp16_supported", ask, raising=False)
    assert cpu.is_fp16_supported() is (answer is True)
    assert (torch.float16 in cpu.supported_dtypes()) is (answer is True)


def test_what_launchers_get(cpu: CPU_Accelerator) -> None:
    assert cpu.visible_devices_envs() == ["ACCEL_CPU_VISIBLE_DEVICES"]
    assert not "CUDA_VISIBLE_DEVICES".startswith(tuple(cpu.export_envs())), "it belongs to one machine"


MIB = 1 << 20


def test_mark_counts_once_it_grows(cpu: CPU_Accelerator, monkeypatch: pytest.MonkeyPatch) -> None:
    mark = 1 << 45
    monkeypatch.setattr(memory, "reset_high_water", lambda: False)
    monkeypatch.setattr(memory, "high_water", lambda: mark)
    assert cpu.max_mem == 1 << 45
    cpu.reset_rss()
    assert cpu.max_mem < 1 << 45, "the mark is from before the reset"
    mark = 1 << 46
    assert cpu.max_mem == 1 << 46


def test_without_any_mark_the_peak_is_what_calls_have_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "reset_high_water", lambda: False)
    monkeypatch.setattr(memory, "high_water", lambda: 0)
    sizes = iter([100, 500, 200, 50, 60])
    monkeypatch.setattr(CPU_Accelerator, "get_rss", lambda self: next(sizes))
    cpu = CPU_Accelerator()
    assert (cpu.max_mem, cpu.max_mem) == (500, 500)
    cpu.reset_rss()
    assert cpu.max_mem == 60


@pytest.mark.parametrize("limit", [None, Limit(64 * MIB, 10 * MIB), Limit(1 << 62, 1 << 62)])
def test_lower_limit_of_control_group_rules(cpu, monkeypatch, limit: Limit | None) -> None:
    monkeypatch.setattr(memory, "group_limit", lambda: limit)
    machine = psutil.virtual_memory().total
    assert cpu.total_memory() == (min(machine, limit.limit) if limit else machine)
    assert 0 < cpu.available_memory() <= (min(machine, limit.free) if limit else machine)


def v2(folder: str, most: str, used: str, **more: str) -> dict[str, str]:
    files = {"max": most, "current": used, **more}
    return {f"sys/fs/cgroup/{folder}/memory.{name}": text for name, text in files.items()}


def v1(folder: str, most: str, used: str, **more: str) -> dict[str, str]:
    files = {"limit_in_bytes": most, "usage_in_bytes": used, **more}
    return {f"sys/fs/cgroup/memory/{folder}/memory.{name}": text for name, text in files.items()}


#: The groups of this process, their files, and the limit.
LIMITS: dict[str, tuple[str, dict[str, str], Limit | None]] = {
    "version 2": ("0::/job/step", v2("job/step", "1000", "700", stat="anon 500\ninactive_file 200"), Limit(1000, 500)),
    "the tightest ancestor": (
        "0::/job/step", v2("job/step", "5000", "100") | v2("job", "2000", "1900"), Limit(2000, 100),
    ),
    "version 1": (
        "5:cpuset:/\n4:cpu,memory:/docker/ab\n0::/",
        v1("docker/ab", "1000", "900", stat="inactive_file 1\ntotal_inactive_file 50")
        | v1("", "9223372036854771712", "100000"),
        Limit(1000, 150),
    ),
    "a container, whose group's name is from outside": ("4:memory:/docker/ab", v1("", "1000", "400"), Limit(1000, 600)),
    "usage above the limit": ("0::/", v2("", "10", "12"), Limit(10, 0)),
    "no group": ("", {}, None),
    "no files": ("0::/job", {}, None),
    "no limit": ("0::/", v2("", "max", "7"), None),
    "another format": ("not a control group", v2("", "7", "0"), None),
}  # fmt: skip


@pytest.mark.parametrize(("groups", "files", "limit"), LIMITS.values(), ids=LIMITS)
def test_limit_of_control_group(tmp_path: Path, groups: str, files: dict[str, str], limit: Limit) -> None:
    assert memory.group_limit(tmp_path) is None
    for name, text in {"proc/self/cgroup": groups, **files}.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + "\n")
    assert memory.group_limit(tmp_path) == limit
