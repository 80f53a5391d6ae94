"""Pages of the console about nodes, replicas and jobs. Read-only but for actions that call a service."""
