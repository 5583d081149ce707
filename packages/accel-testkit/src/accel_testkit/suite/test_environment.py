# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Environment: the variables that start other processes, torch.compile, and nothing left behind."""

from __future__ import annotations

import os
import re
from typing import Any

import pytest
import torch

from accel_core.interface import DeepSpeedAccelerator
from accel_core.vendor import Vendor
from accel_testkit.suite.expect import expect, expect_raises, expect_type
from accel_testkit.suite.exported_variables import OF_BACKENDS, OF_VENDORS
from accel_testkit.suite.target import Target

pytestmark = pytest.mark.tier("host")

_NAME = re.compile(r"[A-Z_][A-Z0-9_]*")


def test_visible_devices_have_a_variable(accelerator: DeepSpeedAccelerator) -> None:
    """`visible_devices_envs()` names at least one variable: DeepSpeed's runner takes the first."""
    names = accelerator.visible_devices_envs()
    expect(
        isinstance(names, list) and names and all(isinstance(n, str) and _NAME.fullmatch(n) for n in names),
        "visible_devices_envs() names no variable",
        found=repr(names),
        expected="a list of variable names, never empty",
        do="name the variable by which the runtime shows a process some devices only",
    )


def test_visible_devices_are_written(accelerator: DeepSpeedAccelerator) -> None:
    """`set_visible_devices_envs` writes a rank's devices into the environment it is given."""
    written: dict[str, str] = {}
    accelerator.set_visible_devices_envs(written, [0, 1])
    wanted = dict.fromkeys(accelerator.visible_devices_envs(), "0,1")
    expect(
        written == wanted,
        "set_visible_devices_envs() writes other variables",
        found=repr(written),
        expected=repr(wanted),
        do="write the ids, joined by commas, under each name of visible_devices_envs()",
    )


def test_visible_devices_of_this_process_stay(
    accelerator: DeepSpeedAccelerator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`set_visible_devices_envs` changes the environment it is given, and not this process's."""
    for name in accelerator.visible_devices_envs():
        monkeypatch.delenv(name, raising=False)
    for number in ("0", "1"):  # another value than an earlier call may have left behind
        before = dict(os.environ)
        accelerator.set_visible_devices_envs({}, [number])
        _expect_same_environment(before, "set_visible_devices_envs()")


def test_questions_leave_no_trace(accelerator: DeepSpeedAccelerator) -> None:
    """Asking the accelerator changes no environment variable."""
    before = dict(os.environ)
    for question in (
        accelerator.device_count,
        accelerator.is_available,
        accelerator.communication_backend_name,
        accelerator.export_envs,
        accelerator.visible_devices_envs,
        accelerator.supported_dtypes,
    ):
        question()
    _expect_same_environment(before, "asking the accelerator")


def _expect_same_environment(before: dict[str, str], what: str) -> None:
    changed = sorted(name for name, _ in set(before.items()) ^ set(os.environ.items()))
    expect(
        not changed,
        f"{what} changes the environment of this process",
        found=", ".join(changed),
        expected="the same variables as before",
        do="write only into the mapping that was passed in",
    )


def test_exported_prefixes_are_names(accelerator: DeepSpeedAccelerator) -> None:
    """`export_envs()` is a list of prefixes, none of them empty: an empty one would export everything."""
    prefixes = accelerator.export_envs()
    expect(
        isinstance(prefixes, list) and all(isinstance(p, str) and _NAME.fullmatch(p) for p in prefixes),
        "export_envs() is no list of prefixes",
        found=repr(prefixes),
        expected='beginnings of variable names, such as ["HCCL_", "LD_LIBRARY"]',
        do="list what ranks on other machines need",
    )


def test_exports_reach_the_collectives(accelerator: DeepSpeedAccelerator) -> None:
    """`export_envs()` has a prefix for the collective library, so that remote ranks are set up alike."""
    backend, prefixes = accelerator.communication_backend_name(), accelerator.export_envs()
    library = str(backend).upper()
    expect(
        any(prefix.strip("_") and prefix.strip("_") in library for prefix in prefixes),
        "export_envs() forgets the collective library",
        found=f"{prefixes} for the backend {backend!r}",
        expected=f"a prefix such as {library}_",
        do="add the prefix that the library's variables have",
    )


def test_exports_have_what_users_set(accelerator: DeepSpeedAccelerator, vendor: Vendor | None) -> None:
    """Each variable that users of the runtime and of its collectives set begins with a prefix of `export_envs()`."""
    prefixes, backend = tuple(accelerator.export_envs()), accelerator.communication_backend_name()
    wanted = (*OF_BACKENDS.get(str(backend), ()), *OF_VENDORS.get(vendor.key if vendor else "", ()))
    left = [name for name in wanted if not name.startswith(prefixes)]
    expect(
        not left,
        "export_envs() leaves out variables that ranks on other machines need",
        found=f"no prefix of {', '.join(left)} in {list(prefixes)}",
        expected="a prefix for each",
        do="add the beginnings of these names",
    )


def test_compile_backend_can_be_set(accelerator: DeepSpeedAccelerator, target: Target) -> None:
    """`set_compile_backend` takes a registered backend, which `get_compile_backend` of this object then names."""
    former = accelerator.get_compile_backend()
    expect_type(former, str, "get_compile_backend()", do="name a torch.compile backend")
    other = target.construct()
    others = other.get_compile_backend()
    accelerator.set_compile_backend("eager")
    found = accelerator.get_compile_backend(), other.get_compile_backend()
    accelerator.set_compile_backend(former)
    expect(
        found == ("eager", others),
        "set_compile_backend() does not set the backend of this object",
        found=f"{found[0]!r}, and {found[1]!r} of another object",
        expected=f"'eager', and {others!r} of another object",
        do="keep the name in the object, and return it from get_compile_backend()",
    )


def test_unknown_compile_backend_is_refused(target: Target) -> None:
    """`set_compile_backend` raises ValueError for a backend that is not registered."""
    accelerator = target.construct()
    expect_raises(
        ValueError,
        lambda: accelerator.set_compile_backend("no-such-backend"),
        "set_compile_backend() accepts any name",
        do="compare with torch._dynamo.list_backends(exclude_tags=())",
    )


@pytest.mark.tier("device")
def test_default_compile_backend_is_registered(target: Target) -> None:
    """The backend that `get_compile_backend` names at first is one that torch.compile has."""
    name = target.construct().get_compile_backend()
    known = torch._dynamo.list_backends(exclude_tags=())
    expect(
        name in known,
        "get_compile_backend() names a backend that is not registered",
        found=repr(name),
        expected=f"one of {', '.join(sorted(known))}",
        do="import the module that registers it, or name another",
    )


@pytest.mark.parametrize("ids", [[3, 1], ["1", "0", "2"], [0]], ids=["numbers", "texts", "one"])
def test_visible_devices_keep_their_order(accelerator: DeepSpeedAccelerator, ids: list[int | str]) -> None:
    """The ids are written in the order given, over former ones, or refused; other variables stay."""
    names = accelerator.visible_devices_envs()
    before = {**dict.fromkeys(names, "7"), "OTHER": "kept"}
    written = dict(before)
    try:
        accelerator.set_visible_devices_envs(written, ids)
        wanted = {**dict.fromkeys(names, ",".join(map(str, ids))), "OTHER": "kept"}
    except ValueError:  # an order that the runtime does not have
        wanted = before if len(ids) > 1 else {}
    expect(
        written == wanted,
        "set_visible_devices_envs() writes something else than the ids",
        found=repr(written),
        expected=repr(wanted),
        do="join the ids as they are given: the first is the process's device 0",
    )


_IDS: dict[str, list[int | str]] = {
    "two digits": [9, 10, 11],
    "texts of two digits": ["2", "10"],
    "a whole machine": [*range(16)],
    "names": ["GPU-5a3b", "GPU-0c1d"],
}


@pytest.mark.parametrize("ids", _IDS.values(), ids=list(_IDS))
@pytest.mark.parametrize("shown", ["", "3,4,5", "0"], ids=["all shown", "three shown", "one shown"])
def test_visible_devices_are_the_ids_given(
    accelerator: DeepSpeedAccelerator, monkeypatch: pytest.MonkeyPatch, ids: list[int | str], shown: str
) -> None:
    """The ids are written as they are given, whatever this process is shown, or refused: the launcher counts itself."""
    names, written = accelerator.visible_devices_envs(), dict[str, str]()
    for name in names:
        monkeypatch.setenv(name, shown) if shown else monkeypatch.delenv(name, raising=False)
    given = list(ids)
    wanted = dict.fromkeys(names, ",".join(map(str, ids)))
    try:
        accelerator.set_visible_devices_envs(written, given)
    except ValueError:  # the runtime has numbers only
        wanted = {} if ids == _IDS["names"] else wanted
    expect(
        written == wanted and given == ids,
        "set_visible_devices_envs() writes something else than the ids",
        found=f"{written!r} for {ids}, which is now {given}, with {shown or 'all'} shown to this process",
        expected=repr(wanted),
        do="join the ids as they are given; look up nothing about this process or its devices",
    )


#: Variables of one process, one machine or one user: on another machine they are wrong.
_OF_A_NODE = (
    "HOME", "HOSTNAME", "LOCAL_RANK", "LOCAL_SIZE", "LOGNAME", "MASTER_ADDR", "MASTER_PORT", "OLDPWD", "PWD",
    "RANK", "SHELL", "SLURM_NODEID", "SLURM_PROCID", "SSH_CLIENT", "TMPDIR", "USER", "WORLD_SIZE", "DISPLAY",
)  # fmt: skip


def test_exports_leave_out_what_is_a_node_s_own(accelerator: DeepSpeedAccelerator) -> None:
    """No prefix of `export_envs()` begins a variable of one process, user or machine, which launchers would send."""
    sent = {
        name: prefix for prefix in accelerator.export_envs() for name in _OF_A_NODE if name.startswith(prefix)
    }
    expect(
        not sent,
        "export_envs() sends variables along that are a node's own",
        found=", ".join(f"{name} by the prefix {prefix!r}" for name, prefix in sent.items()),
        expected="prefixes of the device's and its collectives' variables",
        do="write the prefixes out, with the underscore",
    )


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
    expect(
        not written,
        "the constructor overwrites environment variables",
        found=", ".join(written),
        expected="variables that are set stay, whatever their values",
        do="use os.environ.setdefault",
    )
