"""HTTP of routing: usage for the admin API, snapshot and usage batches for agents. Shapes and calls only."""
