"""Three defects of Kueue 0.19.2, noticed and, where a cluster allows it, prevented or cured."""
