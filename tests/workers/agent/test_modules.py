"""A node's modules: what keeps one from running here, switches that are followed, a file that others can rely on."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import Any

import pytest

from cluster.domain.modules import ModulesFile, SwitchesFile
from cluster.wire import Wanted, from_dict, to_dict
from llmgw_site.lib import files
from llmgw_site.lib.config import Config, load
from workers.agent import modules
from workers.agent.modules import Modules, held, problems
from workers.agent.store import WantedStore

SHARED = {"DATABASE_URL": "postgresql://h/d", "LLMGW_REDIS_URL": "redis://h"}


@pytest.fixture
def config(tmp_path: Path) -> Config:
    return load({"LLMGW_DATA": str(tmp_path), "LLMGW_ROLES": "inference,edge"})


def states(found: ModulesFile | None) -> dict[str, str]:
    return {item.name: item.state for item in found.modules} if found else {}


def start(config: Config, assigned: tuple[str, ...] | None = None, before: ModulesFile | None = None) -> Modules:
    return Modules(config, joined=True, assigned=assigned, before=before)


@pytest.mark.parametrize(
    ("environ", "joined", "code"),
    [
        ({}, False, None),
        ({}, True, "store_not_shared"),
        ({"DATABASE_URL": SHARED["DATABASE_URL"]}, True, "store_not_shared"),
        ({"LLMGW_REDIS_URL": SHARED["LLMGW_REDIS_URL"]}, True, "store_not_shared"),
        ({**SHARED, "DATABASE_URL": "sqlite:///x"}, True, "store_not_shared"),
        (SHARED, True, "secret_not_shared"),
        ({**SHARED, "LLMGW_SECRET_KEY": "s"}, True, None),
    ],
)
def test_a_joined_node_is_a_controller_only_with_the_clusters_stores(
    tmp_path: Path, environ: dict[str, str], joined: bool, code: str | None
) -> None:
    found = problems(load({"LLMGW_DATA": str(tmp_path), **environ}), joined=joined)
    assert found.get("controller", (None,))[0] == code
    assert "data" not in found


def test_the_setup_is_followed_and_what_it_switches_off_is_listed_until_the_node_restarts(config: Config) -> None:
    kept = start(config)
    assert states(held(config)) == {"edge": "running", "inference": "running"}
    assert kept.assign(("cloud", "inference"))
    assert states(held(config)) == {"edge": "stopped", "inference": "running", "cloud": "running"}
    assert not kept.assign(("cloud", "inference"))
    found = held(config)
    assert found is not None
    assert found.managed
    again = start(config, ("cloud", "inference"), before=held(config))  # another agent on the same running node
    assert states(again.now)["edge"] == "stopped"
    WantedStore(config.wanted_file).write(Wanted(server_time=0.0, roles=("cloud", "inference")))
    assert states(modules.start(config, joined=True)) == {"inference": "running", "cloud": "running"}


def test_a_switch_on_this_node_is_followed_unless_the_setup_names_it(config: Config) -> None:
    kept = start(config)
    config.switches_file.parent.mkdir(exist_ok=True)
    files.write_json(config.switches_file, to_dict(SwitchesFile(modules={"edge": False, "router": True})))
    assert kept.look()
    assert states(kept.now) == {"edge": "stopped", "router": "running", "inference": "running"}
    assert not kept.look()
    kept.assign(("edge",))
    assert states(kept.now)["edge"] == "running"
    config.switches_file.write_text("{")
    assert not kept.look()


def test_a_file_that_somebody_spoiled_is_mended(config: Config) -> None:
    kept = start(config)
    config.modules_file.unlink()
    kept.look()
    assert held(config) == kept.now
    config.modules_file.write_text("[]")
    assert held(config) is None
    kept.look()
    assert held(config) == kept.now


def test_a_full_disk_costs_the_file_only(config: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = start(config)
    before = held(config)

    def full(*args: Any, **kwargs: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(files, "write_atomic", full)
        assert kept.assign(("router",))
        assert kept.runs("router")
        assert held(config) == before
    kept.look()
    assert held(config) == kept.now


def test_what_is_wanted_is_kept_with_the_roles_and_without_the_map(config: Config) -> None:
    config.wanted_file.parent.mkdir(exist_ok=True)
    WantedStore(config.wanted_file).write(Wanted(server_time=0.0, roles=("edge",)))
    assert from_dict(Wanted, files.read_json(config.wanted_file)).roles == ("edge",)


def test_what_was_wanted_and_cannot_be_read_is_as_good_as_nothing(config: Config) -> None:
    config.wanted_file.mkdir(parents=True)
    assert WantedStore(config.wanted_file).read() is None
    assert states(modules.start(config, joined=True)) == {"edge": "running", "inference": "running"}
