"""What the catalogue tells the floors above it.

`catalogue_changed` is sent after the commit of every change that keys, models or profiles go through, with
`subject_kind` and `subject_id`. Receivers look at the rows themselves: a lost signal costs time, never truth.

`secrets_revoked` is sent after the commit, before any `catalogue_changed` of it, with `hashes`: SHA-256 of the texts of keys and
admin tokens that are worth nothing from now on.

`model_changing` is sent before a model that is there is changed, outside of any lock, with `model` (its row as it was read)
and `asked` (as it would be). A receiver may raise Refused; then nothing is changed. `profile_changing` is the same of a profile
that is there, with `profile` and `asked`; `profile_adding`, with `asked`, of one that is not.
"""

from __future__ import annotations

from django.dispatch import Signal

catalogue_changed = Signal()
secrets_revoked = Signal()
model_changing = Signal()
profile_adding = Signal()
profile_changing = Signal()
