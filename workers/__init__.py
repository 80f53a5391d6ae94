"""The hands. Two houses under one roof: Celery jobs (Django) here, the node agent (no Django) in `agent/`."""
