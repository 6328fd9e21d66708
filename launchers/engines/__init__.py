"""The engine kinds, a file each; ``launchers.engine`` names them all."""
