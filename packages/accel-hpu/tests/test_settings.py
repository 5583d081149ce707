# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""What Habana's runtime needs is set for good when construction succeeds, and taken back when it fails."""

import os
from collections.abc import Iterator

import pytest
import torch

from accel_hpu import settings


def state() -> tuple[bool, bool, bool, dict[str, str]]:
    return (
        torch.are_deterministic_algorithms_enabled(),
        torch.is_deterministic_algorithms_warn_only_enabled(),
        settings.deterministic.fill_uninitialized_memory,
        {name: os.environ[name] for name in settings.VARIABLES if name in os.environ},
    )


@pytest.fixture(autouse=True)
def torch_as_it_was(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name in settings.VARIABLES:
        monkeypatch.delenv(name, raising=False)
    enabled, warns, fills, _ = state()
    yield
    torch.use_deterministic_algorithms(enabled, warn_only=warns)
    settings.deterministic.fill_uninitialized_memory = fills
    for name in settings.VARIABLES:
        os.environ.pop(name, None)


@pytest.mark.parametrize(("error", "warns"), [(ValueError, True), (KeyboardInterrupt, False)])
def test_settings_are_taken_back_when_the_block_raises(error, warns):
    torch.use_deterministic_algorithms(warns, warn_only=warns)
    before = state()

    def fail():
        with settings.applied():
            assert state() != before
            raise error

    with pytest.raises(error):
        fail()
    assert state() == before
