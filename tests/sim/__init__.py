"""The cluster in one process: virtual time, a seed, fake transport and engines; the deciding code is the product's own."""
