"""Commands of manage.py about the cluster."""
