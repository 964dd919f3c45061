"""Files: read block by block and with suspicion, one file for each format, and written whole or not at all."""
