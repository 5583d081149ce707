# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""What a simulated device type cannot do, with reasons. The tests fail when an entry is missing or outdated."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Gap:
    """A check that fails on some vendors' devices, and why."""

    check: str
    vendors: tuple[str, ...]
    reason: str


ALL = ("npu", "mlu", "sdaa", "hpu", "xpu", "cuda", "mps")

GAPS = (
    Gap(
        "nested_tensors",
        ALL,
        "the simulation has dense, COO and quantized tensors only; jagged ones are dense ones",
    ),
    Gap("sparse_gradients", ("hpu",), "torch has no type of sparse hpu tensors"),
    Gap(
        "attention_without_data",
        ("sdaa",),
        "FakeTensorMode asks torch.sdaa.is_initialized, which no public source shows",
    ),
    Gap("torch_manual_seed", ("hpu",), "torch.manual_seed knows no hpu; torch.hpu.manual_seed_all does it"),
    Gap("type_names", ("hpu", "mps"), "torch has no type strings for this device type"),
    Gap("data_loader_pins", ("mps",), "torch's DataLoader pins no memory for mps"),
    Gap(
        "activation_checkpoints",
        ("mps", "sdaa"),
        "torch's checkpoint asks torch.<type>._initialized; none is seen",
    ),
    Gap("fully_sharded", ("sdaa",), "FSDP2 asks torch.sdaa.is_initialized, which no public source shows"),
)

#: Devices whose collectives are not checked at all.
NO_COLLECTIVES = {"mps": "torch has no kernels of its collectives for mps, and its gloo takes no mps tensors"}


def reasons(vendor: str) -> dict[str, str]:
    """Return the checks that fail on that vendor's device, with the reasons."""
    return {gap.check: gap.reason for gap in GAPS if vendor in gap.vendors}
