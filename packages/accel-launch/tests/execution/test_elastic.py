# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""`--elastic_training`: ranks are restarted after a failure, and when a host joins; torch elastic decides."""

import contextlib
import json
import signal
import socket
import time

import pytest

pytest.importorskip("torch", reason="not run: package torch")


def test_after_a_failure_all_ranks_are_restarted(start) -> None:
    script = (
        'echo "$TORCHELASTIC_RESTART_COUNT: $RANK of $WORLD_SIZE, $CROSS_RANK of $CROSS_SIZE"; '
        "echo > said$TORCHELASTIC_RESTART_COUNT$RANK; "
        # Rank 0 would be stopped before it has said its line.
        '[ "$TORCHELASTIC_RESTART_COUNT$RANK" != 01 ] || { until [ -e said00 ]; do sleep 0.05; done; exit 3; }; '
        '[ "$TORCHELASTIC_RESTART_COUNT" = 1 ] || sleep 300'
    )
    launch = start(script, options={"elastic_training": True}, grace=1.0)
    assert launch.wait(120) == 0, launch.err
    lines = [f"{restart}: {rank} of 2, 0 of 1" for restart in (0, 1) for rank in (0, 1)]
    assert sorted(launch.out.splitlines()) == lines
    assert "rank 1 on localhost ended with exit code 3" in launch.err
    assert launch.gone_within(60)


def test_a_host_that_waits_for_others_ends_at_once_when_asked(start) -> None:
    options = {"elastic_training": True, "min_elastic_nodes": 2, "max_elastic_nodes": 2, "no_ssh": True}
    launch = start("sleep 300", hosts=("127.0.0.1", "127.0.0.2"), options={**options, "node_rank": 0})
    # Host 0 has the rendezvous: from then on it waits for the other one.
    port = json.loads((launch.folder / f"plan-{launch.mark}.json").read_text())["master_port"]
    while True:
        with contextlib.suppress(ConnectionRefusedError), socket.create_connection(("127.0.0.1", port), 60):
            break
        assert launch.process.poll() is None
        time.sleep(0.05)
    launch.process.send_signal(signal.SIGTERM)
    assert launch.wait(60) == 128 + signal.SIGTERM
    assert launch.gone_within(60)


def test_an_engine_that_starts_all_hosts_at_once_is_refused(start) -> None:
    launch = start(
        "true", options={"elastic_training": True, "launcher": "slurm"}, environment={"PATH": "/bin"}
    )
    assert launch.wait() == 2
    assert "ACC-61" in launch.err
