"""Programs of others as child processes: supervised, bounded, and gone when they should be."""
