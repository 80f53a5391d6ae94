"""HTTP of the cluster: the admin API over nodes, replicas and jobs, and what agents call. Shapes and calls only."""
