# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""What the probes of vendors' own runtimes see of a machine: before they import it, and from it.

What one vendor alone looks at is in its package.
"""

from dataclasses import dataclass
from importlib import import_module

import pytest

from accel_core.selection import candidates
from accel_core.selection.candidates import State
from accel_core.vendor import Vendor, distribution_version
from accel_testkit.fake_runtime import FakeRuntime

TORCH = ".".join(str(distribution_version("torch")).split(".")[:2])
#: As the last part of a version of torch_supa: 21300 is 2.13.0.
BIREN = "{}{:0>2}00".format(*TORCH.split("."))


@dataclass(frozen=True)
class Runtime:
    """A vendor's runtime. node: the file of a device."""

    key: str
    tested: tuple[str, ...]
    untested: tuple[str, ...]
    releases: str
    node: str
    package: str
    module: str

    @property
    def record(self) -> Vendor:
        record: Vendor = import_module(f"accel_{self.key}.vendor").VENDOR
        return record

    def install(self, machine: FakeRuntime, version: str, source: str = "assert False, 'imported'") -> None:
        """Install a release, whose module has this source."""
        machine.install(self.package.replace("-", "_"), version, source, self.module)


RUNTIMES = (
    Runtime("npu", ("2.13.0",), ("2.1.0", "2.15.0"), ">=2.8,<2.15", "dev/davinci0",
            "torch_npu", "torch_npu"),
    Runtime("mlu", ("1.25.0", "1.29.2", f"1.33.1+torch{TORCH}.0", "1.30.0rc1"), ("1.17.0", "2.0", "unknown"),
            ">=1.22,<2", "dev/cambricon_dev0", "torch_mlu", "torch_mlu"),
    Runtime("sdaa", ("3.2.0", "3.1.1a3", "3.3.0b0"), ("2.0.0", "4.0"), ">=3.0,<4", "dev/tcaicard0",
            "torch_sdaa", "torch_sdaa"),
    Runtime("supa", ("1.0.0", f"1.0.0.{BIREN}+br2xx"), ("0.9.0", "2.0.0"), ">=1.0,<2", "dev/biren/card_0",
            "torch_supa", "torch_supa"),
    Runtime("hpu", ("1.19.0.561", "1.22.1.6"), ("1.18.0.524", "2.0.0"), ">=1.19,<2", "dev/accel/accel0",
            "habana-torch-plugin", "habana_frameworks.torch"),
)  # fmt: skip


@pytest.fixture(autouse=True)
def _no_toolkit(monkeypatch: pytest.MonkeyPatch) -> None:
    """No CANN, whatever the shell has."""
    monkeypatch.delenv("ASCEND_HOME_PATH", raising=False)


@pytest.mark.parametrize(
    ("runtime", "version"),
    [pytest.param(r, v, id=f"{r.key} {v}") for r in RUNTIMES for v in (*r.tested, *r.untested)],
)
def test_release_and_a_device_file_are_worth_a_look(
    runtime: Runtime, version: str, fake_runtime: FakeRuntime
) -> None:
    """A release that was not tested is used, and named."""
    runtime.install(fake_runtime, version)
    fake_runtime.device(runtime.node)
    found = candidates.of_vendor(runtime.record)
    assert (found.state, found.runtime) == (State.PENDING, True)
    assert found.reason.startswith(f"{runtime.package} {version}")
    untested = f"{runtime.package} {version} was not tested; {runtime.releases} was"
    assert (untested in found.reason) == ("not tested" in found.reason) == (version in runtime.untested)


@pytest.mark.parametrize(("key", "version"), [("mlu", "1.25.0+torch2.4.1"), ("supa", "1.0.0.20400+br2xx")])
def test_a_wheel_for_another_torch_is_named(key: str, version: str, fake_runtime: FakeRuntime) -> None:
    runtime = next(r for r in RUNTIMES if r.key == key)
    runtime.install(fake_runtime, version)
    fake_runtime.device(runtime.node)
    found = candidates.of_vendor(runtime.record)
    assert found.state is State.PENDING  # a device without a usable runtime does not end on the CPU
    assert "built for torch 2.4; this is torch " in found.reason
