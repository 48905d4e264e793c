"""Child processes: supervised, bounded, and ended with everything they started."""
