"""Pure: views, `now` and dice come in as arguments, plans and verdicts go out. No Django, no clock, no I/O."""
