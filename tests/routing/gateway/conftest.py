"""The gateway's tests run on uvloop, as the gateway does; and a client for byte servers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping

import pytest
import uvloop

from routing.gateway import activation, engines
from routing.gateway.upstream import Upstream


def pytest_asyncio_loop_factories(
    config: pytest.Config, item: pytest.Item
) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    return {"uvloop": uvloop.new_event_loop}


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy machine is no controller and no engine that is away."""
    monkeypatch.setattr(activation, "PATIENCE", 60.0)
    monkeypatch.setattr(engines, "TIMEOUT", 60.0)


@pytest.fixture
async def upstream() -> AsyncIterator[Upstream]:
    client = Upstream(connect_timeout=30)
    yield client
    await client.close()
    assert client.connections == 0
