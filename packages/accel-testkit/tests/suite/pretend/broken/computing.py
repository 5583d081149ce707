# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Data types, graphs and tensors: lists that lie, graphs that do not replay, tensors elsewhere."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from functools import partial
from types import ModuleType
from typing import Any

import pytest
import torch
from accel_good.accelerator import GOOD_Accelerator

from broken import Site, answers, breaks, broken

answers({"is_fp64_supported": False}, "tensors.double_precision_computes")
answers(
    {"supported_dtypes": (torch.float32, torch.float16, torch.bfloat16)}, "tensors.list_begins_with_float32"
)
broken(
    "ListForgetsBfloat16",
    "tensors.list_agrees_with_the_answers[bf16]",
    supported_dtypes=lambda self: [torch.float32, torch.float16],
)
broken(
    "ListHasATypeThatHoldsNothing",
    "tensors.listed_types_compute tensors.copies_keep_the_values tensors.listed_types_are_trained_in",
    supported_dtypes=lambda self: [*GOOD_Accelerator.supported_dtypes(self), torch.float4_e2m1fn_x2],
)


@breaks("tensors.triton_is_answered_without_it")
class TritonIsImportedToAnswer(GOOD_Accelerator):
    def is_triton_supported(self) -> bool:
        sys.modules.setdefault("triton", ModuleType("triton"))
        return False


broken(
    "CaptureForgetsItsStream",
    "graphs.capture_is_on_its_stream_and_pool",
    capture_to_graph=lambda self, graph, pool=None, stream=None: GOOD_Accelerator.capture_to_graph(
        self, graph, pool
    ),
)
broken(
    "CaptureForgetsItsPool",
    "graphs.capture_is_on_its_stream_and_pool",
    capture_to_graph=lambda self, graph, pool=None, stream=None: GOOD_Accelerator.capture_to_graph(
        self, graph, None, stream
    ),
)
broken("CaptureIsNotNoticed", "graphs.capture_can_be_noticed", is_current_stream_capturing=lambda self: False)
broken(
    "CaptureIsAFunction",
    "graphs.capture_is_on_its_stream_and_pool graphs.capture_can_be_noticed",
    "graphs.code_in_a_capture_is_usable_after_a_replay graphs.replay_uses_new_data",
    "graphs.capture_ends_with_an_exception graphs.replay_runs_the_work_once",
    "graphs.no_graph_captures_nothing",
    capture_to_graph=lambda self, graph, pool=None, stream=None: partial(nullcontext, graph),
)


@breaks("graphs.replay_uses_new_data")
class OneGraphForAll(GOOD_Accelerator):
    def __init__(self) -> None:
        super().__init__()
        self._graph = super().create_graph()

    def create_graph(self) -> Any:
        return self._graph


@breaks("graphs.replay_runs_the_work_once")
class ReplayRunsTheWorkTwice(GOOD_Accelerator):
    def replay_graph(self, graph: Any) -> None:
        super().replay_graph(graph)
        super().replay_graph(graph)


@breaks("graphs.capture_is_on_its_stream_and_pool graphs.capture_ends_with_an_exception")
class CaptureSwallowsExceptions(GOOD_Accelerator):
    @contextmanager
    def capture_to_graph(self, graph: Any, pool: Any = None, stream: Any = None) -> Iterator[Any]:
        with suppress(LookupError), super().capture_to_graph(graph):
            yield


def _constructs(dtype: torch.dtype, device: str) -> property:
    return property(lambda self: partial(torch.tensor, dtype=dtype, device=device))


breaks("tensors.constructor_takes_data[FloatTensor]", name="FloatTensor_has_another_type")(
    type("OtherFloatTensor", (GOOD_Accelerator,), {"FloatTensor": _constructs(torch.float64, "cpu")})
)
_WRITTEN = "tensors.constructed_tensor_can_be_written[FloatTensor]"
breaks("tensors.constructor_takes_data[FloatTensor]", _WRITTEN, name="FloatTensor_is_elsewhere")(
    type("ElsewhereTensor", (GOOD_Accelerator,), {"FloatTensor": _constructs(torch.float32, "meta")})
)
answers(
    {"on_accelerator": False},
    "tensors.device_tensor_is_on_the_accelerator tensors.tensor_elsewhere_is_not_on_the_accelerator",
    "tensors.tensor_of_any_index_is_on_the_accelerator",
)


@breaks("tensors.typed_tensor_class_is_taken_as_its_name")
def typed_tensor_class_is_any_class(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.FloatTensor", type("FloatTensor", (), {}))


@breaks("graphs.no_graph_captures_nothing")
class NoGraphIsACapture(GOOD_Accelerator):
    _inside = False

    @contextmanager
    def capture_to_graph(self, graph: Any, pool: Any = None, stream: Any = None) -> Iterator[None]:
        if graph is not None:
            with super().capture_to_graph(graph, pool, stream):
                yield
            return
        self._inside = True
        try:
            yield
        finally:
            self._inside = False

    def is_current_stream_capturing(self) -> bool:
        return self._inside or super().is_current_stream_capturing()
