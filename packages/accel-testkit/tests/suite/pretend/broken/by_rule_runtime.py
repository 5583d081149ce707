# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""What the checks of the runtime's operators notice: one that has to be there, one tried for nothing, a blind trial."""

from __future__ import annotations

from typing import Any

import torch

from broken import breaks
from broken.by_rule_ops import with_builder

_OP = "rms_norm"
_library = torch.library.Library("accel_broken", "FRAGMENT")
_library.define(f"{_OP}(Tensor x, Tensor gamma, float epsilon) -> Tensor")


def _computed(x: torch.Tensor, gamma: torch.Tensor, epsilon: float) -> torch.Tensor:
    return (x.float() * (x.float().square().mean(-1, keepdim=True) + epsilon).rsqrt()).to(x.dtype) * gamma


_library.impl(_OP, _computed, "CompositeExplicitAutograd")


def _norm(output: torch.Tensor, x: torch.Tensor, gamma: torch.Tensor, epsilon: float) -> None:
    output.copy_(torch.ops.accel_broken.rms_norm(x, gamma, epsilon))


def _tried() -> bool:
    try:
        torch.ops.accel_broken.rms_norm(torch.ones(2, 4), torch.ones(4), 1e-3)
    except Exception:
        return False
    return True


def _over_it(self: Any, verbose: bool = True) -> Any:
    op = super(type(self), self).load(verbose)
    op.rms_norm = _norm
    return op


def _tried_only(self: Any, verbose: bool = True) -> Any:
    _tried()
    return super(type(self), self).load(verbose)


def _tried_blindly(self: Any, verbose: bool = True) -> Any:
    return _over_it(self, verbose) if _tried() else super(type(self), self).load(verbose)


def _told(self: Any) -> tuple[bool, str]:
    return True, f"plain torch, or {_OP}"


def _register(name: str, load: Any, *fails: str) -> None:
    kind = with_builder("InferenceCoreBuilder", load=load, compatibility=_told)
    breaks(*(f"op_runtime.{check}" for check in fails), name=name)(kind)


_register("OperatorHasToBeThere", _over_it, "op_serves_without_the_runtime_s[InferenceCoreBuilder]")
_register("OperatorIsTriedForNothing", _tried_only, "operator_that_works_is_used[InferenceCoreBuilder]")
_register("TrialIsBlind", _tried_blindly, "operator_that_is_wrong_is_not_used")
