"""The places, a file each; ``launchers.place`` names them all."""
