# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Texts that the ranks of a process group exchange through torch's store.

Any process that reaches its port can read and write it. So texts are short. If the launcher gave the job a secret
(`ACCEL_JOB_SECRET`), each has a code that only a rank of the job can make. A secret in the keys would not do: torch's
store lists its keys.
"""

from __future__ import annotations

import hashlib
import hmac
from typing import Any

from accel_core.vendor import JOB_SECRET
from accel_cpu.errors import StoreTampered

#: Bytes of a text; oneCCL's identifier has 8192.
MOST_BYTES = 1 << 14
_SHOWN = 1000


def shown(text: str) -> str:
    """Return another rank's text as a part of a message: short, on one line, nothing for a terminal."""
    return "".join(each if each.isprintable() else "?" for each in text[:_SHOWN])


class Exchange:
    """The texts of one process group, a topic after the other; all ranks have the same topics.

    store: torch's, with a prefix that nobody else uses.
    """

    def __init__(self, store: Any, rank: int, ranks: int, *topics: str) -> None:
        self._store, self._rank, self._ranks, self._topics = store, rank, ranks, iter(topics)
        self._secret = JOB_SECRET.get().encode()
        #: A hash of all texts so far: those of another group's ranks are refused, too.
        self._transcript = b""

    def all_gather(self, text: str) -> list[str]:
        """Share a text on the next topic with the others; return the text of each rank, in order.

        Raises StoreTampered, and what the store does.
        """
        topic = next(self._topics)
        self._store.set(f"{topic}/{self._rank}", self._code(topic, self._rank, text) + text)
        try:
            # Not this rank's own from the store, where another one may be by now.
            texts = [text if peer == self._rank else self._read(topic, peer) for peer in range(self._ranks)]
        except StoreTampered:
            for later in self._topics:  # so that nobody waits for this rank
                self._store.set(f"{later}/{self._rank}", "it does not trust the store")
            raise
        digests = [hashlib.sha256(each.encode()).digest() for each in texts]
        self._transcript = hashlib.sha256(b"".join((self._transcript, *digests))).digest()
        return texts

    def _read(self, topic: str, peer: int) -> str:
        data: bytes = self._store.get(f"{topic}/{peer}")
        length = len(self._code(topic, peer, ""))
        if len(data) > MOST_BYTES + length:
            raise _tampered(f"{len(data)} bytes as {topic} of rank {peer}")
        try:
            whole = data.decode()
        except UnicodeDecodeError as error:
            raise _tampered(f"{topic} of rank {peer} that is not a text") from error
        code, text = whole[:length], whole[length:]
        if not hmac.compare_digest(code.encode(), self._code(topic, peer, text).encode()):
            raise _tampered(f"{topic} of rank {peer} that was not made with this job's secret")
        return text

    def _code(self, topic: str, rank: int, text: str) -> str:
        if not self._secret:
            return ""
        message = b"\0".join((self._transcript, f"{topic} {rank} {self._ranks}".encode(), text.encode()))
        return hmac.new(self._secret, message, hashlib.sha256).hexdigest()


def _tampered(found: str) -> StoreTampered:
    return StoreTampered(
        f"this rank does not trust what torch's store has of the other ranks: {found}",
        do="find out who reaches the store's port; start all ranks of the job with one `accel launch`",
    )
