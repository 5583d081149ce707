# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Steps of Adam, Lion and LAMB on lists of tensors in plain torch (`torch._foreach_*`), and their builders.

A vendor without a fused op lists these builders in its op table unchanged. One with an operator::

    FusedAdamBuilder = ADAM.builder(__name__, runtime_adam("torch_mlu.fused_adam", step))  # step(lists, AdamStep)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any, NamedTuple

import torch

from accel_ops.op import Op, Route, runtime_ops

Tensors = list[torch.Tensor]


def wide(tensors: Sequence[torch.Tensor]) -> Tensors:
    """Return detached tensors of at least 32 bits as they are, and float32 copies of others."""
    detached = (tensor.detach() for tensor in tensors)
    return [tensor if tensor.dtype.itemsize >= 4 else tensor.float() for tensor in detached]


def copy_back(narrow: Sequence[torch.Tensor], computed: Sequence[torch.Tensor]) -> None:
    """Copy the float32 copies that `wide` made back into the original tensors, rounded."""
    pairs = [(n, w) for n, w in zip(narrow, computed, strict=True) if n.dtype != w.dtype]
    if pairs:
        torch._foreach_copy_([n.detach() for n, _ in pairs], [w for _, w in pairs])


class AdamStep(NamedTuple):
    """Arguments of one step, with upstream's names and order.

    noop_flag:   upstream's overflow buffer; its own kernel does not read it.
    step:        number of the step, from 1.
    adam_w_mode: 1: decoupled weight decay; 0: decay added to the gradient (L2).
    """

    noop_flag: torch.Tensor
    lr: float
    beta1: float
    beta2: float
    epsilon: float
    step: int
    adam_w_mode: int
    bias_correction: int
    weight_decay: float

    @property
    def hyperparameters(self) -> dict[str, Any]:
        """Keyword arguments of `accel_ops.reference.adam`."""
        return {
            "step": self.step, "lr": self.lr, "betas": (self.beta1, self.beta2), "eps": self.epsilon,
            "weight_decay": self.weight_decay, "decoupled": bool(self.adam_w_mode),
            "bias_correction": bool(self.bias_correction),
        }  # fmt: skip


Lists = Sequence[Tensors]
Step = Callable[[Lists, AdamStep], None]


def as_multi_tensor_adam(step: Step) -> Callable[..., None]:
    """Return a `multi_tensor_adam` for deepspeed.ops.adam.FusedAdam that calls `step` on four lists.

    The lists are [gradients, parameters, first moments, second moments], updated in place. chunk_size is used
    by upstream's CUDA kernel only.
    """

    def multi_tensor_adam(
        chunk_size: int, noop_flag_buffer: torch.Tensor, tensor_lists: Lists, *constants: Any
    ) -> None:
        step(tensor_lists, AdamStep(noop_flag_buffer, *constants))

    return multi_tensor_adam


def adam_step(lists: Lists, adam: AdamStep) -> None:
    """Do one step in place on tensors of any shapes and float types, computed in float32 or wider.

    Source: Kingma and Ba, arXiv:1412.6980; Loshchilov and Hutter, arXiv:1711.05101.
    """
    _, lr, beta1, beta2, epsilon, number, adam_w_mode, bias_correction, weight_decay = adam
    grads, params, exp_avgs, exp_avg_sqs = (wide(tensors) for tensors in lists)
    if weight_decay and not adam_w_mode:
        grads = list(torch._foreach_add(grads, params, alpha=weight_decay))
    torch._foreach_lerp_(exp_avgs, grads, 1 - beta1)
    torch._foreach_mul_(exp_avg_sqs, beta2)
    torch._foreach_addcmul_(exp_avg_sqs, grads, grads, 1 - beta2)
    correction1 = 1 - beta1**number if bias_correction else 1.0
    correction2 = 1 - beta2**number if bias_correction else 1.0
    denominators = torch._foreach_sqrt(exp_avg_sqs)
    torch._foreach_div_(denominators, correction2**0.5)
    torch._foreach_add_(denominators, epsilon)
    if weight_decay and adam_w_mode:
        torch._foreach_mul_(params, 1 - lr * weight_decay)
    torch._foreach_addcdiv_(params, exp_avgs, denominators, -lr / correction1)
    for narrow, computed in zip(lists[1:], (params, exp_avgs, exp_avg_sqs), strict=True):
        copy_back(narrow, computed)


multi_tensor_adam = as_multi_tensor_adam(adam_step)


def multi_tensor_lion(
    chunk_size: int,
    noop_flag_buffer: torch.Tensor,
    tensor_lists: Sequence[Tensors],
    lr: float,
    beta1: float,
    beta2: float,
    step: int,
    weight_decay: float,
    *,
    at_zero: float = -1.0,
) -> None:
    """Do one step in place on [gradients, parameters, momenta] of any shapes and float types.

    Computed in float32 or wider. As in DeepSpeed's CUDA kernel, a parameter whose gradient and momentum are 0 grows
    by lr, and noop_flag_buffer is not read: infinite and NaN gradients reach the parameters. at_zero: the direction
    where both are 0; in the paper it is 0.
    chunk_size and step are arguments of that kernel, too, and unused. Source: Chen et al., arXiv:2302.06675.
    """
    grads, params, exp_avgs = (wide(tensors) for tensors in tensor_lists)
    moved = torch._foreach_lerp(exp_avgs, grads, 1 - beta1)
    # torch.sign(NaN) is 0, which would hide the NaN.
    signs = [tensor.sign().where(tensor != 0, at_zero) for tensor in moved]
    updates = [torch.where(tensor.isnan(), tensor, sign) for tensor, sign in zip(moved, signs, strict=True)]
    if weight_decay:
        torch._foreach_mul_(params, 1 - lr * weight_decay)
    torch._foreach_add_(params, updates, alpha=-lr)
    torch._foreach_lerp_(exp_avgs, grads, 1 - beta2)
    for narrow, computed in zip(tensor_lists[1:], (params, exp_avgs), strict=True):
        copy_back(narrow, computed)


def lamb(
    param: torch.Tensor,
    param_copy: torch.Tensor,
    exp_avg: torch.Tensor,
    exp_avg_sq: torch.Tensor,
    grad: torch.Tensor,
    lr: float,
    beta1: float,
    beta2: float,
    max_coeff: float,
    min_coeff: float,
    epsilon: float,
    combined_scale: float,
    step: int,
    eps_mode: int,
    bias_correction: int,
    weight_decay: float,
) -> torch.Tensor:
    """Do one step in place; returns the trust ratio, a scalar tensor on the device.

    param_copy: output for the updated parameter in another dtype; empty for none.
    eps_mode:   0: epsilon is added under the square root; 1: outside.
    combined_scale: divisor of the gradient.
    Does not synchronize with the host. Source: You et al., arXiv:1904.00962.
    """
    p, m, v, g = wide([param, exp_avg, exp_avg_sq, grad])
    g = g / combined_scale if combined_scale != 1 else g
    m.lerp_(g, 1 - beta1)
    v.mul_(beta2).addcmul_(g, g, value=1 - beta2)
    denominator = (v + epsilon).sqrt_() if eps_mode == 0 else v.sqrt().add_(epsilon)
    update = m / denominator
    if weight_decay:
        update.add_(p, alpha=weight_decay)
    p_norm, update_norm = torch._foreach_norm([p, update])
    ratio = (p_norm / update_norm).clamp(min_coeff, max_coeff)
    ratio = torch.where((p_norm == 0) | (update_norm == 0), torch.ones_like(ratio), ratio)
    correction = (1 - beta2**step) ** 0.5 / (1 - beta1**step) if bias_correction else 1.0
    p.sub_(update.mul_(ratio), alpha=lr * correction)
    copy_back([param, exp_avg, exp_avg_sq], [p, m, v])
    if param_copy.numel():
        param_copy.detach().copy_(p)  # DeepSpeed passes the model's parameters
    return ratio


ADAM = Op(
    "fused_adam", "FusedAdamBuilder", "`multi_tensor_adam` for deepspeed.ops.adam.FusedAdam.",
    lambda: SimpleNamespace(multi_tensor_adam=multi_tensor_adam),
)  # fmt: skip
LAMB = Op(
    "fused_lamb",
    "FusedLambBuilder",
    "`lamb` for deepspeed.ops.lamb.FusedLamb.",
    lambda: SimpleNamespace(lamb=lamb),
)
LION = Op(
    "fused_lion", "FusedLionBuilder", "`multi_tensor_lion` for deepspeed.ops.lion.FusedLion.",
    lambda: SimpleNamespace(multi_tensor_lion=multi_tensor_lion),
)  # fmt: skip
FusedAdamBuilder, FusedLambBuilder, FusedLionBuilder = (op.builder(__name__) for op in (ADAM, LAMB, LION))


def runtime_adam(operator: str, step: Step) -> Route:
    """Return the route with the vendor's operator under `torch.ops`, which `step` calls."""
    return runtime_ops(ADAM, {"multi_tensor_adam": (operator, as_multi_tensor_adam(step))})
