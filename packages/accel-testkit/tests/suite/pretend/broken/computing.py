# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Data types, graphs and tensors: lists that lie, graphs that do not replay, tensors elsewhere."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from functools import partial
from types import ModuleType
from typing import Any

import pytest
import torch
from accel_good.accelerator import GOOD_Accelerator

from broken import Site, answers, breaks, broken

for _question in (
    "is_bf16_supported",
    "is_fp16_supported",
    "is_triton_supported",
    "prefer_triton_grouped_mm",
):
    answers({_question: None}, "answers.answer_has_its_type[{}]")
answers({"is_fp64_supported": None}, "answers.answer_has_its_type[{}] tensors.double_precision_computes")
answers({"prefer_triton_grouped_mm": True}, "tensors.triton_is_answered_without_it")
answers({"is_fp64_supported": False}, "tensors.double_precision_computes")
answers(
    {"supported_dtypes": (torch.float32, torch.float16, torch.bfloat16)}, "tensors.list_begins_with_float32"
)
broken(
    "ListBeginsWithHalf",
    "tensors.list_begins_with_float32",
    supported_dtypes=lambda self: GOOD_Accelerator.supported_dtypes(self)[::-1],
)
broken(
    "ListForgetsBfloat16",
    "tensors.list_agrees_with_the_answers[bf16]",
    supported_dtypes=lambda self: [torch.float32, torch.float16],
)
broken(
    "ListForgetsFloat16",
    "tensors.list_agrees_with_the_answers[fp16]",
    supported_dtypes=lambda self: [torch.float32, torch.bfloat16],
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
    "ReplayDoesNothing",
    "graphs.capture_ends_with_an_exception graphs.replay_uses_new_data graphs.replay_runs_the_work_once",
    replay_graph=lambda self, graph: None,
)
broken(
    "CaptureRecordsNothing",
    "graphs.capture_is_on_its_stream_and_pool graphs.capture_ends_with_an_exception",
    "graphs.replay_uses_new_data graphs.replay_runs_the_work_once graphs.no_graph_captures_nothing",
    capture_to_graph=lambda self, graph, pool=None, stream=None: GOOD_Accelerator.capture_to_graph(
        self, GOOD_Accelerator.create_graph(self)
    ),
)
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
broken(
    "GraphIsMissingUndeclared",
    "graphs.capture_is_on_its_stream_and_pool graphs.capture_can_be_noticed graphs.replay_uses_new_data",
    "graphs.capture_ends_with_an_exception graphs.replay_runs_the_work_once",
    create_graph=lambda self: None,
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


@breaks("graphs.replay_uses_new_data graphs.replay_runs_the_work_once graphs.no_graph_captures_nothing")
class GraphIsReplayedOnce(GOOD_Accelerator):
    def replay_graph(self, graph: Any) -> None:
        super().replay_graph(graph)
        graph.work.clear()


@breaks("graphs.capture_is_on_its_stream_and_pool graphs.replay_uses_new_data")
class LastGraphIsReplayed(GOOD_Accelerator):
    def capture_to_graph(
        self, graph: Any, pool: Any = None, stream: Any = None
    ) -> AbstractContextManager[Any]:
        self._last = graph
        return super().capture_to_graph(graph)

    def replay_graph(self, graph: Any) -> None:
        super().replay_graph(self._last)


@breaks(
    "graphs.capture_is_on_its_stream_and_pool graphs.capture_ends_with_an_exception",
    "graphs.no_graph_captures_nothing",
)
class CaptureGoesOnAfterAnException(GOOD_Accelerator):
    @contextmanager
    def capture_to_graph(self, graph: Any, pool: Any = None, stream: Any = None) -> Iterator[Any]:
        self._capturing = True
        with super().capture_to_graph(graph):
            yield
        self._capturing = False

    def is_current_stream_capturing(self) -> bool:
        return getattr(self, "_capturing", False)


@breaks("graphs.capture_is_on_its_stream_and_pool graphs.capture_ends_with_an_exception")
class CaptureSwallowsExceptions(GOOD_Accelerator):
    @contextmanager
    def capture_to_graph(self, graph: Any, pool: Any = None, stream: Any = None) -> Iterator[Any]:
        with suppress(LookupError), super().capture_to_graph(graph):
            yield


def _constructs(dtype: torch.dtype, device: str) -> property:
    return property(lambda self: partial(torch.tensor, dtype=dtype, device=device))


for _name, _dtype in {
    "BFloat16Tensor": torch.float16,
    "ByteTensor": torch.int8,
    "DoubleTensor": torch.float32,
    "FloatTensor": torch.float64,
    "HalfTensor": torch.bfloat16,
    "IntTensor": torch.int64,
    "LongTensor": torch.int32,
}.items():
    breaks(f"tensors.constructor_takes_data[{_name}]", name=f"{_name}_has_another_type")(
        type(f"Other{_name}", (GOOD_Accelerator,), {_name: _constructs(_dtype, "cpu")})
    )
_WRITTEN = "tensors.constructed_tensor_can_be_written[FloatTensor]"
breaks("tensors.constructor_takes_data[FloatTensor]", _WRITTEN, name="FloatTensor_is_elsewhere")(
    type("ElsewhereTensor", (GOOD_Accelerator,), {"FloatTensor": _constructs(torch.float32, "meta")})
)
breaks("tensors.constructor_takes_data[FloatTensor]", _WRITTEN, name="FloatTensor_is_none")(
    type("NoneTensor", (GOOD_Accelerator,), {"FloatTensor": None})
)
answers(
    {"on_accelerator": False},
    "tensors.device_tensor_is_on_the_accelerator tensors.tensor_elsewhere_is_not_on_the_accelerator",
    "tensors.tensor_of_any_index_is_on_the_accelerator",
)
answers({"on_accelerator": True}, "tensors.tensor_elsewhere_is_not_on_the_accelerator")


@breaks("tensors.typed_tensor_class_is_taken_as_its_name")
def typed_tensor_class_is_any_class(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.FloatTensor", type("FloatTensor", (), {}))


broken(
    "TensorsRequireGradients",
    "tensors.constructed_tensor_can_be_written",
    tensor_constructor=lambda self, dtype: partial(
        torch.tensor, dtype=dtype, requires_grad=dtype.is_floating_point
    ),
)
broken(
    "TypesOfStorageAreListed",
    "tensors.listed_types_are_trained_in",
    supported_dtypes=lambda self: [*GOOD_Accelerator.supported_dtypes(self), torch.float8_e4m3fn],
)


@breaks("graphs.capture_ends_with_an_exception[RuntimeError]")
class CaptureSwallowsErrors(GOOD_Accelerator):
    @contextmanager
    def capture_to_graph(self, graph: Any, pool: Any = None, stream: Any = None) -> Iterator[Any]:
        try:
            with super().capture_to_graph(graph, pool, stream):
                yield
        except RuntimeError:
            pass


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
