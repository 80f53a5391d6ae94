"""What may be said: policies over requests and answers. Imports catalog and lib; knows nothing of nodes."""
