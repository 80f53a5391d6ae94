"""`llmgw up`: all of llmgw on one machine, kept running by a small supervisor, with an embedded Valkey and a real model.

The supervisor (`main`, `supervisor`, `service`) imports no Django, so that it stays small; what needs the tables is done
by a child of its own, `bootstrap`, through the services of the floors below.
"""
