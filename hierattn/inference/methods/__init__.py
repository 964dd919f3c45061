"""Ways to a posterior, one file each, behind one protocol that says what a method supports and why not."""
