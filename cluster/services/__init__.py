"""All writes to the cluster's tables: who belongs, what runs where, what is being done. May open models and selectors."""
