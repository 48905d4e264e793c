"""`offline:scout`: a model that searches the workspace without a network."""
