"""Departures from the law, one file each: what is looked at, its test, its words, and what to do about it."""
