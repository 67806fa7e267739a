"""Which partitions this process owns: taken over, proven, lost, given up."""
