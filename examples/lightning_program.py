# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Lightning with DeepSpeed on any accelerator: the classes of docs/lightning.md, and a small model to train.

python examples/lightning_program.py --devices 2 --stage 3
torchrun --nproc-per-node 2 examples/lightning_program.py --devices 2
"""

from __future__ import annotations

import argparse
import json
from typing import Any

import lightning.pytorch as pl
import torch
from deepspeed.accelerator import get_accelerator
from lightning.pytorch.accelerators import Accelerator
from lightning.pytorch.strategies import DeepSpeedStrategy
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


class DeepSpeedAccelerator(Accelerator):
    """The device that DeepSpeed uses."""

    def setup_device(self, device: torch.device) -> None:
        get_accelerator().set_device(device.index)

    def teardown(self) -> None:
        get_accelerator().empty_cache()

    @staticmethod
    def parse_devices(devices: Any) -> Any:
        return list(range(int(devices))) if isinstance(devices, (int, str)) else devices

    @staticmethod
    def get_parallel_devices(devices: list[int]) -> list[torch.device]:
        return [torch.device(get_accelerator().device_name(), index) for index in devices]

    @staticmethod
    def auto_device_count() -> int:
        return get_accelerator().device_count()

    @staticmethod
    def is_available() -> bool:
        return get_accelerator().device_count() > 0

    @staticmethod
    def name() -> str:
        return "deepspeed"


class AnyDeepSpeedStrategy(DeepSpeedStrategy):
    """DeepSpeedStrategy without its test for one vendor's devices, and with the accelerator's collectives."""

    def __init__(self, **options: Any) -> None:
        super().__init__(process_group_backend=get_accelerator().communication_backend_name(), **options)

    def setup_environment(self) -> None:
        super(DeepSpeedStrategy, self).setup_environment()


class Model(pl.LightningModule):
    """Learns a linear function of 16 numbers."""

    def __init__(self, rows: int) -> None:
        super().__init__()
        self.inputs = torch.randn(rows, 16)
        self.layers = torch.nn.Sequential(torch.nn.Linear(16, 64), torch.nn.Tanh(), torch.nn.Linear(64, 1))
        self.losses: list[float] = []

    def train_dataloader(self) -> DataLoader[Any]:
        data = TensorDataset(self.inputs, self.inputs.sum(1, keepdim=True) / 4)
        ranks, rank = self.trainer.world_size, self.trainer.global_rank
        return DataLoader(data, 8 // ranks, sampler=DistributedSampler(data, ranks, rank, shuffle=False))

    def training_step(self, batch: Any, _: int) -> torch.Tensor:
        inputs, target = batch
        loss = torch.nn.functional.mse_loss(self.layers(inputs), target)
        self.losses.append(float(self.all_gather(loss.detach()).mean()))
        return loss

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(self.parameters(), lr=1e-2)


def main() -> None:
    """Train one epoch, and print the losses."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--devices", type=int, default=1)
    parser.add_argument("--stage", type=int, default=2)
    args = parser.parse_args()
    torch.manual_seed(1)
    model = Model(rows=64)
    strategy = AnyDeepSpeedStrategy(stage=args.stage)
    quiet = {
        "logger": False,
        "enable_checkpointing": False,
        "enable_progress_bar": False,
        "enable_model_summary": False,
    }
    trainer = pl.Trainer(
        accelerator=DeepSpeedAccelerator(), strategy=strategy, devices=args.devices, max_epochs=1, **quiet
    )
    trainer.fit(model)
    if trainer.is_global_zero:
        kind, engine = strategy.root_device.type, type(trainer.model).__name__
        print(
            json.dumps(
                {"losses": model.losses, "device": kind, "engine": engine, "ranks": trainer.world_size}
            )
        )


if __name__ == "__main__":
    main()
