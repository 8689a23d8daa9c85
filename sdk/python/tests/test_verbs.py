"""Every verb, once, with both clients: one table, and a test that nothing is missing in it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from bridge import Bridge, Loop
from cases import host, inside, terminals, workspaces
from cases.world import World

from motu import AsyncMotu, Motu
from motu._verbs import OPERATIONS

#: The table: a case for each method, under its own name.
CASES: dict[str, Callable[[World], None]] = {
    name: case
    for part in (host, inside, terminals, workspaces)
    for name, case in vars(part).items()
    if name in set(OPERATIONS.values())
}


@pytest.fixture(scope="module", params=["sync", "async"])
def world(
    request: pytest.FixtureRequest, motu: Motu, home: Path, fresh: Callable[[str], str], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[World]:
    tmp = tmp_path_factory.mktemp(str(request.param))
    if request.param == "sync":
        yield World(motu, fresh, tmp)
        return
    loop = Loop()
    try:
        with Bridge(loop, AsyncMotu(home)) as bridge:
            yield World(bridge, fresh, tmp)
    finally:
        loop.close()


def test_no_verb_is_left_out() -> None:
    assert sorted(set(OPERATIONS.values()) - set(CASES)) == []


def test_no_operation_is_left_out(motu: Motu) -> None:
    """The daemon's own document has nothing that this package lacks, but for the other shape of sandboxes and open
    files."""
    document = motu.openapi()
    operations = [one for methods in document["paths"].values() for one in methods.values()]
    capsules = {one["operationId"] for one in operations if "capsules" in one["tags"]}
    assert {one["operationId"] for one in operations} - capsules == set(OPERATIONS) | {"lend_file", "lend_directory"}
    assert all("capsule" in name for name in capsules)


@pytest.mark.parametrize("name", sorted(CASES))
def test_verb(world: World, name: str) -> None:
    CASES[name](world)
