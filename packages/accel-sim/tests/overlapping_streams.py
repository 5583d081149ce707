# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""A rank that trains with DeepSpeed's overlap paths, in buckets so small that much is under way at once, and prints
the losses. Nothing waits for the device until the end. `stock` are the plain stages, for DeepSpeed's own accelerator.

python overlapping_streams.py quick|whole|stock
"""

import itertools
import json
import os
import re
import sys
from typing import Any

import deepspeed
import torch
import torch.distributed as dist
from deepspeed.accelerator import get_accelerator

from accel_testkit.engine import model
from accel_testkit.engine.configurations import MATRIX, STEPS, Configuration

BUCKET = 3000  # elements; the model has 32000
SMALL: dict[str, Any] = {"overlap_comm": True, "reduce_bucket_size": BUCKET}
SHARDED = {**SMALL, "allgather_bucket_size": BUCKET}
PARTITIONED = {
    **SMALL,
    "stage3_prefetch_bucket_size": BUCKET,
    "stage3_param_persistence_threshold": 0,
    "stage3_max_live_parameters": 3 * BUCKET,
    "stage3_max_reuse_distance": BUCKET,
}
PINNED = {"device": "cpu", "pin_memory": True}
OFFLOADS: dict[str, dict[str, Any]] = {
    "": {},
    " offload": {"offload_optimizer": PINNED},
    " parameter offload": {"offload_optimizer": PINNED, "offload_param": {**PINNED, "buffer_size": 10000}},
}


def configurations() -> list[Configuration]:
    """ZeRO 1 to 3, with and without contiguous gradients, offload, and accumulation, in fp32 and bf16."""
    found = []
    for stage, (offload, more), contiguous, dtype, accumulate in itertools.product(
        (1, 2, 3), OFFLOADS.items(), (True, False), ("fp32", "bf16"), (1, 2)
    ):
        if stage == 3 or "offload_param" not in more:
            sizes = PARTITIONED if stage == 3 else SHARDED
            zero = {"stage": stage, "contiguous_gradients": contiguous, **more, **sizes}
            name = f"{dtype} stage {stage}{offload}{' contiguous' if contiguous else ''} x{accumulate}"
            quick = (
                contiguous and stage > 1 and (dtype, accumulate) == ("fp32", 1) and "parameter" not in name
            )
            settings = {"zero_optimization": zero}
            found.append(Configuration(name, dtype, settings, accumulate=accumulate, quick=quick))
    return found


def losses(configuration: Configuration) -> list[float]:
    """Mean loss of every step on this rank."""
    rank, ranks = dist.get_rank(), dist.get_world_size()
    module = model.make()
    config = configuration.deepspeed_config(ranks, model.BATCH)
    engine, *_ = deepspeed.initialize(model=module, model_parameters=module.parameters(), config=config)
    found = []
    for step in range(STEPS):
        values = []
        for part in model.batch(step).chunk(configuration.accumulate):
            loss = engine(part.chunk(ranks)[rank].to(engine.device))
            values.append(loss.detach().float())
            engine.backward(loss)
            engine.step()
        found.append(torch.stack(values).mean())
    engine.destroy()
    return torch.stack(found).tolist()


def main() -> None:
    get_accelerator().set_device(int(os.environ["LOCAL_RANK"]))
    deepspeed.init_distributed(dist_backend=get_accelerator().communication_backend_name(), verbose=False)
    chosen = [each for each in configurations() if sys.argv[1] == "whole" or each.quick]
    if sys.argv[1] == "stock":
        chosen = [each for each in MATRIX if re.fullmatch(r"fp32 stage \d", each.name)]
    kind = type(get_accelerator())
    results = {configuration.name: losses(configuration) for configuration in chosen}
    answer = {"accelerator": f"{kind.__module__}.{kind.__name__}", "losses": results}
    sys.stdout.write(json.dumps(answer) + "\n")
    dist.destroy_process_group()


main()
