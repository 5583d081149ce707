# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Environment: the variables that start other processes, nothing left behind, and marks for a profiler."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from accel_core.interface import DeepSpeedAccelerator
from accel_core.vendor import Vendor
from accel_testkit.suite.expect import Holds, expect_equal, outcome
from accel_testkit.suite.target import Target

pytestmark = pytest.mark.tier("host")

_NAME = re.compile(r"[A-Z_][A-Z0-9_]*")

# Variables that users set for a runtime or a collective library, and that ranks on other machines need as well.
#: Without them a program of the same environment is not found, or another library is.
_PATHS = ("PATH", "LD_LIBRARY_PATH")
#: By the name of the backend of torch.distributed.
_OF_BACKENDS: dict[str, tuple[str, ...]] = {
    "gloo": ("GLOO_SOCKET_IFNAME",),
    "nccl": ("NCCL_DEBUG", "TORCH_NCCL_BLOCKING_WAIT"),
    "hccl": ("HCCL_CONNECT_TIMEOUT",),
    "cncl": ("CNCL_LOG_LEVEL", "TORCH_CNCL_BLOCKING_WAIT"),
    "tccl": ("TCCL_LOG_LEVEL",),
}
#: By the vendor's key.
_OF_VENDORS: dict[str, tuple[str, ...]] = {
    "cpu": (
        "OMP_NUM_THREADS", "GOMP_CPU_AFFINITY", "KMP_AFFINITY", "MKL_NUM_THREADS", "DNNL_MAX_CPU_ISA",
        "ONEDNN_MAX_CPU_ISA", "CCL_WORKER_COUNT", "FI_PROVIDER", "I_MPI_FABRICS", "MALLOC_ARENA_MAX",
        "LD_PRELOAD", "ACCEL_CPU_VISIBLE_DEVICES", "ACCEL_STRICT", "DS_ACCELERATOR", *_PATHS,
    ),
    "npu": (
        "ASCEND_RT_VISIBLE_DEVICES", "ASCEND_HOME_PATH", "ASCEND_LAUNCH_BLOCKING", "TORCH_HCCL_ZERO_COPY",
        "PYTORCH_NPU_ALLOC_CONF", "TASK_QUEUE_ENABLE", *_PATHS,
    ),
    "hpu": ("PT_HPU_LAZY_MODE", "HABANA_LOGS", "HCL_CPU_AFFINITY", "GC_KERNEL_PATH", "LOG_LEVEL_ALL", *_PATHS),
    "mlu": ("NEUWARE_HOME", "PYTORCH_MLU_ALLOC_CONF", "TORCH_MLU_ENABLE_CATCHING_MLUGRAPH_OP", *_PATHS),
    "sdaa": ("SDAA_LAUNCH_BLOCKING", "TORCH_SDAA_ALLOC_CONF", "NCCL_DEBUG", *_PATHS),
    "supa": ("SUPA_VISIBLE_DEVICES", "PYTORCH_SUPA_ALLOC_CONF", "BCCL_SOCKET_IFNAME", "BRTB_TRANSFER_SILENCE", *_PATHS),
    "mps": ("PYTORCH_MPS_HIGH_WATERMARK_RATIO", "PYTORCH_ENABLE_MPS_FALLBACK"),
}  # fmt: skip
#: Variables of one process, one machine or one user: on another machine they are wrong.
_OF_A_NODE = (
    "HOME", "HOSTNAME", "LOCAL_RANK", "LOCAL_SIZE", "LOGNAME", "MASTER_ADDR", "MASTER_PORT", "OLDPWD", "PWD",
    "RANK", "SHELL", "SLURM_NODEID", "SLURM_PROCID", "SSH_CLIENT", "TMPDIR", "USER", "WORLD_SIZE", "DISPLAY",
)  # fmt: skip


def _are_names(names: object) -> bool:
    """True for a list of (beginnings of) names of variables."""
    texts = names if isinstance(names, list) else [None]
    return all(isinstance(name, str) and _NAME.fullmatch(name) for name in texts)


_IDS: dict[str, list[int | str]] = {
    "one": [0],
    "in order": [0, 1],
    "out of order": [3, 1],
    "texts": ["1", "0", "2"],
    "two digits": [9, 10, 11],
    "texts of two digits": ["2", "10"],
    "a whole machine": [*range(16)],
    "names": ["GPU-5a3b", "GPU-0c1d"],
}
#: Those that a runtime may refuse.
_REFUSED = {"out of order", "texts", "names"}


@pytest.mark.needs("visible_devices")
@pytest.mark.parametrize("ids", _IDS)
@pytest.mark.parametrize("shown", ["", "3,4,5", "0"], ids=["all shown", "three shown", "one shown"])
def test_visible_devices_are_the_ids_given(
    accelerator: DeepSpeedAccelerator, monkeypatch: pytest.MonkeyPatch, ids: str, shown: str
) -> None:
    """`set_visible_devices_envs` writes the ids as they are given, over former ones, or refuses them.

    It looks up nothing about this process: the launcher counts itself. `visible_devices_envs()` names at least one
    variable: DeepSpeed's runner takes the first.
    """
    names, given, holds = accelerator.visible_devices_envs(), list(_IDS[ids]), Holds()
    holds[f"{names!r} is a list of names of variables"] = names and _are_names(names)
    for name in names:
        monkeypatch.setenv(name, shown) if shown else monkeypatch.delenv(name, raising=False)
    for former in ({}, {**dict.fromkeys(names, "7"), "OTHER": "kept"}):
        written = dict(former)
        wanted = {**former, **dict.fromkeys(names, ",".join(map(str, given)))}
        try:
            accelerator.set_visible_devices_envs(written, given)
        except ValueError:
            wanted = former if ids in _REFUSED else wanted
        holds.equal(
            f"for {given} over {former}, with {shown or 'all'} shown to this process", written, wanted
        )
    holds.equal("the list that was passed in", given, _IDS[ids])
    do = "join the ids as they are given: the first is the process's device 0"
    holds.expect("set_visible_devices_envs()", do)


_QUESTIONS = ("device_count", "is_available", "communication_backend_name", "export_envs", "supported_dtypes")


def test_questions_leave_no_trace(accelerator: DeepSpeedAccelerator, monkeypatch: pytest.MonkeyPatch) -> None:
    """Asking the accelerator, or naming the devices of another process, changes no variable of this one."""
    names = accelerator.visible_devices_envs()
    for name in names:
        monkeypatch.delenv(name, raising=False)
    before = dict(os.environ)
    for question in _QUESTIONS:
        getattr(accelerator, question)()
    for number in ("0", "1") if names else ():  # another value than an earlier call may have left behind
        accelerator.set_visible_devices_envs({}, [number])
    changed = sorted(name for name, _ in set(before.items()) ^ set(os.environ.items()))
    do = "change nothing, and write only into the mapping that was passed in"
    expect_equal("the environment of this process after questions: what changed", changed, [], do)


def test_exports_have_what_ranks_need(accelerator: DeepSpeedAccelerator, vendor: Vendor | None) -> None:
    """`export_envs()` has prefixes for the collective library, and for what users of it and of the runtime set.

    It is a list. No prefix begins a variable of one process, user or machine; an empty one would export everything.
    """
    prefixes, backend = accelerator.export_envs(), str(accelerator.communication_backend_name())
    holds = Holds({f"{prefixes!r} is a list of beginnings of names": _are_names(prefixes)})
    library = any(prefix.strip("_") and prefix.strip("_") in backend.upper() for prefix in prefixes)
    holds[f"a prefix for the backend {backend}, such as {backend.upper()}_"] = library
    for name in (*_OF_BACKENDS.get(backend, ()), *_OF_VENDORS.get(vendor.key if vendor else "", ())):
        holds[f"a prefix of {name}"] = name.startswith(tuple(prefixes))
    for name in _OF_A_NODE:
        holds[f"{name} stays"] = not name.startswith(tuple(prefixes))
    do = "add the beginnings of these names, written out, with the underscore: remote ranks are set up alike"
    holds.expect(f"export_envs() {prefixes}", do)


def test_constructor_keeps_what_is_set(target: Target, monkeypatch: pytest.MonkeyPatch) -> None:
    """Constructing writes no variable that is set: users choose the settings of their runtime."""
    target.construct()  # sets what it wants set
    written: list[str] = []
    former = type(os.environ).__setitem__

    def write(environment: Any, name: str, value: str) -> None:
        if name in environment:
            written.append(name)
        former(environment, name, value)

    with monkeypatch.context() as changed:
        changed.setattr(type(os.environ), "__setitem__", write)
        target.construct()
    expect_equal("which variables the constructor overwrites", written, [], "use os.environ.setdefault")


_TEXTS = {
    "plain": "step",
    "empty": "",
    "percent signs": "100 % done %s %d",
    "braces": "{} {name}",
    "letters": "größe 尺寸",
    "lines": "a\nb",
    "long": "x" * 5000,
}


def _ranges(push: Callable[..., Any], pop: Callable[..., Any], text: str) -> None:
    push(text)
    push("inner")
    pop()
    pop()
    push(text, domain="DeepSpeed", category=text or "none")
    pop(domain="DeepSpeed")
    pop()  # A profiler that starts late has not seen the push.


@pytest.mark.parametrize("text", _TEXTS)
def test_range_has_any_name(accelerator: DeepSpeedAccelerator, text: str) -> None:
    """`range_push(msg, domain, category)` and `range_pop(domain)` take any text, nest, and need no profiler."""
    found = outcome(lambda: _ranges(accelerator.range_push, accelerator.range_pop, _TEXTS[text]))
    do = "take the arguments; neither format nor encode the text; a pop without a push is nothing"
    expect_equal(f"what is made of a range named {_TEXTS[text][:40]!r}", found, None, do)


class _Profiler:
    """The package nvtx, as it records calls: through the objects of domains, and through its own functions."""

    def __init__(self) -> None:
        self.reported: list[tuple[Any, ...]] = []

    def get_domain(self, name: str) -> Any:
        return SimpleNamespace(
            get_event_attributes=lambda message=None, color=None, category=None, payload=None: (message, category),
            push_range=lambda message, category=None: self.push_range(message, domain=name, category=category),
            pop_range=lambda: self.pop_range(name),
        )  # fmt: skip

    def push_range(
        self, message: Any = None, color: Any = None, domain: Any = None, category: Any = None
    ) -> None:
        self.reported.append((domain, *(message if isinstance(message, tuple) else (message, category))))

    def pop_range(self, domain: str | None = None) -> None:
        self.reported.append((domain, None, None))


def test_domain_gets_its_ranges(accelerator: DeepSpeedAccelerator, monkeypatch: pytest.MonkeyPatch) -> None:
    """With `supports_nvtx_domain` and nvtx installed, a range is opened and closed in its domain, with its category."""
    if not accelerator.supports_nvtx_domain:
        pytest.skip("supports_nvtx_domain is False")
    profiler = _Profiler()
    monkeypatch.setitem(sys.modules, "nvtx", profiler)
    first, second = f"first {id(profiler)}", f"second {id(profiler)}"  # nobody has asked for them before
    accelerator.range_push("outer", first, "forward")
    accelerator.range_push("inner", domain=second, category="backward")
    accelerator.range_pop(second)
    accelerator.range_pop(domain=first)
    pushed = [(first, "outer", "forward"), (second, "inner", "backward")]
    wanted = [*pushed, (second, None, None), (first, None, None)]
    do = "pass message and category on to the domain"
    expect_equal("what nvtx gets of ranges in domains", profiler.reported, wanted, do)
