"""What the scheduler's decisions cost on fleets of 100 to 10,000 nodes: `make bench-scheduler`."""
