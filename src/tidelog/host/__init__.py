"""The seams through which chance enters: clock, disk, network, random, offload."""
