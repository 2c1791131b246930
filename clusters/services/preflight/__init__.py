"""What a cluster must have before the portal writes to it."""
