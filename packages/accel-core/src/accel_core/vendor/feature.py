# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The features that a trait may declare missing. For ops, the key of a trait is the class name of the builder."""

from __future__ import annotations

from enum import Enum


class Feature(str, Enum):
    """A feature of accelerators. The value is the key of the trait; `sentence` describes the feature.

    A member equals its key: `{Feature.STREAMS: …}` and `{"streams": …}` are the same traits.
    """

    _value_: str
    sentence: str

    def __new__(cls, key: str, sentence: str) -> Feature:
        feature = str.__new__(cls, key)
        feature._value_ = key
        feature.sentence = sentence
        return feature

    def __str__(self) -> str:
        return self._value_

    INDEXED_DEVICES = "indexed_devices", "One process uses several devices, by index."
    STREAMS = "streams", "Work is queued on streams: `Stream` is a class, `stream()` chooses one."
    DEFAULT_STREAM = "default_stream", "`default_stream()` is a stream of its own beside those that are made."
    RECORD_STREAM = "record_stream", "`tensor.record_stream(stream)` keeps memory until that stream is done."
    EVENTS = "events", "Events mark points of a stream and measure the time between them."
    GRAPHS = "graphs", "Work is captured into a graph and replayed."
    PINNED_MEMORY = "pinned_memory", "`pin_memory()` page-locks host memory."
    RESERVED_MEMORY = (
        "reserved_memory",
        "`memory_reserved()` follows what the allocator takes and gives back.",
    )
    MEMORY_PEAKS = "memory_peaks", "The runtime itself keeps the peaks that `max_memory_*()` return."
    BF16 = "bf16", "bfloat16 trains."
    FP16 = "fp16", "float16 trains."
    FP64 = "fp64", "float64 computes."
    TRITON = "triton", "Triton kernels run."
    UNTOUCHED_ENVIRONMENT = "untouched_environment", "Imports and construction leave os.environ as it is."
    UNTOUCHED_SETTINGS = "untouched_settings", "Construction leaves torch's global settings as they are."
    ZERO3_RANKS = "zero3_ranks", "DeepSpeed trains at ZeRO stage 3 over several ranks."
    ALL_REDUCE_MAX = "all_reduce_max", "The backend reduces by maximum."
    ASYNCHRONOUS_ALL_REDUCE = (
        "asynchronous_all_reduce",
        "`all_reduce(async_op=True)` returns a handle to wait for.",
    )
    BROADCAST = "broadcast", "The backend broadcasts."
    ALL_GATHER_INTO_TENSOR = "all_gather_into_tensor", "The backend gathers into one tensor."
    REDUCE_SCATTER_TENSOR = "reduce_scatter_tensor", "The backend reduces and scatters one tensor."
    ALL_TO_ALL_SINGLE = "all_to_all_single", "The backend exchanges parts of one tensor."
    SEND_AND_RECEIVE = "send_and_receive", "The backend sends from rank to rank."
    ALL_GATHER_OBJECT = "all_gather_object", "The backend gathers pickled objects."
