"""Networks of finite width: their inputs, drawn weight by weight, and the same distribution without weights."""
