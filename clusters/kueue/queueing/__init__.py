"""Who waits where, in which order, and what wakes them."""
