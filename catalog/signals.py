"""What the catalogue tells the floors above it.

`catalogue_changed` is sent after the commit of every change that keys, models or profiles go through, with
`subject_kind` and `subject_id`. Receivers look at the rows themselves: a lost signal costs time, never truth.
"""

from __future__ import annotations

from django.dispatch import Signal

catalogue_changed = Signal()
