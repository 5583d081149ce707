# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The pytest plug-in: `pytest --accel-sim npu` runs the tests of any project on a simulated device.

Pytest loads this module in every environment that has accel-sim. Without the option it imports nothing; below
`accel sim` it adds a line to the head of the run. With it, this process gets what `accel sim npu -- pytest` would
give, before a test could import torch.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    import torch

_DEVICE, _RUNTIME = "ACCEL_SIM", "ACCEL_SIM_RUNTIME"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options."""
    group = parser.getgroup("accel-sim", "simulated accelerators")
    group.addoption(
        "--accel-sim",
        metavar="DEVICE",
        help="run on a simulated device: npu, hpu, xpu, mlu, sdaa, supa, klxpu, cuda, mps, or a JSON file that "
        "describes one; ACCEL_SIM_DEVICES and ACCEL_SIM_MEMORY set their number and size",
    )
    group.addoption(
        "--accel-sim-runtime",
        metavar="MODULE",
        help="with --accel-sim npu: the vendor's own runtime, if installed, on an emulated driver: torch_npu",
    )


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests(early_config: pytest.Config) -> None:
    """Simulate the device before the first conftest.py is imported."""
    options = early_config.known_args_namespace
    key, runtime = options.accel_sim, options.accel_sim_runtime
    if runtime and key is None:
        raise pytest.UsageError(f"--accel-sim-runtime {runtime} needs --accel-sim npu")
    if key is None:
        return
    if runtime:
        if os.environ.get(_RUNTIME) != runtime:
            _start_again(early_config, key, runtime)
        return
    from accel_sim import stub_packages, vendors

    # Workers of pytest-xdist, and a pytest below `accel sim`, have it already.
    if not (os.environ.get(_DEVICE) == vendors.setting(key) and stub_packages.is_set_up(os.environ)):
        _set_up(early_config, key)
    # What Python does with PYTHONPATH at its start; pytest-xdist gives its workers a path from before the plug-in.
    folder = os.environ["PYTHONPATH"].partition(os.pathsep)[0]
    if folder not in sys.path:
        sys.path.insert(0, folder)


def _start_again(config: pytest.Config, key: str, runtime: str) -> None:
    """Start this program again: the loader reads where the driver's libraries are at the start of a process."""
    from accel_sim import real_runtime

    with _printing(config):
        environment = real_runtime.environment(key, runtime)
        sys.stderr.flush()
        os.execve(sys.executable, [sys.executable, *sys.orig_argv[1:]], environment)


@contextlib.contextmanager
def _printing(config: pytest.Config) -> Iterator[None]:
    """Show what is printed inside, as by a compilation at the first use. Raises UsageError for errors of ours."""
    from accel_core.errors import AccelError

    capture = config.pluginmanager.getplugin("capturemanager")
    if capture is not None:
        capture.suspend_global_capture(in_=True)
    try:
        yield
    except AccelError as error:
        raise pytest.UsageError(str(error)) from error
    finally:
        if capture is not None:
            capture.resume_global_capture()


def _set_up(config: pytest.Config, key: str) -> None:
    from accel_sim import build, stub_packages

    if "torch" in sys.modules:
        raise pytest.UsageError(
            f"--accel-sim {key}: torch was imported before the plug-in, by another one or with -p."
            f" Start pytest as `accel sim {key} -- pytest`"
        )
    with _printing(config):
        environment = stub_packages.environment(key)
        build.library()
    for name in os.environ.keys() - environment.keys():
        del os.environ[name]
    os.environ.update(environment)


def pytest_report_header() -> str | None:
    """Say that a device is simulated, in the head of the run."""
    if runtime := os.environ.get(_RUNTIME):
        return f"accel-sim: {runtime} on an emulated driver"
    key = os.environ.get(_DEVICE)
    return f"accel-sim: simulated {key}" if key else None


@pytest.fixture(scope="session")
def simulated_device() -> torch.device:
    """The first simulated device. A test that asks for it is skipped in a run without one."""
    if runtime := os.environ.get(_RUNTIME):
        import torch

        importlib.import_module(runtime)
        return torch.device(torch._C._get_privateuse1_backend_name(), 0)
    key = os.environ.get(_DEVICE)
    if not key:
        pytest.skip("no simulated device: pytest --accel-sim npu")
    import torch

    import accel_sim
    from accel_sim import vendors

    # `import torch` does it for most; mlu, sdaa and hpu in lazy mode wait for the program.
    accel_sim.activate(key)
    return torch.device(vendors.find(key).key, 0)
