"""Rules of many nodes, each on a cluster of real processes (tests/cluster/harness)."""
