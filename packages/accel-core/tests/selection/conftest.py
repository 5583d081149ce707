# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""A machine with vendor packages of our making: real distributions on sys.path, found by their entry points."""

import importlib
import importlib.metadata
import inspect
import logging
import os
import pickle
import random
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from accel_core import errors, launchers
from accel_core.api import CURRENT
from accel_core.selection.candidates import Candidate

from ..site_packages import SitePackages


class Machine(SitePackages):
    """What is installed, and the one call that selects."""

    def __init__(self, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__(path)
        self._monkeypatch = monkeypatch

    def select(self, **variables: str) -> Any:
        """`get_accelerator()`, after which nothing but the accelerator is different.

        Variables are set before, and a choice that was made without them is cleared.
        """
        for name, value in variables.items():
            self._monkeypatch.setenv(name, value)
            self.forget()
        with nothing_changed():
            return CURRENT.get()

    def refused(self, kind: type[errors.AccelError], **variables: str) -> errors.AccelError:
        """The error with which `get_accelerator()` refuses, checked to be a whole one of this kind."""
        with pytest.raises(errors.AccelError) as caught:
            self.select(**variables)
        assert type(caught.value) is kind
        return whole(caught.value)

    def file(self, path: str, text: str = "") -> None:
        """Write a file under the root of the machine, such as that of a device."""
        file = self.path.parent / "root" / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)

    def forget(self) -> None:
        """Clear the choice, so that the next call selects again."""
        CURRENT.set(None)

    def candidates(self) -> tuple[Candidate, ...]:
        """What the selection found out."""
        _, selection = CURRENT.state()
        assert selection is not None
        return selection.decision.candidates

    def candidate(self, label: str) -> Candidate:
        """What the selection found out about one candidate."""
        (found,) = [candidate for candidate in self.candidates() if candidate.label == label]
        return found


@contextmanager
def nothing_changed() -> Iterator[None]:
    """Check that the block leaves the process and its working directory as they were."""
    before = _traces()
    try:
        yield
    finally:
        assert _traces() == before


def _traces() -> dict[str, Any]:
    import torch

    return {
        "environment": dict(os.environ),
        "torch's random state": torch.get_rng_state().tolist(),
        "Python's random state": random.getstate(),
        "warning filters": list(warnings.filters),
        "log handlers": [*logging.getLogger().handlers, *logging.getLogger("accel_core").handlers],
        "working directory": (os.getcwd(), sorted(os.listdir())),
    }


def whole(error: errors.AccelError) -> errors.AccelError:
    """Check the parts, the code, and that the error survives a pickle."""
    assert str(error).startswith(f"{error.message}; {error.do} [{error.code}]")
    assert error.message.strip()
    assert error.do.strip()
    kinds = [k for _, k in inspect.getmembers(errors, inspect.isclass) if issubclass(k, errors.AccelError)]
    assert [kind for kind in kinds if kind.code == error.code] == [type(error)]
    copy = pickle.loads(pickle.dumps(error))
    assert (type(copy), str(copy), vars(copy)) == (type(error), str(error), vars(error))
    return error


@pytest.fixture
def state_restored() -> Iterator[None]:
    former = CURRENT.state()
    CURRENT.set(None)
    yield
    CURRENT.restore(former)


@pytest.fixture
def machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: Any, state_restored: None
) -> Iterator[Machine]:
    """A machine with accel-ops, an accel-cpu and nothing else, whatever is installed here; no DeepSpeed."""
    for variable in ("DS_ACCELERATOR", "ACCEL_STRICT", "ACCEL_SKIP", *launchers.VARIABLES):
        monkeypatch.delenv(variable, raising=False)
    site, folder = tmp_path / "site", tmp_path / "work"
    for path in (site, folder):
        path.mkdir()
    machine = Machine(site, monkeypatch)
    monkeypatch.setenv("ACCEL_SYSROOT", str(tmp_path / "root"))
    machine.file("torch/version.py")  # a build for CPUs, whatever is installed here
    monkeypatch.setattr(CURRENT.deepspeed, "keys", lambda: None)
    # A distribution's name is found once: these hide the vendors of the environment that the tests run in.
    for point in importlib.metadata.entry_points(group="accel.vendors"):
        if point.dist is not None:
            machine.distribution(point.dist.name)
    machine.distribution("accel-ops")  # else advice to install a vendor package names it too
    monkeypatch.syspath_prepend(site)
    monkeypatch.chdir(folder)
    machine.install("cpu", confirm="return Confirmation(1, 'always there')")
    yield machine
    for name, module in list(sys.modules.items()):
        if str(getattr(module, "__file__", "")).startswith(str(site)):
            del sys.modules[name]
    assert capfd.readouterr() == ("", "")


@pytest.fixture
def accelerator(machine: Machine) -> Any:
    """An accelerator that the program has made by itself."""
    module = machine.install("own", priority=1)
    made = importlib.import_module(f"{module}.accelerator").Fake_Accelerator()
    machine.remove("accel-own")
    return made
