"""What has to happen to a Workload outside of cycles."""
