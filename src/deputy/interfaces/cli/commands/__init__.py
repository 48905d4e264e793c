"""The commands of `deputy`: one file each."""
