# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
import torch
import torch.nn as nn

torch.manual_seed(11)
torch.backends.cudnn.benchmark = True

use_amp = True
device = torch.device("cuda:0")
net = nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 4)).cuda()
opt = torch.optim.AdamW(net.parameters(), lr=1e-2)
scaler = torch.cuda.amp.GradScaler(enabled=use_amp, init_scale=256.0)

data = [torch.randn(8, 16) for _ in range(6)]
targets = [torch.randint(0, 4, (8,)) for _ in range(6)]

for epoch in range(2):
    for x, y in zip(data, targets, strict=False):
        x, y = x.to(device), y.to(device)
        with torch.cuda.amp.autocast(enabled=use_amp, dtype=torch.float16):
            out = net(x)
            loss = nn.functional.cross_entropy(out, y)
        scaler.scale(loss).backward()
        scaler.unscale_(opt)
        torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        scaler.step(opt)
        scaler.update()
        opt.zero_grad(set_to_none=True)
    print(f"epoch {epoch} loss {loss.item():.6f} scale {scaler.get_scale():.1f} {out.dtype}")
torch.cuda.synchronize()
