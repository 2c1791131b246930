"""How Kubernetes documents are read and named: keys, labels, conditions, numbers, times. Pure.

The lowest layer: everything may use it, and it uses nothing but the standard library. What
strangers write into a document is read by functions that are total and bounded: they return None,
or nothing, for what makes no sense, and never take long over it.
"""
