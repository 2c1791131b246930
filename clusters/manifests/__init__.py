"""Plans in, Kubernetes documents out; documents compared. Pure: no Django, client, clock or I/O."""
