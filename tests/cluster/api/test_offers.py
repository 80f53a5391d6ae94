"""How a plan's way over several nodes is told: over the API, and by `llmgw model plan`."""

from __future__ import annotations

from cluster.api.offers import _way
from cluster.domain.board import Board
from cluster.domain.offers import plan
from cluster.domain.types import World
from llmgw_site.cli.registry import where
from tests.cluster.domain.test_offers import SEVENTY, a_gpu_node, cards, folder


def test_a_way_over_several_nodes_names_its_fabric() -> None:
    nodes = tuple(a_gpu_node(f"n{at}", *cards(8, prefix=f"{at}-"), fabric="ib0") for at in range(2))
    board = Board(World(nodes=nodes))
    (offer,) = plan(board, [folder(220, SEVENTY)])[0].offers
    told = _way(board, offer)
    assert (told["nodes"], told["tp"], told["fabric"]) == (2, 8, "ib0")
    assert {item["node"] for item in told["takes"]} == {"n0", "n1"}
    assert where(told) == "8 x L4 on each of 2 nodes, tp=8, over fabric ib0 (vllm)"
    assert where({**told, "fabric": ""}) == "8 x L4 on each of 2 nodes, tp=8, over one fabric (vllm)"


def test_a_way_on_one_node_names_none() -> None:
    board = Board(World(nodes=(a_gpu_node("one", *cards(2), fabric="ib0"),)))
    (offer,) = plan(board, [folder(10, SEVENTY)])[0].offers
    told = _way(board, offer)
    assert (told["nodes"], told["fabric"]) == (1, "")
    assert where(told) == "1 x L4 (vllm)"
