# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Fixtures: the library, a machine without it, threads."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from accel_ops.host import library


@pytest.fixture
def functions() -> Any:
    loaded = library.load()
    assert loaded.functions is not None, loaded.reason
    return loaded.functions


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache; neither a built library nor a loaded one."""
    monkeypatch.setenv("ACCEL_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(library, "PREBUILT", tmp_path / "none")
    monkeypatch.setattr(library, "_loaded", None)
    return tmp_path / "cache"


@pytest.fixture
def without_library(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine with neither a built library nor a compiler, and an empty cache."""
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("CXX", raising=False)


@pytest.fixture(params=["library", "plain torch"])
def with_and_without_library(request: pytest.FixtureRequest) -> None:
    """Run the test with the library, and in plain torch."""
    if request.param == "plain torch":
        request.getfixturevalue("without_library")
        with pytest.warns(RuntimeWarning, match="plain torch"):
            library.load()


@pytest.fixture
def threads() -> Iterator[None]:
    """Restore torch's number of threads."""
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)
