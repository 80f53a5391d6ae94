"""Numbers of adapters: learned with the first token, told to the gateway, and kept over a new agent."""

from __future__ import annotations

from pathlib import Path

from cluster.wire import AdapterFile, LocalAdapter, Serve, WantedReplica, Weights
from tests.workers.agent.bench import Bench, R
from workers.agent.events import Adopted, Probed, Remember, Spawn, Spawned, Verdict, WantedArrived
from workers.agent.store import Intent, IntentStore

FILES = (AdapterFile(name="a", weights=Weights(path="/a.gguf")), AdapterFile(name="b", weights=Weights(path="/b.gguf")))
SERVE = Serve(engine="llama.cpp", model="m", weights=Weights(path="/w.gguf"), adapters=FILES)
TOLD = (LocalAdapter(name="a", weights="/a.gguf", id=1), LocalAdapter(name="b", weights="/b.gguf", id=0))


def test_an_engine_is_told_to_the_gateway_with_the_numbers_that_it_gave() -> None:
    bench = Bench()
    bench.want(adapters=FILES)
    launch = bench.only(Spawn).launch
    bench.say(Spawned(replica_id=R, launch=launch, pid=7, port=4000, key="k"))
    bench.tick(1)
    bench.say(Probed(replica_id=R, launch=launch, deep=False, verdict=Verdict.READY))
    assert bench.machine.engines() == ()
    bench.say(Probed(replica_id=R, launch=launch, deep=True, verdict=Verdict.READY, loras=(1, 0)))
    assert bench.machine.engines()[0].adapters == TOLD
    assert bench.only(Remember).loras == (1, 0)
    bench.say(Probed(replica_id=R, launch=launch, deep=False, verdict=Verdict.READY))
    bench.say(Probed(replica_id=R, launch=launch, deep=True, verdict=Verdict.SILENT))
    assert bench.machine.engines()[0].adapters == TOLD


def test_an_engine_that_goes_by_names_is_told_without_numbers() -> None:
    bench = Bench()
    bench.want(adapters=FILES, engine="vllm")
    launch = bench.only(Spawn).launch
    bench.say(Spawned(replica_id=R, launch=launch, pid=7, port=4000, key="k"))
    bench.say(Probed(replica_id=R, launch=launch, deep=True, verdict=Verdict.READY), after=1)
    assert [(item.name, item.id) for item in bench.machine.engines()[0].adapters] == [("a", None), ("b", None)]


def test_another_agent_knows_the_numbers_from_the_one_before(tmp_path: Path) -> None:
    path = tmp_path / "intents.json"
    first = IntentStore(path)
    first.put(Intent(replica_id=R, generation=1, serve=SERVE, port=4000, key="k", started_at=1.0))
    first.change(R, ready_at=2.0, loras=(1, 0))
    kept = IntentStore(path).get(R)
    assert kept is not None
    bench = Bench()
    bench.say(
        Adopted(
            replica_id=R, generation=1, serve=kept.serve, pid=7, port=4000, key="k", started_at=1.0,
            ready_at=kept.ready_at, loras=kept.loras,
        )
    )  # fmt: skip
    assert bench.machine.engines()[0].adapters == TOLD


def test_another_set_of_adapters_is_another_generation_and_the_old_one_serves_until_it_is_told() -> None:
    bench = Bench()
    bench.say(
        Adopted(
            replica_id=R, generation=1, serve=SERVE, pid=7, port=4000, key="k", started_at=1.0, ready_at=2.0,
            loras=(1, 0),
        )
    )  # fmt: skip
    other = Serve(**{**vars(SERVE), "adapters": FILES[:1]})
    old = WantedReplica(replica_id=R, generation=1, run=True, serve=SERVE)
    beside = WantedReplica(replica_id="rep_2", generation=1, run=True, serve=other)
    bench.say(WantedArrived(replicas=(old, beside)))
    assert bench.only(Spawn).serve.adapters == FILES[:1]
    assert bench.machine.engines()[0].adapters == TOLD
