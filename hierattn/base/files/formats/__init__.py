"""The formats we read, one file for each, behind one protocol."""
