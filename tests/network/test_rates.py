"""How often somebody may do something: a burst at once, a rate in the long run."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import NoReturn

import grpc
import pytest
from served import Served

from afedpg.config import from_settings
from afedpg.transport.grpc.rates import Bucket


def test_a_bucket_has_its_burst_and_then_its_rate() -> None:
    bucket = Bucket(rate=5.0, burst=10.0)
    assert [bucket.take(100.0) for _ in range(10)] == [0.0] * 10
    assert bucket.take(100.0) == pytest.approx(0.2)
    assert bucket.take(100.2) == 0.0
    assert sum(bucket.take(10_000.0) == 0 for _ in range(50)) == 10  # a long silence saves up no more than a burst


class SentAway(Exception):
    pass


class Caller:
    """Stands in for gRPC's context."""

    def peer(self) -> str:
        return "here"

    async def abort(self, code: grpc.StatusCode, text: str) -> NoReturn:
        raise SentAway(f"{code.name}: {text}")


def test_who_comes_too_often_is_sent_away(tmp_path: Path) -> None:
    async def test() -> None:
        config = from_settings({"task": "quadratic", "agents": 2})
        service = Served(config, tmp_path, recorded=False).service

        async def come(name: str, times: int) -> None:
            for _ in range(times):
                await service._check_frequency(Caller(), name)  # type: ignore[arg-type]

        with pytest.raises(SentAway, match="RESOURCE_EXHAUSTED: 'eager' comes too often"):
            await come("eager", 1000)
        await come("another", 1)

    asyncio.run(test())
