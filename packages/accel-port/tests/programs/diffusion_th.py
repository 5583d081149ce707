# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Train a tiny diffusion model."""

import math

import numpy as np
import torch as th
import torch.nn as nn
import torch.nn.functional as F


def dev():
    """Get the device to use for torch.distributed."""
    if th.cuda.is_available():
        return th.device("cuda")
    return th.device("cpu")


def timestep_embedding(timesteps, dim, max_period=10000):
    half = dim // 2
    freqs = th.exp(-math.log(max_period) * th.arange(start=0, end=half, dtype=th.float32) / half).to(
        device=timesteps.device
    )
    args = timesteps[:, None].float() * freqs[None]
    return th.cat([th.cos(args), th.sin(args)], dim=-1)


class Denoiser(nn.Module):
    def __init__(self, dim=6, width=16):
        super().__init__()
        self.time = nn.Linear(8, width)
        self.inp = nn.Linear(dim, width)
        self.out = nn.Linear(width, dim)

    def forward(self, x, t):
        return self.out(F.silu(self.inp(x) + self.time(timestep_embedding(t, 8))))


def _extract_into_tensor(arr, timesteps, broadcast_shape):
    res = th.from_numpy(arr).to(device=timesteps.device)[timesteps].float()
    while len(res.shape) < len(broadcast_shape):
        res = res[..., None]
    return res.expand(broadcast_shape)


def main():
    th.manual_seed(4)
    if th.cuda.is_available():
        th.cuda.manual_seed_all(4)
    betas = np.linspace(1e-3, 0.2, 20, dtype=np.float32)
    alphas = np.cumprod(1.0 - betas).astype(np.float32)
    model = Denoiser()
    model.to(dev())
    opt = th.optim.AdamW(model.parameters(), lr=1e-2, weight_decay=0.0)
    rng = np.random.RandomState(0)

    for step in range(8):
        x = th.from_numpy(rng.randn(16, 6).astype(np.float32)).to(dev())
        t = th.from_numpy(rng.choice(20, size=(16,))).long().to(dev())
        noise = th.from_numpy(rng.randn(16, 6).astype(np.float32)).to(dev())
        a = _extract_into_tensor(alphas, t, x.shape)
        x_t = a.sqrt() * x + (1 - a).sqrt() * noise
        loss = ((model(x_t, t) - noise) ** 2).mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
        if step % 2 == 0:
            print(f"step {step} mse {loss.item():.6f}")

    with th.no_grad():
        img = th.from_numpy(rng.randn(2, 6).astype(np.float32)).to(dev())
        for i in list(range(20))[::-1][:5]:
            t = th.tensor([i] * 2, device=dev())
            img = img - 0.1 * model(img, t)
        if th.cuda.is_available():
            th.cuda.synchronize()
        print(f"sample {img.mean().item():.6f}")


if __name__ == "__main__":
    main()
