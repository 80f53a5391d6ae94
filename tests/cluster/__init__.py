"""Tests of the cluster's rooms."""
