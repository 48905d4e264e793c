"""What carries out assignments outside of our own loop: the programs of other agents."""
