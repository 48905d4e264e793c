"""The gauntlet: delegation under faults, for Deputy and its peers; see README.md."""
