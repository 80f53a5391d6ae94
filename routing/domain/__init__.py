"""Pure: request facts and a route table in, choices and counts out. No Django, no clock, no I/O."""
