"""The scheduler on made-up fleets, with a clock that is a number: `llmgw simulate`, and the tests that prove the core.

Pure like the rest of the domain. What decides is `reconcile`, `recheck` and `do` themselves; here is only what nodes, cards,
people and requests would do meanwhile (`machines`, `demand`, `happenings`), and what must hold at every step (`watch`).
"""
