# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""DeepSpeed's own functions that its tests leave out run on ops in plain torch, on a simulated device."""

import pytest

from shared.children import on_device

pytestmark = pytest.mark.upstream

PROGRAM = """
import json, math
import torch
from deepspeed.accelerator import get_accelerator
from deepspeed.ops.deepspeed4science import DS4Sci_EvoformerAttention
from deepspeed.ops.random_ltd import GatherTokens, ScatterTokens, bert_sample_tokens, gpt_sample_tokens

device = get_accelerator().current_device_name()
torch.manual_seed(1)
apart = {}

def compare(name, found, wanted):
    wanted = wanted.detach().double().cpu()
    apart[name] = ((found.detach().double().cpu() - wanted).abs().max() / wanted.abs().max()).item()

shapes = [(2, 3, 40, 2, 16)] * 3 + [(2, 3, 1, 1, 40), (2, 1, 2, 40, 40)]
exact = [torch.randn(shape).double().requires_grad_() for shape in shapes]
given = [tensor.detach().float().to(device).requires_grad_() for tensor in exact]
q, k, v, bias1, bias2 = exact
scores = torch.einsum("bnqhd,bnkhd->bnhqk", q, k) / math.sqrt(16) + bias1 + bias2
wanted = torch.einsum("bnhqk,bnkhd->bnqhd", scores.softmax(-1), v)
found = DS4Sci_EvoformerAttention(*given[:3], list(given[3:]))
compare("attention", found, wanted)
weight = torch.randn(wanted.shape)
(wanted * weight).sum().backward()
(found * weight.to(device)).sum().backward()
for name, mine, theirs in zip(("q", "k", "v", "bias1", "bias2"), given, exact):
    compare(f"gradient of {name}", mine.grad, theirs.grad)

rows = torch.randn(2, 9, 8, device=device, requires_grad=True)
mask = torch.zeros(2, 1, 9, 9, device=device)
index, small = gpt_sample_tokens(5, 9, 2, 1, device, mask)
bert_index, masks = bert_sample_tokens(5, 9, 2, 2, device, mask)
assert small.shape == (2, 1, 5, 5) and masks[0].shape == (2, 1, 5, 5) and (bert_index.diff() > 0).all()
whole, kept = GatherTokens.apply(rows, index[0], True)
out = ScatterTokens.apply(whole, 2 * kept, index[0], True)
out.sum().backward()
places = torch.zeros(2, 9, device=device).scatter(1, index[0].long(), 1.0).unsqueeze(-1)
compare("tokens", out, rows * (1 + places))

print(json.dumps(apart))
"""


def test_stock_functions_compute_what_float64_does() -> None:
    apart = on_device("npu", "-c", PROGRAM).report
    assert len(apart) == 7
    assert max(apart.values()) < 1e-3, apart
