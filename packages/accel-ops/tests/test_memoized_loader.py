# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""What is tried once a process: results and reasons are kept, other errors are not."""

import pytest

from accel_ops.device_kernels import KernelsUnusable, MemoizedLoader


def test_result_and_reason_are_kept_for_the_same_arguments() -> None:
    calls: list[int] = []

    @MemoizedLoader
    def tried(device: int) -> str:
        calls.append(device)
        if device:
            raise KernelsUnusable(f"device {device} is broken")
        return "kernels"

    for _ in range(2):
        assert tried(0) == "kernels"
        with pytest.raises(KernelsUnusable, match="device 1 is broken"):
            tried(1)
    assert calls == [0, 1]
    tried.forget()
    assert tried(0) == "kernels"
    assert calls == [0, 1, 0]


def test_other_errors_are_not_kept() -> None:
    calls: list[int] = []

    @MemoizedLoader
    def tried(device: int) -> str:
        calls.append(device)
        raise MemoryError

    for _ in range(2):
        with pytest.raises(MemoryError):
            tried(0)
    assert calls == [0, 0]
