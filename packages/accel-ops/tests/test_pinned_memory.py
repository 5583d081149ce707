# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Page-locked memory: whole pages, exact records, and no reuse of memory that a tensor still refers to."""

import gc
import mmap
import os
import random
import resource
import signal
import threading
import warnings
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

import accel_ops.memory
from accel_ops.errors import OutOfPinnedMemory
from accel_ops.memory import LEAST, MEMORY, SLAB, LockedMemory, PinMemoryBuilder, pinned_like

MIB = 1 << 20


def locked_bytes() -> int:
    """Bytes that the kernel has locked for this process."""
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return next(1024 * int(line.split()[1]) for line in lines if line.startswith("VmLck:"))


def flags_of(address: int) -> list[str]:
    """The kernel's two-letter flags of the mapping at the address: `lo` for locked, `hg` for advised huge pages."""
    inside = False
    for line in Path("/proc/self/smaps").read_text(encoding="utf-8").splitlines():
        name, *rest = line.split()
        if "-" in name:
            first, last = (int(bound, 16) for bound in name.split("-"))
            inside = first <= address < last
        elif inside and name == "VmFlags:":
            return rest
    raise AssertionError(f"nothing is mapped at {address:#x}")


@pytest.fixture
def memory() -> LockedMemory:
    """Of a process that may lock three slabs, or as many large blocks."""
    if not Path("/proc/self/smaps").exists():
        pytest.skip("not run: this system has no /proc that lists what is locked")
    gc.collect()  # releases what earlier tests locked
    probe = mmap.mmap(-1, 3 * SLAB)
    if not accel_ops.memory._mlock(accel_ops.memory._address(probe), 3 * SLAB):
        limit = resource.getrlimit(resource.RLIMIT_MEMLOCK)[0]
        pytest.skip(f"not run: RLIMIT_MEMLOCK of {limit} bytes forbids locking {3 * SLAB}")
    probe.close()
    return LockedMemory()


#: Bytes of a block that shares no slab, and that is large enough for huge pages.
LARGE = accel_ops.memory._HUGE


def in_a_child(question: Callable[[], bool]) -> bool:
    """What a forked child answers."""
    child = os.fork()
    if child == 0:
        os._exit(0 if question() else 3)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


@pytest.mark.usefixtures("memory")
def test_forked_child_has_neither_lock_nor_slab():
    tensors = [pinned_like(torch.ones(size, dtype=torch.uint8)) for size in (LARGE, MIB)]
    slab = MEMORY._slab
    assert slab is not None
    parents = range(slab.address, slab.address + SLAB)

    def differs() -> bool:
        own = MEMORY.allocate(MIB, torch.uint8)
        return all(map(MEMORY.owns, tensors)) and own.data_ptr() not in parents

    assert all(map(MEMORY.is_locked, tensors))
    assert in_a_child(lambda: not any(map(MEMORY.is_locked, tensors)) and differs())
    assert all(map(MEMORY.is_locked, tensors))


def test_a_child_allocates_that_was_forked_while_another_thread_did():
    memory, locked, forked = MEMORY, threading.Event(), threading.Event()

    def allocate():
        with memory._lock:
            memory._starts.insert(0, 1)  # a block whose other records are still to come
            locked.set()
            forked.wait(60)
            memory._starts.remove(1)

    thread = threading.Thread(target=allocate)
    thread.start()
    assert locked.wait(60)

    def allocates():
        signal.alarm(60)  # ends the child where it hangs
        return memory.owns(memory.allocate(9, torch.uint8)) and 1 not in memory._starts

    try:
        assert in_a_child(allocates)
    finally:
        forked.set()
        thread.join()


def test_memory_that_the_system_does_not_lock_is_usable_not_reported_as_pinned_and_warned_about_once(
    monkeypatch,
):
    monkeypatch.setattr("accel_ops.memory._mlock", lambda address, length: False)
    monkeypatch.setattr("accel_ops.memory._warned", False)
    handle = PinMemoryBuilder().load().pin_handle()
    with pytest.warns(RuntimeWarning, match=r"not locked.*ulimit -l"):
        tensor = handle.new_cpu_locked_tensor(1000, torch.empty(0))
    assert tensor.fill_(3).sum() == 3000
    assert MEMORY.owns(tensor)
    assert not MEMORY.is_locked(tensor)
    assert not handle.is_pinned(tensor)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert handle.free_cpu_locked_tensor(handle.new_cpu_locked_tensor(5, tensor))
    assert handle.free_cpu_locked_tensor(tensor)


def test_an_allocation_that_is_too_large_is_a_memory_error():
    with pytest.raises(OutOfPinnedMemory, match="ACC-506"):
        LockedMemory().allocate(1 << 60, torch.uint8)
    assert issubclass(OutOfPinnedMemory, MemoryError)


def test_blocks_share_locked_huge_pages(memory):
    large, small = (memory.allocate(size, torch.uint8) for size in (LARGE, 4096))
    tensors = [memory.allocate(MIB, torch.uint8) for _ in range(4)]
    starts = [tensor.data_ptr() for tensor in tensors]
    assert starts == [starts[0] + number * MIB for number in range(4)]
    assert starts[0] % (2 * MIB) == 0
    assert all(map(memory.is_locked, tensors))
    if Path("/sys/kernel/mm/transparent_hugepage").exists():
        assert all({"lo", "hg"} <= set(flags_of(start)) for start in [*starts, large.data_ptr()])
        assert "hg" not in flags_of(small.data_ptr())


@pytest.mark.parametrize("size", [LEAST + 100, LARGE])
def test_a_freed_block_reads_zeros_and_its_neighbours_stay(memory, size):
    tensors = [memory.allocate(size, torch.uint8).fill_(number + 1) for number in range(3)]
    before = locked_bytes()
    assert memory.free(tensors[1].data_ptr())
    assert before - locked_bytes() == -(-size // 4096) * 4096
    assert not tensors[1].any()
    assert [memory.is_locked(tensor) for tensor in tensors] == [True, False, True]
    assert [tensor.unique().tolist() for tensor in tensors] == [[1], [0], [3]]
    assert not memory.free(tensors[1].data_ptr())


def test_memory_is_locked_until_its_last_view_is_deleted(memory):
    before = locked_bytes()
    view = memory.allocate(LARGE, torch.uint8)[:9]
    assert locked_bytes() - before == LARGE
    assert memory.is_locked(view[7:9])
    del view
    gc.collect()
    assert locked_bytes() == before


def test_memory_is_given_back_with_the_last_block_of_a_slab(memory):
    before = locked_bytes()
    tensors = [memory.allocate(MIB, torch.uint8)[:9] for _ in range(5)]
    for left, slabs in ((5, 2), (2, 2), (1, 1)):
        del tensors[: len(tensors) - left]
        gc.collect()
        assert locked_bytes() - before == slabs * SLAB


def test_a_block_is_locked_alone_where_a_slab_is_not(memory, monkeypatch):
    lock = accel_ops.memory._mlock
    monkeypatch.setattr("accel_ops.memory._mlock", lambda start, size: size < SLAB and lock(start, size))
    before = locked_bytes()
    tensor = memory.allocate(MIB, torch.uint8)
    assert memory.is_locked(tensor)
    assert locked_bytes() - before == MIB


def test_blocks_of_all_sizes_come_and_go_without_overlap_and_leave_zeros(memory):
    draw = random.Random(15)
    kept: dict[int, tuple[torch.Tensor, int]] = {}
    for number in range(400):
        size = draw.choice((1, 4096, LEAST - 1, LEAST, LEAST + 1, MIB, SLAB // 2, SLAB // 2 + 1))
        tensor = memory.allocate(size, torch.uint8)
        assert (tensor.data_ptr() % 4096, tensor.shape) == (0, (size,))
        assert not tensor.any()
        kept[number] = tensor.fill_(number % 255 + 1), number % 255 + 1
        if len(kept) > 6:
            gone, value = kept.pop(draw.choice(list(kept)))
            assert (gone == value).all()
            if draw.random() < 0.5:
                assert memory.free(gone.data_ptr())
                assert not gone.any()
                assert not memory.owns(gone)
        del tensor
    assert all((tensor == value).all() and memory.is_locked(tensor[::7]) for tensor, value in kept.values())
    assert not memory.owns(torch.zeros(1024))
    assert memory.allocate(0, torch.float32).shape == (0,)
    assert not memory.owns(torch.zeros(4, device="meta"))
