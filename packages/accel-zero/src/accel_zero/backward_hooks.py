# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Replacements of what DeepSpeed's ZeRO optimizers do when autograd has accumulated a gradient."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from typing import Any

import torch
from deepspeed.runtime import base_optimizer, utils
from deepspeed.utils.torch import register_grad_hook
from torch.autograd import graph

from accel_zero import method_patch

Stock = Callable[..., Any]
#: torch's own function; where a program has replaced it, stock calls the other one.
_NODE_OF = graph._get_grad_fn_or_grad_acc
#: Fingerprints of the class that counts the hooks of a backward pass.
_HOOK_STATES = {"d4d8b91371ba0856"}


def count_used(stock: Stock, parameters: Sequence[Any]) -> int:
    """Count the parameters that the running backward pass reaches, with grad mode enabled once."""
    trained = [each for each in parameters if isinstance(each, torch.Tensor) and each.requires_grad]
    replaced = graph._get_grad_fn_or_grad_acc is not _NODE_OF
    outside = torch._C._current_graph_task_id() == -1
    if not trained or outside or replaced or any(each.grad_fn for each in trained):
        return int(stock(parameters))
    with torch.enable_grad():
        nodes = {each.view_as(each).grad_fn.next_functions[0][0] for each in trained}  # type: ignore[union-attr]
    return sum(torch._C._will_engine_execute_node(node) for node in nodes if node is not None)


@functools.cache
def _known_states() -> bool:
    source = inspect.getsource(base_optimizer.BackwardHookStateManager)
    return method_patch.fingerprint(source) in _HOOK_STATES


def register_hooks(stock: Stock, self: Any) -> None:
    """Register hooks that do not count again what the first hook of a backward pass has counted."""
    if not _known_states():
        stock(self)
        return
    trained = [
        (param, i) for i, group in enumerate(self.bit16_groups) for param in group if param.requires_grad
    ]
    params, state = [param for param, _ in trained], self._backward_hook_state

    def hook_of(param: Any, group: int) -> Callable[..., None]:
        def later(*_: Any) -> None:
            if not (
                state.hooks_fired_this_backward
                and state.post_backward_callback_queued
                and state.backward_active_depth
            ):
                first(param, group)
                return
            self.process_gradients(param, group)
            state.hooks_fired_this_backward += 1
            left = state.max_expected_hooks_seen - state.hooks_fired_this_backward
            state.remaining_grad_acc_hooks = max(left, 0)

        return later

    def first(param: Any, group: int) -> None:
        refresh = self.should_refresh_expected_hook_count()
        self.reenter_backward_if_needed()
        self.process_gradients(param, group)
        expected = (
            utils.count_used_parameters_in_backward(params) if refresh else state.max_expected_hooks_seen
        )
        self.update_hook_state_and_maybe_run_epilogue(expected)

    for param, group in trained:
        self._grad_acc_hooks.append(register_grad_hook(param, hook_of(param, group)))
    self._remaining_grad_acc_hooks = 0
