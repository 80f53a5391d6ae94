"""The smallest tools: errors, ids, units, clock, configuration, files, logs. No tables, no Django, no opinions.

Everybody may come in; these modules import nobody of the house. `errors`, `ids` and `units` are pure
(no clock, no I/O), so the `domain` rooms may use them; the others are for shells.
"""
