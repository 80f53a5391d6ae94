"""A year of ten million requests a day, as the sums of them that are kept: how long reports, pages and budgets take at its end, what
writing the sums costs, and how old records go."""
